// Gradient steps and the mean over clients, on flat parameters: clients `stride` numbers apart.
#include "common.cuh"

// theta <- theta - rate (gradient + (strength theta + offset) / share) in one pass, with a 16-bit copy for the convolutions if wanted. A proximal term
// strength / 2 |theta - anchor|^2 is an offset of -strength anchor; clients' offsets are `offset_stride` apart, 0 is one for all. The share is
// counts[client], or 1 where `counts` is null: the gradient is of a mean over so many predictions, the pull of one of them. `offset`, `copy` and `counts`
// may be null. Where the rate changes from step to step it is rates[*step][client]; `rates` is null where it is `rate` in all of them. A client without samples in this batch keeps its theta. Grid: (ceil(n / 1024), clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) descend(float* theta, const float* gradient, const float* offset, f16* copy, Cohort cohort, const int* counts, const float* rates, const int* step, i64 stride, i64 offset_stride, i64 n, float rate, float strength) {
    if (cohort.spans[blockIdx.y].y == 0) return;
    // rate (gradient + pull / share) = (rate / share) (share gradient + pull)
    const bool pulled = offset || strength != 0.f;
    const int share = pulled && counts && counts[blockIdx.y] > 1 ? counts[blockIdx.y] : 1;
    const float taken = rates ? rates[(i64)*step * gridDim.y + blockIdx.y] : rate;
    const float far = (float)((double)taken / share), kept = 1.f - __fmul_rn(far, strength);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const i64 i = ((i64)blockIdx.x * 4 + k) * 256 + threadIdx.x, at = blockIdx.y * stride + i;
        if (i >= n) return;
        float force = __fmul_rn((float)share, gradient[at]);
        if (offset) force = __fadd_rn(force, offset[blockIdx.y * offset_stride + i]);
        const float moved = fmaf(-far, force, __fmul_rn(kept, theta[at]));
        theta[at] = moved;
        if (copy) copy[at] = half_of(moved);
    }
}

// mean[i] = sum of weight[client] theta[client][i] / sum of weights, in the clients' order and in 64 bits, like the CPU's, to the bit.
// Grid: ceil(n / 256), 256 threads.
extern "C" __global__ void mean_of_clients(const float* theta, const double* weight, float* mean, i64 stride, i64 n, int clients) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    double sum = 0.0, total = 0.0;
    for (int c = 0; c < clients; c++) {
        sum = __dadd_rn(sum, __dmul_rn(weight[c], (double)theta[c * stride + i]));   // the CPU does not fuse these
        total += weight[c];
    }
    mean[i] = (float)(sum / total);
}
