// Where DEQ-MLP's matrix B is put back to after a step: the l1 ball of a radius (||B||_inf <= radius) or the l1 sphere, vector by vector.
//
// The projection of a vector with sizes s is max(s - t, 0) with the signs kept, where sum max(s - t, 0) = radius. Michelot's iteration
// t <- (sum of s > t minus radius) / (how many) rises to that t in finitely many steps; sums are in 64 bits and in one order.
// B is stored [in][out], which is the mathematical B transposed: the ball's vectors are its columns, the reference's sphere takes its rows.
#include "common.cuh"

// VECTORS vectors a block, 256 / VECTORS lanes each; `at(v, i)` is number i of vector v.
template <int VECTORS, bool BESIDE, class At> __device__ __forceinline__ void project(float* b, int vectors, int n, float radius, bool ball, At at) {
    constexpr int LANES = 256 / VECTORS;
    __shared__ double sums[256];
    __shared__ int counts[256];
    // Threads that read neighbours in memory are neighbours.
    const int v = BESIDE ? threadIdx.x % VECTORS : threadIdx.x / LANES, lane = BESIDE ? threadIdx.x / VECTORS : threadIdx.x % LANES, vector = blockIdx.x * VECTORS + v;
    const bool real = vector < vectors;
    auto add_up = [&](double threshold, double& sum, int& count) {
        sum = 0.0;
        count = 0;
        if (real)
            for (int i = lane; i < n; i += LANES) {
                const float size = fabsf(b[at(vector, i)]);
                if (size > threshold) { sum += size; count++; }
            }
        __syncthreads();
        sums[v * LANES + lane] = sum;
        counts[v * LANES + lane] = count;
        __syncthreads();
        sum = 0.0;
        count = 0;
        for (int l = 0; l < LANES; l++) { sum += sums[v * LANES + l]; count += counts[v * LANES + l]; }
    };
    double sum, threshold = -1.0;   // below all sizes
    int count, before = -1;
    add_up(threshold, sum, count);
    const bool inside = !real || (ball && sum <= radius) || !(sum < 1e300);   // what is not finite stays as it is, for others to tell
    for (;;) {
        const bool moved = !inside && count != before;
        if (!__syncthreads_or(moved)) break;
        if (moved) { before = count; threshold = (sum - radius) / count; }
        double next;
        int left;
        add_up(threshold, next, left);
        if (moved && left) { sum = next; count = left; }
    }
    if (inside) return;
    for (int i = lane; i < n; i += LANES) {
        float& x = b[at(vector, i)];
        const float size = (float)fmax((double)fabsf(x) - threshold, 0.0);
        x = x < 0.f ? -size : size;   // a zero that is lengthened goes up
    }
}

// b [clients][rows][columns], clients `stride` numbers apart. A client without samples in this batch keeps its matrix: what is projected twice may differ in a bit.
// Grid: (ceil(columns / 32), clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) project_columns(float* b, Cohort cohort, i64 stride, int rows, int columns, float radius, int ball) {
    if (cohort.spans[blockIdx.y].y == 0) return;
    project<32, true>(b + blockIdx.y * stride, columns, rows, radius, ball, [&](int v, int i) { return (i64)i * columns + v; });
}
// The same for rows. Grid: (ceil(rows / 8), clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) project_rows(float* b, Cohort cohort, i64 stride, int rows, int columns, float radius, int ball) {
    if (cohort.spans[blockIdx.y].y == 0) return;
    project<8, false>(b + blockIdx.y * stride, rows, columns, radius, ball, [&](int v, int i) { return (i64)v * columns + i; });
}
