// Group normalisation with what is around it in a network: norm(phi(x)), phi(norm(x)) and phi(norm(x) + shortcut), x in 16 or 32 bits, and the gradients.
// See norm.cuh for the launch; group_norm.cu has what the inside of a cell needs.
#include "norm.cuh"

struct GroupNorm {
    Affine affine;
    Moments* moments;     // [samples][regions][groups]
    Cohort cohort;
    Shape shape;
    int before, after;    // activations; x is the value of the one before
};

__device__ __forceinline__ float4 both(float2 a, float2 b) { return make_float4(a.x, a.y, b.x, b.y); }
__device__ __forceinline__ void apart(float4 v, float2& a, float2& b) { a = make_float2(v.x, v.y); b = make_float2(v.z, v.w); }

// g <- phi'(.) g from phi's values.
__device__ __forceinline__ void through(int phi, float2 (&g)[E], const float2 (&values)[E]) {
    if (phi == IDENTITY) return;
#pragma unroll
    for (int i = 0; i < E; i += 2) apart(both(g[i], g[i + 1]) * slope_of(phi, both(values[i], values[i + 1])), g[i], g[i + 1]);
}

// y = after(norm(x) + shortcut), y16 the same in 16 bits; shortcut and either of these may be null.
template <class T> __device__ __forceinline__ void apply(const GroupNorm& n, const T* x, const float* shortcut, float* y, f16* y16) {
    const Mine mine = my_sample(n.cohort);
    if (!mine.here) return;
    const Slice s = slice_of(n.shape, mine.sample);
    const float2 scale = load2(n.affine.scale + mine.client * n.affine.stride, s.channel / 2), offset = load2(n.affine.offset + mine.client * n.affine.stride, s.channel / 2);
    float2 v[E];
    load(v, x, s);
    const Moments m = moments_of(v, s);
    keep(n.moments, m, s);
#pragma unroll
    for (int i = 0; i < E; i++) {
        v[i] = normalized(v[i], m, scale, offset);
        if (shortcut && s.has(i)) { const float2 more = load2(shortcut, s.at(i)); v[i].x += more.x; v[i].y += more.y; }
    }
    if (n.after != IDENTITY)
#pragma unroll
        for (int i = 0; i < E; i += 2) apart(phi_of(n.after, both(v[i], v[i + 1])), v[i], v[i + 1]);
    if (y) store(y, v, s);
    if (y16) store(y16, v, s);
}

// d = after'(.) dy from y, the value behind the norm; d, which may be dy, is also the gradient of a shortcut. Where there is no activation behind y is not read. d may be null.
// dx is the gradient in front of before(.), dx16 the same in 16 bits times `scale16`; either may be null. A sample's share in the gradients of scale and
// offset goes to partial[sample][region][2][channels].
template <class T> __device__ __forceinline__ void pull(const GroupNorm& n, const T* x, const T* y, const float* dy, float* d, float* dx, f16* dx16, float scale16, float* partial) {
    const Mine mine = my_sample(n.cohort);
    if (!mine.here) return;
    const Slice s = slice_of(n.shape, mine.sample);
    float2 g[E], v[E];
    load(g, dy, s);
    if (n.after != IDENTITY) {
        load(v, y, s);
        through(n.after, g, v);
    }
    if (d) store(d, g, s);
    load(v, x, s);
    pull_back<IDENTITY>(g, v, n.moments[s.region_group], n.affine, mine.client, partial, n.shape, s);
    through(n.before, g, v);
    if (dx) store(dx, g, s);
    if (!dx16) return;
#pragma unroll
    for (int i = 0; i < E; i++) g[i] = make_float2(scale16 * g[i].x, scale16 * g[i].y);
    store(dx16, g, s);
}

#define GROUP_NORM(BITS, T)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(512) group_norm_apply_##BITS(GroupNorm n, const T* x, const float* shortcut, float* y, f16* y16) { apply(n, x, shortcut, y, y16); } \
    extern "C" __global__ void __launch_bounds__(512) group_norm_pull_##BITS(GroupNorm n, const T* x, const T* y, const float* dy, float* d, float* dx, f16* dx16, float scale16, float* partial) { pull(n, x, y, dy, d, dx, dx16, scale16, partial); }
GROUP_NORM(f32, float)
GROUP_NORM(f16, f16)
