// The factors of a block's product on their way to shared memory, for convolutions on tensor cores.
//
// A tile is BM pixels and BN output channels, by 64 of the 9 CI inner numbers: rows of 128 bytes whose eight 16-byte chunks are permuted by
// `chunk ^ (row % 8)`, so that neither the copies in nor the fragments out meet in a bank; it is also the order wgmma knows as its 128-byte
// swizzle. An image's border costs nothing: taps outside are copies of zero bytes.
#pragma once
#include "conv.cuh"
#include "tensor_core.cuh"

template <int BM, int BN, int THREADS> struct Tiles {
    static constexpr int ROWS = THREADS / 8, AR = BM / ROWS, BR = BN / ROWS, BYTES = (BM + BN) * 128;   // eight threads copy a row
    Pixel pixel[AR];
    const f16* w;
    int n0, row0, chunks, tap, at;   // chunks a tap has; the next copy's tap, and this thread's chunk of it
    u32 to;

    __device__ __forceinline__ Tiles(const Conv& c, int2 span, int client, int m0, int n0) : n0(n0) {
        const int tid = threadIdx.x, chunk = tid & 7;
        row0 = tid >> 3;
        chunks = c.CI / 8;
#pragma unroll
        for (int i = 0; i < AR; i++) pixel[i] = pixel_of(c.cohort, span, m0 + row0 + i * ROWS, c.H, c.W);
        w = c.w + client * c.w_stride + (i64)(n0 + row0) * 9 * c.CI;
        to = row0 * 128 + ((chunk ^ (row0 & 7)) << 4);
        tap = 0;
        at = chunk;
        carry();
    }
    __device__ __forceinline__ void carry() {
        while (at >= chunks) { at -= chunks; tap++; }
    }
    __device__ __forceinline__ int steps() const { return (9 * chunks + 7) / 8; }

    // Starts the copies of the next tile.
    __device__ __forceinline__ void load(const Conv& c, u32 tile) {
        const u32 d = tile + to;
        const int offset = tap_offset(tap, c.W);
#pragma unroll
        for (int i = 0; i < AR; i++) {
            const bool in = pixel[i].inside >> tap & 1;
            copy16(d + i * ROWS * 128, in ? c.x + (i64)(pixel[i].at + offset) * c.CI + at * 8 : c.x, in);
        }
        const f16* from = w + tap * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < BR; i++) {
            const bool in = tap < 9 && n0 + row0 + i * ROWS < c.CO;
            copy16(d + (BM + i * ROWS) * 128, in ? from + (i64)i * ROWS * 9 * c.CI : c.w, in);
        }
        at += 8;
        carry();
    }

    // The rows a thread multiplies are not those it copied: where they belong goes through shared memory.
    __device__ __forceinline__ void tell_places(int* places) const {
        if ((threadIdx.x & 7) == 0)
#pragma unroll
            for (int i = 0; i < AR; i++) places[row0 + i * ROWS] = pixel[i].at;
        __syncthreads();
    }
};

// Two neighbouring sums of a pixel, finished and stored.
__device__ __forceinline__ float finished(int phi_of, float x) { return phi_of == SOFTPLUS ? phi<SOFTPLUS>(x) : phi_of == RELU && x < 0.f ? 0.f : x; }
__device__ __forceinline__ void put(const Conv& c, int place, int n, float2 bias, float first, float second) {
    if (place < 0 || n >= c.CO) return;
    const float2 v = make_float2(finished(c.phi, fmaf(c.alpha, first, bias.x)), finished(c.phi, fmaf(c.alpha, second, bias.y)));
    const i64 pair = ((i64)place * c.CO + n) / 2;
    if (c.narrow) store2((f16*)c.y, pair, v);
    else store2((float*)c.y, pair, v);
}
__device__ __forceinline__ float2 bias_of(const Conv& c, int client, int n) {
    return c.bias && n < c.CO ? load2(c.bias + client * c.bias_stride, n / 2) : make_float2(0.f, 0.f);
}
