// The MLP of a transformer's layer, gelu(x W1 + b1) W2 + b2 over positions, 64 -> 256 -> 64, as warps compute it: 16 positions each, in registers. 16-bit factors, 32-bit sums.
#pragma once
#include "gelu.cuh"
#include "tensor_core.cuh"

constexpr int WIDTH = 64, INSIDE = 256, ROWS = 64;
constexpr int NARROW = WIDTH + 8, WIDE = INSIDE + 8;   // from row to row in shared memory: eight rows of 16 bytes meet in no bank

// Rows of the left factor, 16 of them, by 16 numbers along which is added up; the right one's likewise, rows `first`... being columns of the result.
__device__ __forceinline__ void left(u32 (&r)[4], const f16* x, int pitch, int first, int from) {
    const int lane = threadIdx.x & 31;
    fragment(r, shared_address(x + (first + (lane & 15)) * pitch + from + (lane >> 4) * 8));
}
__device__ __forceinline__ void right(u32 (&r)[4], const f16* x, int pitch, int first, int from) {
    const int lane = threadIdx.x & 31;
    fragment(r, shared_address(x + (first + (lane & 7) + ((lane >> 4) << 3)) * pitch + from + (lane >> 3 & 1) * 8));
}
// Sums of 16 x 16 as a left factor.
__device__ __forceinline__ void narrowed(u32 (&r)[4], const float (&one)[4], const float (&two)[4]) {
    r[0] = pack2(one[0], one[1]); r[1] = pack2(one[2], one[3]);
    r[2] = pack2(two[0], two[1]); r[3] = pack2(two[2], two[3]);
}

// Row and column, and both numbers, of every pair of a warp's 16 x 64 sums.
template <class F> __device__ __forceinline__ void each_pair(const float (&sums)[8][4], int first, F f) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) f(first + lane / 4 + h * 8, n * 8 + 2 * (lane & 3), sums[n][2 * h], sums[n][2 * h + 1]);
}

// out += gelu(a W1 + b1) W2 over half of the inside, which is computed 16 numbers at a time and never written anywhere.
__device__ __forceinline__ void add_mlp(float (&out)[8][4], const u32 (&a)[4][4], const f16* w1, const f16* w2, const float* b1, int half) {
    const int lane = threadIdx.x & 31;
#pragma unroll 2
    for (int h = half * (INSIDE / 2); h < (half + 1) * (INSIDE / 2); h += 16) {
        float s[2][4] = {};
        u32 b[4], inside[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            right(b, w1, NARROW, h, k * 16);
            multiply(s[0], a[k], b[0], b[1]);
            multiply(s[1], a[k], b[2], b[3]);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 bias = load2(b1, (h + n * 8) / 2 + (lane & 3));
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = gelu_fast(s[n][e] + (e & 1 ? bias.y : bias.x));
        }
        narrowed(inside, s[0], s[1]);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            right(b, w2, WIDE, n * 16, h);
            multiply(out[2 * n], inside, b[0], b[1]);
            multiply(out[2 * n + 1], inside, b[2], b[3]);
        }
    }
}
