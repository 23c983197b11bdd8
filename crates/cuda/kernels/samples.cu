// Sums over a client's samples, in their order: biases of dense layers, scales and offsets of normalisations.
#include "common.cuh"

// out[client][n] = alpha sum over samples and `per` of x[sample][per][n]; clients `stride` numbers apart. Grid: (ceil(n / 128), clients), 128 threads.
extern "C" __global__ void sum_samples(const float* x, float* out, Cohort cohort, i64 stride, float alpha, int per, int n) {
    const int column = blockIdx.x * 128 + threadIdx.x, client = blockIdx.y;
    if (column >= n) return;
    const int2 span = cohort.spans[client];
    float sum = 0.f;
    for (int index = 0; index < span.y; index++) {
        const float* row = x + (i64)sample_at(cohort, span, index) * per * n + column;
        for (int part = 0; part < per; part++) sum += row[(i64)part * n];
    }
    out[client * stride + column] = alpha * sum;
}
