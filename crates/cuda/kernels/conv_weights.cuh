// Gradients of 3x3 convolutions by their weights, every client its own: dw[co][tap, ci] = alpha sum over pixels of dy[pixel][co] x[pixel + tap][ci].
//
// A block owns 128 output channels by 128 columns of (tap, ci) and walks all pixels of its client in order, 64 a step: no two blocks add
// to the same number, so the sum has one order. Up to two convolutions share a launch, since one alone leaves a third of a large card idle.
// Grid: (tiles of both problems, clients), a problem having ceil(CO / 128) * ceil(9 CI / 128) tiles; 128 threads.
// Dynamic shared memory: RING + 2 * DEPTH * 8 + 1024 = 100,352 bytes.
#pragma once
#include "conv.cuh"
#include "tensor_core.cuh"

struct WeightGradient {
    const f16* x;    // [samples][H][W][CI]
    const f16* dy;   // [samples][H][W][CO]
    float* dw;       // [clients][CO][3][3][CI], clients `stride` numbers apart
    i64 stride;
    float alpha;     // undoes the scale of 16-bit gradients
    int H, W, CI, CO;
};

// The problem a block works on; number by number, so that it stays in registers.
__device__ __forceinline__ WeightGradient chosen(const WeightGradient& a, const WeightGradient& b, int tiles_of_a) {
    const bool first = (int)blockIdx.x < tiles_of_a;
    return {first ? a.x : b.x, first ? a.dy : b.dy, first ? a.dw : b.dw, first ? a.stride : b.stride, first ? a.alpha : b.alpha,
            first ? a.H : b.H, first ? a.W : b.W, first ? a.CI : b.CI, first ? a.CO : b.CO};
}

// A stage is four quarters of 64 pixels by 64 channels: two of dy, two of x. Rows are pixels, 128 bytes, their chunks permuted by `chunk ^ (row % 8)`.
constexpr int DEPTH = 64, STAGES = 3, QUARTER = DEPTH * 128, STAGE = 4 * QUARTER, RING = STAGES * STAGE;

__device__ __forceinline__ u32 next_stage(u32 at, u32 ring) { return at == ring + (STAGES - 1) * STAGE ? ring : at + STAGE; }

// The factors of a block's product on their way to shared memory.
struct Walk {
    Cohort cohort;
    int2 span;
    Pixel* pixels;   // [2][DEPTH], of the step that is copied next and of the one after it
    const f16 *x, *dy;
    int H, W, CI, CO, tap, row0, n0, o0;
    u32 to;
    bool wanted;

    __device__ __forceinline__ Walk(const WeightGradient& p, const Cohort& cohort, Pixel* pixels, int tile, int client) : cohort(cohort), pixels(pixels), H(p.H), W(p.W), CI(p.CI), CO(p.CO) {
        span = cohort.spans[client];
        const int across = (9 * CI + 127) / 128, chunk = threadIdx.x & 15;   // sixteen threads copy a row, eight rows at a time
        n0 = tile % across * 128;
        o0 = tile / across * 128;
        row0 = threadIdx.x >> 4;
        const int column = n0 + chunk * 8;
        tap = column / CI;
        x = p.x + tap_offset(tap, W) * CI + column - tap * CI;
        dy = p.dy + o0 + chunk * 8;
        wanted = o0 + chunk * 8 < CO;
        to = (chunk >> 3) * QUARTER + row0 * 128 + (((chunk ^ row0) & 7) << 4);
    }
    __device__ __forceinline__ int steps() const { return (span.y * H * W + DEPTH - 1) / DEPTH; }
    __device__ __forceinline__ void look_up(int k) const {
        if (threadIdx.x < DEPTH) pixels[(k & 1) * DEPTH + threadIdx.x] = pixel_of(cohort, span, k * DEPTH + threadIdx.x, H, W);
    }
    // Addresses outside are never read. The middle tap is always inside; beyond the last step no tap is.
    __device__ __forceinline__ void load(int k, u32 stage) const {
#pragma unroll
        for (int i = 0; i < DEPTH / 8; i++) {
            const Pixel at = pixels[(k & 1) * DEPTH + row0 + i * 8];
            copy16(stage + to + i * 1024, dy + (i64)at.at * CO, at.inside && wanted);
            copy16(stage + 2 * QUARTER + to + i * 1024, x + (i64)at.at * CI, at.inside >> tap & 1);
        }
    }
    // The first stages; every step then loads its `k + STAGES - 1` and looks up `k + STAGES`.
    __device__ __forceinline__ void begin(u32 ring) const {
        look_up(0);
#pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            __syncthreads();
            load(s, ring + s * STAGE);
            look_up(s + 1);
            copies_commit();
        }
    }
    __device__ __forceinline__ void put(const WeightGradient& p, int client, int o, int n, float first, float second) const {
        if (o0 + o < CO && n0 + n < 9 * CI) store2(p.dw + client * p.stride, ((i64)(o0 + o) * 9 * CI + n0 + n) / 2, make_float2(p.alpha * first, p.alpha * second));
    }
};
