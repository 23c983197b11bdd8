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

    // Starts the copies of the next tile. Addresses outside are never read.
    __device__ __forceinline__ void load(const Conv& c, u32 tile) {
        const u32 d = tile + to;
        const int offset = tap_offset(tap, c.W) * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < AR; i++) copy16(d + i * ROWS * 128, pixel[i] + offset, inside[i / 2] >> (tap + (i & 1) * 16) & (tap < 9));
        const f16* from = w + tap * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < BR; i++) copy16(d + (BM + i * ROWS) * 128, from + i * w_rows, channels >> i & (tap < 9));
        at += 8;
        carry();
    }

    // The rows a thread multiplies are not those it copied: where they belong goes through shared memory.
    __device__ __forceinline__ void tell_places(const Conv& c, int* places) const {
        if ((threadIdx.x & 7) == 0)
#pragma unroll
            for (int i = 0; i < AR; i++) places[(threadIdx.x >> 3) + i * ROWS] = pixel[i] ? (int)((pixel[i] - c.x) / c.CI) : -1;
        __syncthreads();
    }
};

// From sums in registers to memory: bias and activation in place, then through shared memory (the tiles', which nobody reads any more), so
// that every row leaves in 16-byte pieces of one line. `Sums` says which pixel and channel of the block a pair of sums belongs to.
template <int BM, int BN, int THREADS, class Sums> __device__ __forceinline__ void finish(const Conv& c, int client, int n0, char* shared, const int* places, Sums& sums) {
    const u32 base = shared_address(shared);
    sums.each([&](int, int n, float& first, float& second) {
        const float2 bias = c.bias && n0 + n < c.CO ? load2(c.bias + client * c.bias_stride, (n0 + n) / 2) : make_float2(0.f, 0.f);
        first = fmaf(c.alpha, first, bias.x);
        second = fmaf(c.alpha, second, bias.y);
    });
    if (c.phi == SOFTPLUS) sums.each([&](int, int, float& first, float& second) { first = phi<SOFTPLUS>(first); second = phi<SOFTPLUS>(second); });
    if (c.phi == RELU) sums.each([&](int, int, float& first, float& second) { first = phi<RELU>(first); second = phi<RELU>(second); });
    // The pieces of a row are permuted like those of the tiles.
    if (c.narrow) sums.each([&](int m, int n, float& first, float& second) {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + m * BN * 2 + ((n / 8 ^ (m & 7)) << 4) + (n & 7) * 2), "r"(pack2(first, second)));
    });
    else sums.each([&](int m, int n, float& first, float& second) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(base + m * BN * 4 + ((n / 4 ^ (m & 7)) << 4) + (n & 3) * 4), "f"(first), "f"(second));
    });
    __syncthreads();
    const int bytes = c.narrow ? 2 : 4, pieces = BN * bytes / 16;
    for (int e = threadIdx.x; e < BM * pieces; e += THREADS) {
        const int m = e / pieces, piece = e - m * pieces, n = n0 + piece * (16 / bytes);
        if (places[m] >= 0 && n < c.CO) *(uint4*)((char*)c.y + ((i64)places[m] * c.CO + n) * bytes) = *(const uint4*)(shared + m * BN * bytes + ((piece ^ (m & 7)) << 4));
    }
}
