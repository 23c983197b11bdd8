// Gradients of convolutions by their weights, every client its own: dw[co][tap, ci] = alpha sum over pixels of dy[pixel][co] x[under the tap][ci].
//
// A block owns OUT output channels by 128 columns of (tap, ci) and walks the pixels of its client in order, 64 a step: no two blocks add
// to the same number, so the sum has one order. Where that makes too few blocks for a card, the pixels are cut into parts, which sum_parts adds in
// order. Up to two convolutions share a launch. A matrix product x^T dy of dense layers is the gradient of a 1x1 convolution of one row.
// Grid: (tiles of both problems, clients, parts), a problem having ceil(CO / OUT) * ceil(window^2 CI / 128) tiles; 128 threads.
// Dynamic shared memory: STAGES * STAGE + 2 * DEPTH * 16 + 1024 = 101,376 bytes for 128 output channels, 76,800 for 64.
#pragma once
#include "conv.cuh"
#include "tensor_core.cuh"
#include "weight_gradient.cuh"

constexpr int DEPTH = 64, STAGES = 3, QUARTER = DEPTH * 128;

// The factors of a block's product on their way to shared memory. A stage is quarters of 64 pixels by 64 channels: OUT / 64 of dy, two of x.
// Rows are pixels, 128 bytes, their chunks permuted by `chunk ^ (row % 8)`.
template <int OUT> struct Walk {
    static constexpr int OF_X = OUT / 64 * QUARTER, STAGE = OF_X + 2 * QUARTER, RING = STAGES * STAGE;
    Cohort cohort;
    int2 span;
    Taps taps;
    int4* pixels;   // [2][DEPTH], of the step that is copied next and of the one after it
    const f16 *x, *dy;
    int H, W, CI, HO, WO, CO, columns, tap, row0, n0, o0, first, steps;
    u32 ring, tile, free, to;   // what is multiplied, and where the copies go
    bool wanted;

    __device__ __forceinline__ Walk(const WeightGradient& p, const Cohort& cohort, int4* pixels, u32 ring, int index, int client) : cohort(cohort), pixels(pixels), H(p.H), W(p.W), CI(p.CI), HO(p.HO), WO(p.WO), CO(p.CO), ring(ring), tile(ring), free(ring + (STAGES - 1) * STAGE) {
        span = cohort.spans[client];
        taps = all_taps(HO, WO, p.window, p.stride, p.above, p.left);
        columns = taps.count() * CI;
        const int across = (columns + 127) / 128, chunk = threadIdx.x & 15;   // sixteen threads copy a row, eight rows at a time
        n0 = index % across * 128;
        o0 = index / across * OUT;
        row0 = threadIdx.x >> 4;
        const int column = n0 + chunk * 8;
        tap = column / CI;   // beyond the last tap none is inside
        const int row = taps.row_of(tap);
        x = p.x + (row * W + tap - row * taps.nx) * CI + column - tap * CI;
        dy = p.dy + o0 + chunk * 8;
        wanted = o0 + chunk * 8 < CO;
        to = (chunk >> 3) * QUARTER + row0 * 128 + (((chunk ^ row0) & 7) << 4);
        const i64 all = ((i64)span.y * HO * WO + DEPTH - 1) / DEPTH;
        first = (int)(all * blockIdx.z / gridDim.z);
        steps = (int)(all * (blockIdx.z + 1) / gridDim.z) - first;
        if (tap > 15) tap = 15;
        begin();
    }
    __device__ __forceinline__ void look_up(int k) const {
        if (threadIdx.x >= DEPTH) return;
        const Pixel p = k < steps ? pixel_of(cohort, span, taps, (first + k) * DEPTH + threadIdx.x, H, W, HO, WO) : Pixel{-1, 0, 0};
        pixels[(k & 1) * DEPTH + threadIdx.x] = make_int4(p.at, p.from, (int)p.inside, 0);
    }
    // Addresses outside are never read.
    __device__ __forceinline__ void load(int k, u32 stage) const {
#pragma unroll
        for (int i = 0; i < DEPTH / 8; i++) {
            const int4 p = pixels[(k & 1) * DEPTH + row0 + i * 8];
            if (OUT == 128 || (threadIdx.x & 15) < OUT / 8) copy16(stage + to + i * 1024, dy + (i64)p.x * CO, p.x >= 0 && wanted);
            copy16(stage + OF_X + to + i * 1024, x + (i64)p.y * CI, (u32)p.z >> tap & 1);
        }
    }
    // The first stages; every step then loads its `k + STAGES - 1` and looks up `k + STAGES`.
    __device__ __forceinline__ void begin() const {
        look_up(0);
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            __syncthreads();
            load(s, ring + s * STAGE);
            look_up(s + 1);
            copies_commit();
        }
    }
    __device__ __forceinline__ void load_next(int k) const {
        if (k + STAGES - 1 < steps) load(k + STAGES - 1, free);
    }
    __device__ __forceinline__ u32 next(u32 at) const { return at == ring + (STAGES - 1) * STAGE ? ring : at + STAGE; }
    __device__ __forceinline__ void turn() {
        tile = next(tile);
        free = next(free);
    }
    __device__ __forceinline__ void put(const WeightGradient& p, int client, int o, int n, float one, float two) const {
        if (o0 + o < CO && n0 + n < columns) store2(p.dw + blockIdx.z * p.part_stride + client * p.w_stride, ((i64)(o0 + o) * columns + n0 + n) / 2, make_float2(p.alpha * one, p.alpha * two));
    }
};

#define CONV_WEIGHTS(NAME, OUT)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(128, 2) NAME(WeightGradient first, WeightGradient second, int tiles_of_first, Cohort cohort) { \
        gradient<OUT>(chosen(first, second, tiles_of_first), cohort, tile_of_block(tiles_of_first), blockIdx.y);                        \
    }
