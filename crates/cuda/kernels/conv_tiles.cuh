// What the convolutions on tensor cores share: the factors of a block's product on their way to shared memory, and its sums on their way out.
//
// A tile is BM pixels and BN output channels, by 64 of the (tap, channel) inner numbers: rows of 128 bytes whose eight 16-byte chunks are permuted
// by `chunk ^ (row % 8)`, so that neither the copies in nor the fragments out meet in a bank; it is also the order wgmma knows as its 128-byte
// swizzle. An image's border costs nothing: taps outside are copies of zero bytes.
#pragma once
#include "conv.cuh"
#include "tensor_core.cuh"

// Which outputs a block computes.
// Grid: (ceil(CO / BN), parts * ceil(most pixels of a client and part / BM), clients); parts are stride^2 for gradients by input, else 1.
template <int BM, int BN> struct Place {
    Taps taps;
    int2 span;
    int client, m0, n0;
    bool idle;
    __device__ __forceinline__ Place(const Conv& c) : client(blockIdx.z), n0(blockIdx.x * BN) {
        const int tiles = gridDim.y / (c.back ? c.stride * c.stride : 1), part = blockIdx.y / tiles;
        taps = taps_of(c, part);
        span = c.cohort.spans[client];
        m0 = (blockIdx.y - part * tiles) * BM;
        idle = m0 >= span.y * taps.rows * taps.columns || (c.add && taps.count() == 0);
    }
};

template <int BM, int BN, int THREADS> struct Tiles {
    static constexpr int ROWS = THREADS / 8, AR = BM / ROWS, BR = BN / ROWS;   // eight threads copy a row
    const f16* pixel[AR];             // under the first tap
    u32 inside[AR / 2];               // two masks of taps in one
    const f16* w;
    i64 w_rows;                       // from one of this thread's weights to the next
    int chunks, tap, at;              // chunks a tap has; the next copy's tap, and this thread's chunk of it
    u32 channels, to;                 // which of its output channels there are

    __device__ __forceinline__ Tiles(const Conv& c, const Place<BM, BN>& place) {
        const int row0 = threadIdx.x >> 3, chunk = threadIdx.x & 7, taps = c.window * c.window;
#pragma unroll
        for (int i = 0; i < AR; i++) {
            const Pixel p = pixel_of(c.cohort, place.span, place.taps, place.m0 + row0 + i * ROWS, c.H, c.W, c.HO, c.WO);
            pixel[i] = c.x + (i64)p.from * c.CI;
            inside[i / 2] = i & 1 ? inside[i / 2] | p.inside << 16 : p.inside;
        }
        channels = 0;
#pragma unroll
        for (int i = 0; i < BR; i++) channels |= (place.n0 + row0 + i * ROWS < c.CO ? 1u : 0u) << i;
        w = c.w + place.client * c.w_stride + (i64)(place.n0 + row0) * taps * c.CI;
        w_rows = (i64)ROWS * taps * c.CI;
        to = row0 * 128 + ((chunk ^ (row0 & 7)) << 4);
        chunks = c.CI / 8;
        tap = 0;
        at = chunk;
        carry();
    }
    __device__ __forceinline__ void carry() {
        while (at >= chunks) { at -= chunks; tap++; }
    }
    __device__ __forceinline__ int steps(const Taps& t) const { return (t.count() * chunks + 7) / 8; }

    // Starts the copies of the next tile. Addresses outside are never read.
    __device__ __forceinline__ void load(const Conv& c, const Taps& t, u32 tile) {
        const u32 d = tile + to;
        const bool there = tap < t.count();
        const int row = t.row_of(tap), column = tap - row * t.nx, offset = (row * c.W + column) * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < AR; i++) copy16(d + i * ROWS * 128, pixel[i] + offset, inside[i / 2] >> (tap + (i & 1) * 16) & there);
        const f16* from = w + ((t.tap_y + t.tap_step * row) * c.window + t.tap_x + t.tap_step * column) * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < BR; i++) copy16(d + (BM + i * ROWS) * 128, from + i * w_rows, channels >> i & there);
        at += 8;
        carry();
    }
};

// A ring of tiles: `tile` is multiplied while the copies go to `free`.
template <int BM, int BN, int THREADS, int STAGES> struct Ring {
    static constexpr int STAGE = (BM + BN) * 128;
    Tiles<BM, BN, THREADS> tiles;
    const Taps& taps;
    u32 base, tile, free;
    int steps, begun;
    __device__ __forceinline__ Ring(const Conv& c, const Place<BM, BN>& place, u32 base) : tiles(c, place), taps(place.taps), base(base), tile(base), free(base + (STAGES - 1) * STAGE), begun(0) {
        steps = tiles.steps(taps);
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) load(c, base + s * STAGE);
    }
    __device__ __forceinline__ void load(const Conv& c, u32 to) {
        if (begun++ < steps) tiles.load(c, taps, to);
        copies_commit();
    }
    __device__ __forceinline__ u32 next(u32 at) const { return at == base + (STAGES - 1) * STAGE ? base : at + STAGE; }
    __device__ __forceinline__ void turn() {
        tile = next(tile);
        free = next(free);
    }
};

// Where the rows of a block belong, told through shared memory: the rows a thread multiplies are not those it copied.
template <int BM, int BN, int THREADS> __device__ __forceinline__ void tell_places(const Conv& c, const Place<BM, BN>& place, int* places) {
    for (int m = threadIdx.x; m < BM; m += THREADS) places[m] = pixel_of(c.cohort, place.span, place.taps, place.m0 + m, c.H, c.W, c.HO, c.WO).at;
    __syncthreads();
}

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
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + m * BN * 2 + ((n / 8 ^ (m & (BN < 64 ? 3 : 7))) << 4) + (n & 7) * 2), "r"(pack2(first, second)));
    });
    else sums.each([&](int m, int n, float& first, float& second) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(base + m * BN * 4 + ((n / 4 ^ (m & 7)) << 4) + (n & 3) * 4), "f"(first), "f"(second));
    });
    __syncthreads();
    const int bytes = c.narrow ? 2 : 4, pieces = BN * bytes / 16, permuted = pieces < 8 ? pieces - 1 : 7;
    for (int e = threadIdx.x; e < BM * pieces; e += THREADS) {
        const int m = e / pieces, piece = e - m * pieces, n = n0 + piece * (16 / bytes);
        if (places[m] < 0 || n >= c.CO) continue;
        uint4* to = (uint4*)((char*)c.y + ((i64)places[m] * c.CO + n) * bytes);
        uint4 v = *(const uint4*)(shared + m * BN * bytes + ((piece ^ (m & permuted)) << 4));
        if (c.add) {
            const float4 old = *(const float4*)to;
            v = make_uint4(__float_as_uint(__uint_as_float(v.x) + old.x), __float_as_uint(__uint_as_float(v.y) + old.y),
                           __float_as_uint(__uint_as_float(v.z) + old.z), __float_as_uint(__uint_as_float(v.w) + old.w));
        }
        *to = v;
    }
}
