// Attention of texts to their own past, per head softmax(Q K^T / 4) V with 16 numbers a head; padding and the future are blocked.
// A blocked score is -1e4, as on the CPU, so that a query which may see nothing at all (padding in front) looks at all keys alike, the future too.
#pragma once
#include "text.cuh"

constexpr int EACH = 16, MOST = 128;   // numbers of a head; the longest text
constexpr float BLOCKED = -1e4f, SCALE = 0.25f;

template <class T> struct Attention {
    const T *q, *k, *v;    // a position's numbers of all heads are side by side; positions `row` numbers apart, samples length * row
    float2* sums;          // [samples][heads][length] {largest score, 1 / sum}
    Text text;
    Cohort cohort;
    int row;
};

// The position of the first symbol that is not padding: queries before it may see nothing. Also copies which symbols are padding.
__device__ __forceinline__ int first_seen(const int* symbols, int length, u8* padding) {
    __shared__ int first;
    if (threadIdx.x == 0) first = length;
    __syncthreads();
    for (int t = threadIdx.x; t < length; t += blockDim.x) {
        padding[t] = symbols[t] == 0;
        if (symbols[t]) atomicMin(&first, t);   // of integers: the order does not matter
    }
    __syncthreads();
    return first;
}
