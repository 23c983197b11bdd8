// Gradient steps with ADMM's pull, the dual step and the mean, on flat parameters: clients `stride` numbers apart.
#include "common.cuh"

// theta <- theta - rate (gradient + dual + rho (theta - anchor)) in one pass, with a 16-bit copy for the convolutions if wanted. `dual` and
// `anchor` may be null; the anchor is one for all. A client without samples in this batch keeps its theta.
// Grid: (ceil(n / 1024), clients), 256 threads.
extern "C" __global__ void descend(float* theta, const float* gradient, const float* dual, const float* anchor, f16* copy, Cohort cohort, i64 stride, i64 n, float rate, float rho) {
    if (cohort.spans[blockIdx.y].y == 0) return;
    for (int k = 0; k < 4; k++) {
        const i64 i = ((i64)blockIdx.x * 4 + k) * 256 + threadIdx.x, at = blockIdx.y * stride + i;
        if (i >= n) return;
        const float p = theta[at];
        float force = gradient[at];
        if (dual) force += dual[at];
        if (anchor) force = fmaf(rho, p - anchor[i], force);
        const float moved = fmaf(-rate, force, p);
        theta[at] = moved;
        if (copy) copy[at] = half_of(moved);
    }
}

// dual <- dual + rho (theta - anchor). Grid as above.
extern "C" __global__ void dual_step(float* dual, const float* theta, const float* anchor, i64 stride, i64 n, float rho) {
    for (int k = 0; k < 4; k++) {
        const i64 i = ((i64)blockIdx.x * 4 + k) * 256 + threadIdx.x, at = blockIdx.y * stride + i;
        if (i < n) dual[at] = fmaf(rho, theta[at] - anchor[i], dual[at]);
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

// partial[client][block] = the block's share of |theta - anchor|^2, in 64 bits. Grid: (blocks, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) gap_look(const float* theta, const float* anchor, double* partial, i64 stride, i64 n) {
    double sum = 0.0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
        const double d = (double)theta[blockIdx.y * stride + i] - anchor[i];
        sum += d * d;
    }
    __shared__ double each[256];
    each[threadIdx.x] = sum;
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if ((int)threadIdx.x < half) each[threadIdx.x] += each[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partial[(i64)blockIdx.y * gridDim.x + blockIdx.x] = each[0];
}
// norms[client] = |theta - anchor|. Grid: ceil(clients / 128), 128 threads.
extern "C" __global__ void gap_norm(const double* partial, double* norms, int blocks, int clients) {
    const int client = blockIdx.x * 128 + threadIdx.x;
    if (client >= clients) return;
    double sum = 0.0;
    for (int b = 0; b < blocks; b++) sum += partial[(i64)client * blocks + b];
    norms[client] = sqrt(sum);
}
