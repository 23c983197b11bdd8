// The outer half of DEQ-ResNet's cell, g(z; u) = GN3(phi(z + GN2(u + t))) with t = conv_b(GN1(phi(conv_a(z)))), and its gradients.
// Both normalisations work group by group, so one block takes a slice through all of it. See norm.cuh for the launch.
#include "norm.cuh"

struct Outer {
    Affine second, third;
    Moments* moments[2];   // [samples][regions][groups] each; null in the forward pass if nobody differentiates
    Cohort cohort;
    Shape shape;
};

// `image` is g(z; u). `sum` (u + t) and `activated` (phi(...)) are what the gradients need; all three may be null, and `sum` may be `t`.
template <int PHI> __device__ __forceinline__ void forward(const Outer& o, const float* t, const float* u, const float* z, float* image, float* sum, float* activated) {
    const Mine mine = my_sample(o.cohort);
    if (!mine.here) return;
    const Slice s = slice_of(o.shape, mine.sample);
    auto of = [&](const float* p, const Affine& a) { return load2(p + mine.client * a.stride, s.channel / 2); };
    float2 v[E];
    load(v, t, s);
#pragma unroll
    for (int i = 0; i < E; i++)
        if (s.has(i)) { const float2 a = load2(u, s.at(i)); v[i].x += a.x; v[i].y += a.y; }
    if (sum) store(sum, v, s);
    const Moments second = moments_of<0>(v, s);
    const float2 scale2 = of(o.second.scale, o.second), offset2 = of(o.second.offset, o.second);
#pragma unroll
    for (int i = 0; i < E; i++)
        if (s.has(i)) {
            const float2 a = load2(z, s.at(i)), b = normalized(v[i], second, scale2, offset2);
            v[i] = make_float2(phi<PHI>(a.x + b.x), phi<PHI>(a.y + b.y));
        }
    if (activated) store(activated, v, s);
    const Moments third = moments_of<1>(v, s);
    keep(o.moments[0], second, s);
    keep(o.moments[1], third, s);
    if (!image) return;
    const float2 scale3 = of(o.third.scale, o.third), offset3 = of(o.third.offset, o.third);
#pragma unroll
    for (int i = 0; i < E; i++) v[i] = normalized(v[i], third, scale3, offset3);
    store(image, v, s);
}

// dz gets the gradient on the direct way, du that of u and of t; du16 = `scale` du in 16 bits, for the convolutions; dz and du16 may be null.
template <int PHI> __device__ __forceinline__ void backward(const Outer& o, const float* dimage, const float* sum, const float* activated, float* dz, float* du, f16* du16, float scale, float* partial2, float* partial3) {
    const Mine mine = my_sample(o.cohort);
    if (!mine.here) return;
    const Slice s = slice_of(o.shape, mine.sample);
    float2 v[E], d[E];
    load(v, activated, s);
    load(d, dimage, s);
    pull_back<PHI>(d, v, o.moments[1][s.region_group], o.third, mine.client, partial3, o.shape, s);
    // Beyond the last pixel there is nothing to add up.
#pragma unroll
    for (int i = 0; i < E; i++)
        if (!s.has(i)) d[i] = make_float2(0.f, 0.f);
    if (dz) store(dz, d, s);
    load(v, sum, s);
    pull_back<IDENTITY>(d, v, o.moments[0][s.region_group], o.second, mine.client, partial2, o.shape, s);
    store(du, d, s);
    if (!du16) return;
#pragma unroll
    for (int i = 0; i < E; i++) d[i] = make_float2(scale * d[i].x, scale * d[i].y);
    store(du16, d, s);
}

#define OUTER(NAME, PHI)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(512, 2) NAME(Outer o, const float* t, const float* u, const float* z, float* image, float* sum, float* activated) { \
        forward<PHI>(o, t, u, z, image, sum, activated);                                                                                \
    }                                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(512) NAME##_backward(Outer o, const float* dimage, const float* sum, const float* activated, float* dz, float* du, f16* du16, float scale, float* partial2, float* partial3) { \
        backward<PHI>(o, dimage, sum, activated, dz, du, du16, scale, partial2, partial3);                                              \
    }
OUTER(outer_relu, RELU)
OUTER(outer_softplus, SOFTPLUS)
OUTER(outer_softplus_exact, SOFTPLUS_EXACT)
