// Kernels that are wrong, each in one way, and one that is right: what the stand-in says of them is checked by faults.cpp.
#include "tensor_core.cuh"

extern "C" __global__ void right(const float* x, float* y, int n) {
    __shared__ float each[64];
    const int i = blockIdx.x * 64 + threadIdx.x;
    each[threadIdx.x] = i < n ? x[i] : 0.f;
    __syncthreads();
    const float sum = warp_sum(each[63 - threadIdx.x]);
    if (threadIdx.x % 32 == 0) y[blockIdx.x * 2 + threadIdx.x / 32] = sum;
}
extern "C" __global__ void reads(const float* x, float* y, i64 at) { *y = x[at]; }
extern "C" __global__ void writes(float* y, i64 at) { y[at] = 1.f; }
extern "C" __global__ void unaligned(const float* x, float4* y) { *y = *(const float4*)(x + 1); }
extern "C" __global__ void beyond_an_array(float* y, int at) {
    __shared__ float each[4];
    each[at] = 1.f;
    *y = each[0];
}
extern "C" __global__ void beside_an_array(float* y, int at) {
    __shared__ float each[4];
    float* first = each;
    first[at] = 1.f;
    *y = first[0];
}
extern "C" __global__ void beyond_dynamic(int at) {
    extern __shared__ float memory[];
    memory[at] = 1.f;
}
extern "C" __global__ void for_ever() {
    if (threadIdx.x < 16) __syncthreads();
    else __syncwarp();
}
extern "C" __global__ void at_other_barriers() {
    if (threadIdx.x < 32) __syncthreads();
    else __syncthreads_or(1);
}
extern "C" __global__ void without_barrier(float* y) {
    __shared__ float each[64];
    each[threadIdx.x] = 1.f;
    y[threadIdx.x] = each[63 - threadIdx.x];
}
extern "C" __global__ void too_early(const float* x, float* y) {
    extern __shared__ __align__(16) float memory[];
    copy16(shared_address(memory), x, true);
    copies_commit();
    y[0] = memory[0];
    copies_wait<0>();
    y[1] = memory[0];
}
extern "C" __global__ void by_the_last(int* y) { *y = blockIdx.x; }
