// Where a network ends: softmax and cross-entropy, and activations on their own.
#include "common.cuh"

struct Score { float loss; int correct; };   // the mean loss of a client's samples, and how many were right

// dlogits (may be null) is the gradient of the client's mean loss. Labels are the data set's; `indices` says which sample of it is which.
// Grid: clients, 128 threads: a warp a sample, lanes over classes; the client's losses are added in order.
extern "C" __global__ void __launch_bounds__(128) cross_entropy(const float* logits, const int* labels, const int* indices, float* losses, float* dlogits, Score* scores, Cohort cohort, int classes) {
    const int2 span = cohort.spans[blockIdx.x];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    __shared__ int right[4];
    int correct = 0;
    for (int index = warp; index < span.y; index += 4) {
        const int sample = sample_at(cohort, span, index), label = labels[indices[sample]];
        const float* x = logits + (i64)sample * classes;
        float most = -__int_as_float(0x7f800000), total = 0.f;
        int best = 0x7fffffff;
        for (int c = lane; c < classes; c += 32)
            if (x[c] > most) { most = x[c]; best = c; }
        for (int d = 16; d; d >>= 1) {   // the first class among equals
            const float other = __shfl_xor_sync(~0u, most, d);
            const int where = __shfl_xor_sync(~0u, best, d);
            if (other > most || (other == most && where < best)) { most = other; best = where; }
        }
        for (int c = lane; c < classes; c += 32) total += expf(x[c] - most);
        total = warp_sum(total);
        if (lane == 0) losses[sample] = logf(total) + most - x[label];
        correct += best == label;
        if (dlogits)
            for (int c = lane; c < classes; c += 32) dlogits[(i64)sample * classes + c] = (expf(x[c] - most) / total - (c == label)) / span.y;
    }
    if (lane == 0) right[warp] = correct;
    __syncthreads();
    if (threadIdx.x) return;
    double sum = 0.0;
    for (int index = 0; index < span.y; index++) sum += losses[sample_at(cohort, span, index)];
    scores[blockIdx.x] = {span.y ? (float)(sum / span.y) : 0.f, right[0] + right[1] + right[2] + right[3]};
}

// dx = phi'(x) dy from y = phi(x); dx may be dy. Grid: (ceil(n / 256), most samples of a client, clients), 256 threads.
template <int PHI> __device__ __forceinline__ void backward(const float* y, const float* dy, float* dx, const Cohort& cohort, int n) {
    const int2 span = cohort.spans[blockIdx.z];
    const int i = blockIdx.x * 256 + threadIdx.x;
    if ((int)blockIdx.y >= span.y || i >= n) return;
    const i64 at = (i64)sample_at(cohort, span, blockIdx.y) * n + i;
    dx[at] = slope<PHI>(y[at]) * dy[at];
}
extern "C" __global__ void relu_backward(const float* y, const float* dy, float* dx, Cohort cohort, int n) { backward<RELU>(y, dy, dx, cohort, n); }
extern "C" __global__ void softplus_backward(const float* y, const float* dy, float* dx, Cohort cohort, int n) { backward<SOFTPLUS_EXACT>(y, dy, dx, cohort, n); }
