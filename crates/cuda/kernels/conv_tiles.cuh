// The factors of a block's product on their way to shared memory, for convolutions on tensor cores.
//
// A tile is BM pixels and BN output channels, by 64 of the 9 CI inner numbers: rows of 128 bytes whose eight 16-byte chunks are permuted by
// `chunk ^ (row % 8)`, so that neither the copies in nor the fragments out meet in a bank; it is also the order wgmma knows as its 128-byte
// swizzle. An image's border costs nothing: taps outside are copies of zero bytes.
#pragma once
#include "conv.cuh"
#include "tensor_core.cuh"

template <int BM, int BN, int THREADS> struct Tiles {
    static constexpr int ROWS = THREADS / 8, AR = BM / ROWS, BR = BN / ROWS;   // eight threads copy a row
    static constexpr int PARTS = 4;   // in which a tile is copied, so that copies and products can take turns
    const f16* pixel[AR];             // null beyond the last pixel
    u32 inside[AR / 2];               // two masks of taps in one
    const f16* w;
    i64 w_rows;                       // from one of this thread's weights to the next
    int chunks, tap, at;              // chunks a tap has; the next copy's tap, and this thread's chunk of it
    u32 channels, to;                 // which of its output channels there are

    __device__ __forceinline__ Tiles(const Conv& c, int2 span, int client, int m0, int n0) {
        const int row0 = threadIdx.x >> 3, chunk = threadIdx.x & 7;
#pragma unroll
        for (int i = 0; i < AR; i++) {
            const Pixel p = pixel_of(c.cohort, span, m0 + row0 + i * ROWS, c.H, c.W);
            pixel[i] = p.at < 0 ? nullptr : c.x + (i64)p.at * c.CI;
            inside[i / 2] = i & 1 ? inside[i / 2] | p.inside << 16 : p.inside;
        }
        channels = 0;
#pragma unroll
        for (int i = 0; i < BR; i++) channels |= (n0 + row0 + i * ROWS < c.CO ? 1u : 0u) << i;
        w = c.w + client * c.w_stride + (i64)(n0 + row0) * 9 * c.CI;
        w_rows = (i64)ROWS * 9 * c.CI;
        to = row0 * 128 + ((chunk ^ (row0 & 7)) << 4);
        chunks = c.CI / 8;
        tap = 0;
        at = chunk;
        carry();
    }
    __device__ __forceinline__ void carry() {
        while (at >= chunks) { at -= chunks; tap++; }
    }
    __device__ __forceinline__ int steps() const { return (9 * chunks + 7) / 8; }

    // Starts the copies of one part of the next tile. Addresses outside are never read.
    __device__ __forceinline__ void load(const Conv& c, u32 tile, int part) {
        const u32 d = tile + to;
        const int offset = tap_offset(tap, c.W) * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < AR; i++)
            if (i % PARTS == part) copy16(d + i * ROWS * 128, pixel[i] + offset, inside[i / 2] >> (tap + (i & 1) * 16) & (tap < 9));
        const f16* from = w + tap * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < BR; i++)
            if (i % PARTS == part) copy16(d + (BM + i * ROWS) * 128, from + i * w_rows, channels >> i & (tap < 9));
        if (part == PARTS - 1) { at += 8; carry(); }
    }
    __device__ __forceinline__ void load(const Conv& c, u32 tile) {
#pragma unroll
        for (int part = 0; part < PARTS; part++) load(c, tile, part);
    }

    // The rows a thread multiplies are not those it copied: where they belong goes through shared memory.
    __device__ __forceinline__ void tell_places(const Conv& c, int* places) const {
        if ((threadIdx.x & 7) == 0)
#pragma unroll
            for (int i = 0; i < AR; i++) places[(threadIdx.x >> 3) + i * ROWS] = pixel[i] ? (int)((pixel[i] - c.x) / c.CI) : -1;
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
