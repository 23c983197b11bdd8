// An exact product in 32 bits, the one loop behind every kernel that does not use tensor cores.
//
// A block of 256 threads computes TM rows by TN columns, 4 x 4 numbers a thread, TM * TN = 4096. What is multiplied and where it goes is
// told by functions: a(m, k), b(k, n) and store(m, n, sum). They are only asked about what lies inside. Inner sums run in order of k.
// A DISTANCE adds up squared differences instead of products.
#pragma once
#include "common.cuh"

// How consecutive threads should walk when they read a factor: along the dimension that is contiguous in memory.
enum Walk { ALONG_INNER, ALONG_OUTER };
enum Join { PRODUCT, DISTANCE };

template <int TM, int TN, Walk WALK_A, Walk WALK_B, Join JOIN = PRODUCT, class A, class B, class Store>
__device__ __forceinline__ void product(int m0, int n0, int M, int N, int k_begin, int k_end, A a, B b, Store store) {
    static_assert(TM * TN == 4096, "256 threads have 16 numbers each");
    constexpr int DEPTH = 16;
    __shared__ __align__(16) float as[DEPTH][TM + 4];
    __shared__ __align__(16) float bs[DEPTH][TN + 4];
    const int tid = threadIdx.x, column = tid % (TN / 4) * 4, row = tid / (TN / 4) * 4;
    constexpr int AE = DEPTH * TM / 256, BE = DEPTH * TN / 256;
    float acc[4][4] = {}, next_a[AE], next_b[BE];   // the next factors arrive while these are multiplied
    auto k_of_a = [&](int i) { const int e = tid + i * 256; return WALK_A == ALONG_INNER ? e % DEPTH : e / TM; };
    auto m_of_a = [&](int i) { const int e = tid + i * 256; return WALK_A == ALONG_INNER ? e / DEPTH : e % TM; };
    auto k_of_b = [&](int i) { const int e = tid + i * 256; return WALK_B == ALONG_INNER ? e % DEPTH : e / TN; };
    auto n_of_b = [&](int i) { const int e = tid + i * 256; return WALK_B == ALONG_INNER ? e / DEPTH : e % TN; };
    auto fetch = [&](int k0) {
#pragma unroll
        for (int i = 0; i < AE; i++) next_a[i] = m0 + m_of_a(i) < M && k0 + k_of_a(i) < k_end ? a(m0 + m_of_a(i), k0 + k_of_a(i)) : 0.f;
#pragma unroll
        for (int i = 0; i < BE; i++) next_b[i] = n0 + n_of_b(i) < N && k0 + k_of_b(i) < k_end ? b(k0 + k_of_b(i), n0 + n_of_b(i)) : 0.f;
    };
    fetch(k_begin);
    for (int k0 = k_begin; k0 < k_end; k0 += DEPTH) {
#pragma unroll
        for (int i = 0; i < AE; i++) as[k_of_a(i)][m_of_a(i)] = next_a[i];
#pragma unroll
        for (int i = 0; i < BE; i++) bs[k_of_b(i)][n_of_b(i)] = next_b[i];
        __syncthreads();
        if (k0 + DEPTH < k_end) fetch(k0 + DEPTH);
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const float4 u = *(const float4*)&as[k][row], v = *(const float4*)&bs[k][column];
            const float x[4] = {u.x, u.y, u.z, u.w}, y[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float left = JOIN == DISTANCE ? x[i] - y[j] : x[i];
                    acc[i][j] = fmaf(left, JOIN == DISTANCE ? left : y[j], acc[i][j]);
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (m0 + row + i < M && n0 + column + j < N) store(m0 + row + i, n0 + column + j, acc[i][j]);
}
