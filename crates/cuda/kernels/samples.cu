// Sums over a client's samples, in one order: biases, scales and offsets of normalisations; and sums of two tensors.
#include "common.cuh"

__device__ __forceinline__ float number(float v) { return v; }
__device__ __forceinline__ float number(f16 v) { return unpack2(v.bits).x; }

constexpr int LANES = 32;

// out[client][n] = alpha sum over samples and `per` of x[sample][per][n]; clients `stride` numbers apart.
// Grid: (ceil(n / 32), clients), 1024 threads: 32 columns by 32 lanes of rows.
template <class T> __device__ __forceinline__ void sum(const T* x, float* out, const Cohort& cohort, i64 stride, float alpha, int per, int n) {
    const int lane = threadIdx.x >> 5, of = threadIdx.x & 31, column = blockIdx.x * 32 + of, client = blockIdx.y;
    const int2 span = cohort.spans[client];
    __shared__ float each[LANES][32];
    float sum = 0.f;
    if (column < n)
#pragma unroll 4
        for (int row = lane; row < span.y * per; row += LANES) {
            const int index = per == 1 ? row : row / per;
            sum += number(x[((i64)sample_at(cohort, span, index) * per + row - index * per) * n + column]);
        }
    each[lane][of] = sum;
    for (int half = LANES / 2; half; half >>= 1) {
        __syncthreads();
        if (lane < half) each[lane][of] += each[lane + half][of];
    }
    if (lane == 0 && column < n) out[client * stride + column] = alpha * each[0][of];
}
extern "C" __global__ void __launch_bounds__(1024) sum_samples(const float* x, float* out, Cohort cohort, i64 stride, float alpha, int per, int n) { sum(x, out, cohort, stride, alpha, per, n); }
extern "C" __global__ void __launch_bounds__(1024) sum_samples_f16(const f16* x, float* out, Cohort cohort, i64 stride, float alpha, int per, int n) { sum(x, out, cohort, stride, alpha, per, n); }

// out = a x + b y, `n` numbers a sample; out may be either, and out16 (may be null) is `scale` out in 16 bits, for even n.
// Grid: (ceil(n / 512), most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) combine(const float* x, const float* y, float* out, f16* out16, Cohort cohort, float a, float b, float scale, int n) {
    const Mine mine = my_sample(cohort);
    const int pair = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || pair >= n / 2) return;
    const i64 at = mine.sample * (n / 2) + pair;
    const float2 u = load2(x, at), v = load2(y, at), sum = make_float2(fmaf(a, u.x, b * v.x), fmaf(a, u.y, b * v.y));
    if (out) store2(out, at, sum);
    if (out16) store2(out16, at, make_float2(scale * sum.x, scale * sum.y));
}
