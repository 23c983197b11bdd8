// y = norm(x), and the gradient in front of norm(phi(.)) from phi's values. See norm.cuh for the launch.
#include "norm.cuh"

struct GroupNorm {
    Affine affine;
    Moments* moments;   // [samples][regions][groups]; may be null in the forward pass
    Cohort cohort;
    Shape shape;
};

template <class IN, class OUT> __device__ __forceinline__ void forward(const GroupNorm& n, const IN* x, OUT* y) {
    const Mine mine = my_sample(n.cohort);
    if (!mine.here) return;
    const Slice s = slice_of(n.shape, mine.sample);
    const float2 scale = load2(n.affine.scale + mine.client * n.affine.stride, s.channel / 2), offset = load2(n.affine.offset + mine.client * n.affine.stride, s.channel / 2);
    float2 v[E];
    load(v, x, s);
    const Moments m = moments_of(v, s);
    keep(n.moments, m, s);
#pragma unroll
    for (int i = 0; i < E; i++) v[i] = normalized(v[i], m, scale, offset);
    store(y, v, s);
}

// dx may be dy.
template <int PHI, class T> __device__ __forceinline__ void backward(const GroupNorm& n, const T* x, const T* dy, T* dx, float* partial) {
    const Mine mine = my_sample(n.cohort);
    if (!mine.here) return;
    const Slice s = slice_of(n.shape, mine.sample);
    float2 v[E], d[E];
    load(v, x, s);
    load(d, dy, s);
    pull_back<PHI>(d, v, n.moments[s.region_group], n.affine, mine.client, partial, n.shape, s);
    store(dx, d, s);
}

extern "C" __global__ void __launch_bounds__(512, 2) group_norm_f16(GroupNorm n, const f16* x, f16* y) { forward(n, x, y); }
extern "C" __global__ void __launch_bounds__(512, 2) group_norm_f32(GroupNorm n, const float* x, float* y) { forward(n, x, y); }

#define BACKWARD(NAME, PHI, T)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(512) NAME(GroupNorm n, const T* x, const T* dy, T* dx, float* partial) { backward<PHI>(n, x, dy, dx, partial); }
BACKWARD(group_norm_backward_f16, IDENTITY, f16)
BACKWARD(group_norm_backward_f16_relu, RELU, f16)
BACKWARD(group_norm_backward_f16_softplus, SOFTPLUS, f16)
BACKWARD(group_norm_backward_f32, IDENTITY, float)
BACKWARD(group_norm_backward_f32_relu, RELU, float)
BACKWARD(group_norm_backward_f32_softplus, SOFTPLUS_EXACT, float)
