// Global average pooling, [pixels][C] -> [C], C even. Blocks of 256 threads: 32 pairs of channels by 8 rows of pixels, which are added in order.
// Grid: (ceil(C / 64), most samples of a client, clients).
#include "common.cuh"

template <class T> __device__ __forceinline__ void forward(const T* x, float* y, const Cohort& cohort, int pixels, int C) {
    const Mine mine = my_sample(cohort);
    const int lane = threadIdx.x & 31, row = threadIdx.x >> 5, pair = blockIdx.x * 32 + lane;
    if (!mine.here) return;
    __shared__ float2 rows[8][32];
    float2 sum = make_float2(0.f, 0.f);
    if (pair < C / 2)
        for (int p = row; p < pixels; p += 8) {
            const float2 v = load2(x, (mine.sample * pixels + p) * (C / 2) + pair);
            sum.x += v.x; sum.y += v.y;
        }
    rows[row][lane] = sum;
    __syncthreads();
    if (row || pair >= C / 2) return;
    for (int r = 1; r < 8; r++) { sum.x += rows[r][lane].x; sum.y += rows[r][lane].y; }
    store2(y, mine.sample * (C / 2) + pair, make_float2(sum.x / pixels, sum.y / pixels));
}
extern "C" __global__ void __launch_bounds__(256) mean_pool_f32(const float* x, float* y, Cohort cohort, int pixels, int C) { forward(x, y, cohort, pixels, C); }
extern "C" __global__ void __launch_bounds__(256) mean_pool_f16(const f16* x, float* y, Cohort cohort, int pixels, int C) { forward(x, y, cohort, pixels, C); }

// dx = dy / pixels for every pixel.
extern "C" __global__ void __launch_bounds__(256) mean_pool_backward(const float* dy, float* dx, Cohort cohort, int pixels, int C) {
    const Mine mine = my_sample(cohort);
    const int row = threadIdx.x >> 5, pair = blockIdx.x * 32 + (threadIdx.x & 31);
    if (!mine.here || pair >= C / 2) return;
    const float2 d = load2(dy, mine.sample * (C / 2) + pair), each = make_float2(d.x / pixels, d.y / pixels);
    for (int p = row; p < pixels; p += 8) store2(dx, (mine.sample * pixels + p) * (C / 2) + pair, each);
}
