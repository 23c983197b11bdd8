// Arithmetic on flat parameters of a cohort: `lanes` of them, each `stride` numbers from the next. A stride of 0 is one vector for all lanes.
// Products and sums are rounded one by one, like the CPU's.
#include "common.cuh"

// Every number of this block's stretch of its lane. Grid: (ceil(n / 1024), lanes), 256 threads.
template <class F> __device__ __forceinline__ void each_number(i64 n, F f) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const i64 i = ((i64)blockIdx.x * 4 + k) * 256 + threadIdx.x;
        if (i < n) f(i);
    }
}

// out = a + factor b; b may be null: then a copy. out may be a or b where it has its stride.
extern "C" __global__ void __launch_bounds__(256) lanes_plus(float* out, const float* a, const float* b, i64 out_stride, i64 a_stride, i64 b_stride, i64 n, float factor) {
    const i64 lane = blockIdx.y;
    each_number(n, [&](i64 i) {
        const float left = a[lane * a_stride + i];
        out[lane * out_stride + i] = b ? __fadd_rn(left, __fmul_rn(factor, b[lane * b_stride + i])) : left;
    });
}

// The same with a factor for every lane.
extern "C" __global__ void __launch_bounds__(256) lanes_plus_each(float* out, const float* a, const float* b, const float* factors, i64 out_stride, i64 a_stride, i64 b_stride, i64 n) {
    const i64 lane = blockIdx.y;
    const float factor = factors[lane];
    each_number(n, [&](i64 i) { out[lane * out_stride + i] = __fadd_rn(a[lane * a_stride + i], __fmul_rn(factor, b[lane * b_stride + i])); });
}

// out = value. Grid as above.
extern "C" __global__ void __launch_bounds__(256) lanes_fill(float* out, i64 stride, i64 n, float value) {
    each_number(n, [&](i64 i) { out[blockIdx.y * stride + i] = value; });
}

// out = factor a. Grid as above; out may be a where it has its stride.
extern "C" __global__ void __launch_bounds__(256) lanes_scale(float* out, const float* a, i64 out_stride, i64 a_stride, i64 n, float factor) {
    const i64 lane = blockIdx.y;
    each_number(n, [&](i64 i) { out[lane * out_stride + i] = factor * a[lane * a_stride + i]; });
}

// bad[lane] = 1 where a number of the lane is not finite; otherwise it stays as it is. Grid as above.
extern "C" __global__ void __launch_bounds__(256) lanes_finite(const float* a, i64 stride, i64 n, int* bad) {
    bool found = false;
    each_number(n, [&](i64 i) { found |= !isfinite(a[blockIdx.y * stride + i]); });
    if (__syncthreads_or(found) && threadIdx.x == 0) bad[blockIdx.y] = 1;
}

// partial[lane][block] = the sum over the block's 256 threads, always in the same order.
__device__ __forceinline__ void share_of_block(double sum, double* partial) {
    __shared__ double each[256];
    each[threadIdx.x] = sum;
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if ((int)threadIdx.x < half) each[threadIdx.x] += each[threadIdx.x + half];
    }
    if (threadIdx.x == 0) partial[(i64)blockIdx.y * gridDim.x + blockIdx.x] = each[0];
}

// partial[lane][block] = the block's share of |a - b|^2, in 64 bits; b may be null. Grid: (blocks, lanes), 256 threads.
extern "C" __global__ void __launch_bounds__(256) lanes_norm_partial(const float* a, const float* b, double* partial, i64 a_stride, i64 b_stride, i64 n) {
    double sum = 0.0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) {
        const double d = (double)a[blockIdx.y * a_stride + i] - (b ? (double)b[blockIdx.y * b_stride + i] : 0.0);
        sum += d * d;
    }
    share_of_block(sum, partial);
}

// partial[lane][block] = the block's share of <a, b>, in 64 bits. Grid: (blocks, lanes), 256 threads.
extern "C" __global__ void __launch_bounds__(256) lanes_dot_partial(const float* a, const float* b, double* partial, i64 a_stride, i64 b_stride, i64 n) {
    double sum = 0.0;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < n; i += (i64)gridDim.x * 256) sum += (double)a[blockIdx.y * a_stride + i] * (double)b[blockIdx.y * b_stride + i];
    share_of_block(sum, partial);
}

// sums[lane] = the sum of the shares of `blocks` blocks in their order. Grid: ceil(lanes / 128), 128 threads.
extern "C" __global__ void lanes_sum(const double* partial, double* sums, int blocks, int lanes) {
    const int lane = blockIdx.x * 128 + threadIdx.x;
    if (lane >= lanes) return;
    double sum = 0.0;
    for (int b = 0; b < blocks; b++) sum += partial[(i64)lane * blocks + b];
    sums[lane] = sum;
}

// norms[lane] = |a - b|, from the shares of `blocks` blocks in their order. Grid: ceil(lanes / 128), 128 threads.
extern "C" __global__ void lanes_norm(const double* partial, double* norms, int blocks, int lanes) {
    const int lane = blockIdx.x * 128 + threadIdx.x;
    if (lane >= lanes) return;
    double sum = 0.0;
    for (int b = 0; b < blocks; b++) sum += partial[(i64)lane * blocks + b];
    norms[lane] = sqrt(sum);
}
