// What predictions are judged by.
#pragma once
#include "common.cuh"

struct Score { double loss; int correct, predictions; };   // the mean loss of a client's predictions, how many were right, and how many there were

// The largest of a row and where it is, the first among equals; a warp a row, lanes over classes.
struct Largest { float value; int at; };

__device__ __forceinline__ Largest largest_of(const float* x, int classes) {
    Largest most = {-__int_as_float(0x7f800000), 0x7fffffff};
    for (int c = threadIdx.x & 31; c < classes; c += 32)
        if (x[c] > most.value) most = {x[c], c};
    for (int d = 16; d; d >>= 1) {
        const float other = __shfl_xor_sync(~0u, most.value, d);
        const int where = __shfl_xor_sync(~0u, most.at, d);
        if (other > most.value || (other == most.value && where < most.at)) most = {other, where};
    }
    return most;
}
// sum of exp(x - largest)
__device__ __forceinline__ float exponentials(const float* x, float largest, int classes) {
    float total = 0.f;
    for (int c = threadIdx.x & 31; c < classes; c += 32) total += expf(x[c] - largest);
    return warp_sum(total);
}
