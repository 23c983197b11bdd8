// The stream of a transformer: h <- h + drop(branch) + injection, and layer normalisation of the result, in one pass; and both gradients.
// A position has 64 numbers, two a lane. Grid: (1, most samples of a client, clients), 256 threads: a warp a position.
#include "common.cuh"

constexpr int WIDTH = 64;
constexpr float EPSILON = 1e-5f;

struct LayerNorm {
    const float* scale;    // [clients][64], clients `stride` numbers apart
    const float* offset;
    float2* moments;       // [samples][length] {mean, 1 / deviation}; may be null in the forward pass
    const u8* mask;        // dropout of the branch: [samples] `mask_stride` bytes apart, [length][64] of 0 or 1; may be null
    Cohort cohort;
    i64 stride, mask_stride;
    float kept;            // what a kept number is multiplied by
    int length;
};

// The branch's factors at a position's pair of numbers.
__device__ __forceinline__ float2 drop(const LayerNorm& n, i64 sample, int pair) {
    if (!n.mask) return make_float2(1.f, 1.f);
    const u8* mask = n.mask + sample * n.mask_stride + 2 * pair;
    return make_float2(mask[0] ? n.kept : 0.f, mask[1] ? n.kept : 0.f);
}

// h, branch and injection may be null. `sum` (may be null, or h) gets what was added up; y and y16 (either may be null) its normalisation. Where both are, nothing
// is normalised, and scale and offset may be null.
template <class T> __device__ __forceinline__ void forward(const LayerNorm& n, const float* h, const T* branch, const float* injection, float* sum, float* y, f16* y16) {
    const Mine mine = my_sample(n.cohort);
    if (!mine.here) return;
    const int lane = threadIdx.x & 31;
    const bool normed = y || y16;
    const float2 none = make_float2(0.f, 0.f);
    const float2 scale = normed ? load2(n.scale + mine.client * n.stride, lane) : none, offset = normed ? load2(n.offset + mine.client * n.stride, lane) : none;
    for (int t = threadIdx.x >> 5; t < n.length; t += 8) {
        const int pair = t * (WIDTH / 2) + lane;
        const i64 at = mine.sample * n.length * (WIDTH / 2) + pair;
        float2 v = h ? load2(h, at) : make_float2(0.f, 0.f);
        if (branch) {
            const float2 b = load2(branch, at), f = drop(n, mine.sample, pair);
            v.x = fmaf(f.x, b.x, v.x); v.y = fmaf(f.y, b.y, v.y);
        }
        if (injection) { const float2 i = load2(injection, at); v.x += i.x; v.y += i.y; }
        if (sum) store2(sum, at, v);
        if (!normed) continue;
        const float mean = warp_sum(v.x + v.y) / WIDTH;
        v.x -= mean; v.y -= mean;
        const float inverse = 1.f / sqrtf(warp_sum(v.x * v.x + v.y * v.y) / WIDTH + EPSILON);
        if (n.moments && lane == 0) n.moments[mine.sample * n.length + t] = make_float2(mean, inverse);
        const float2 out = make_float2(v.x * inverse * scale.x + offset.x, v.y * inverse * scale.y + offset.y);
        if (y) store2(y, at, out);
        if (y16) store2(y16, at, out);
    }
}

// dh = direct + the gradient in front of the norm of alpha dy, which is that of `sum`; direct may be null, and dh may be direct. Where dy is null nothing was
// normalised. dbranch (may be null) = scale16 times the branch's; dinjection (may be null) += dh. This sample's share in the gradients of scale and offset goes to
// partial[sample][2][64] (may be null).
template <class T, class B> __device__ __forceinline__ void backward(const LayerNorm& n, const float* sum, const T* dy, const float* direct, float* dh, B* dbranch, float* dinjection, float* partial, float alpha, float scale16) {
    const Mine mine = my_sample(n.cohort);
    if (!mine.here) return;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float2 scale = dy ? load2(n.scale + mine.client * n.stride, lane) : make_float2(0.f, 0.f);
    float4 shares = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int t = warp; t < n.length; t += 8) {
        const int pair = t * (WIDTH / 2) + lane;
        const i64 at = mine.sample * n.length * (WIDTH / 2) + pair;
        float2 out = direct ? load2(direct, at) : make_float2(0.f, 0.f);
        if (dy) {
            const float2 m = n.moments[mine.sample * n.length + t];
            const float2 v = load2(sum, at), g = load2(dy, at);
            const float2 x = make_float2((v.x - m.x) * m.y, (v.y - m.x) * m.y), d = make_float2(alpha * g.x, alpha * g.y);
            shares.x += d.x * x.x; shares.y += d.y * x.y; shares.z += d.x; shares.w += d.y;
            const float2 w = make_float2(scale.x * d.x, scale.y * d.y);
            const float plain = warp_sum(w.x + w.y) / WIDTH, along = warp_sum(w.x * x.x + w.y * x.y) / WIDTH;
            out.x += m.y * (w.x - plain - x.x * along);
            out.y += m.y * (w.y - plain - x.y * along);
        }
        if (dh) store2(dh, at, out);
        if (dinjection) { const float2 old = load2(dinjection, at); store2(dinjection, at, make_float2(old.x + out.x, old.y + out.y)); }
        if (dbranch) { const float2 f = drop(n, mine.sample, pair); store2(dbranch, at, make_float2(scale16 * f.x * out.x, scale16 * f.y * out.y)); }
    }
    if (!dy || !partial) return;
    __shared__ float4 each[8][32];
    each[warp][lane] = shares;
    __syncthreads();
    if (warp) return;
    for (int w = 1; w < 8; w++) {
        const float4 more = each[w][lane];
        shares.x += more.x; shares.y += more.y; shares.z += more.z; shares.w += more.w;
    }
    store2(partial + mine.sample * 2 * WIDTH, lane, make_float2(shares.x, shares.y));
    store2(partial + (mine.sample * 2 + 1) * WIDTH, lane, make_float2(shares.z, shares.w));
}

#define LAYER_NORM(BITS, T)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) layer_norm_##BITS(LayerNorm n, const float* h, const T* branch, const float* injection, float* sum, float* y, f16* y16) { forward(n, h, branch, injection, sum, y, y16); }
#define LAYER_NORM_BACKWARD(NAME, T, B)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) NAME(LayerNorm n, const float* sum, const T* dy, const float* direct, float* dh, B* dbranch, float* dinjection, float* partial, float alpha, float scale16) { \
        backward(n, sum, dy, direct, dh, dbranch, dinjection, partial, alpha, scale16);                                                 \
    }
LAYER_NORM(f32, float)
LAYER_NORM(f16, f16)
LAYER_NORM_BACKWARD(layer_norm_backward_f32, float, float)
LAYER_NORM_BACKWARD(layer_norm_backward_f16, f16, f16)
LAYER_NORM_BACKWARD(layer_norm_backward_to_f16, float, f16)   // where a stack of layers ends: what comes is not rounded yet
