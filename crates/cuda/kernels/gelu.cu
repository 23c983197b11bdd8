// GELU and its gradient, which needs x. `n`, even, numbers a sample.
// Grid: (ceil(n / 1024), most samples of a client, clients), 256 threads.
#include "gelu.cuh"

// Two pairs a thread; `f` gets each pair's place.
template <class F> __device__ __forceinline__ void each_pair(const Cohort& cohort, int n, F f) {
    const Mine mine = my_sample(cohort);
    if (!mine.here) return;
#pragma unroll
    for (int k = 0; k < 2; k++) {
        const int pair = blockIdx.x * 512 + k * 256 + threadIdx.x;
        if (pair < n / 2) f(mine.sample * (n / 2) + pair);
    }
}

// dx may be dy.
#define GELU(BITS, T, F)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) gelu_##BITS(const T* x, T* y, Cohort cohort, int n) {                            \
        each_pair(cohort, n, [&](i64 at) { const float2 v = load2(x, at); store2(y, at, make_float2(gelu##F(v.x), gelu##F(v.y))); });  \
    }                                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gelu_backward_##BITS(const T* x, const T* dy, T* dx, Cohort cohort, int n) {     \
        each_pair(cohort, n, [&](i64 at) {                                                                                             \
            const float2 v = load2(x, at), d = load2(dy, at);                                                                          \
            store2(dx, at, make_float2(gelu_slope##F(v.x) * d.x, gelu_slope##F(v.y) * d.y));                                           \
        });                                                                                                                            \
    }
GELU(f32, float, )
GELU(f16, f16, _fast)
