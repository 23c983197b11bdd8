// Windows of max pooling: 3 x 3, moved by 2.
#pragma once
#include "common.cuh"

// Rows or columns of a window: SAME padding of an even size puts one beyond the end, of an odd size one at each end.
__device__ __forceinline__ int window_begin(int at, int size) { return 2 * at - (size & 1); }

template <int V> struct alignas(V) Bytes { u8 v[V]; };
