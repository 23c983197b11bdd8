// Gradients of 3x3 convolutions by their weights, every client its own: dw[co][tap, ci] = alpha sum over pixels of dy[pixel][co] x[pixel + tap][ci].
//
// A block owns 128 output channels by 128 columns of (tap, ci) and walks all pixels of its client in order: no two blocks add to the same
// number, so the sum has one order. Up to two convolutions share a launch, since one alone leaves a third of a large card idle.
// Grid: (tiles of both problems, clients), a problem having ceil(CO / 128) * ceil(9 CI / 128) tiles.
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

constexpr int DEPTH = 64, STAGES = 3, TILE = DEPTH * 256, STAGE = 2 * TILE;   // pixels a step; rows of 128 halves

__device__ __forceinline__ void gradient(const WeightGradient& p, const Cohort& cohort, int tile, int client) {
    extern __shared__ __align__(1024) char shared[];
    const u32 base = shared_address(shared);
    Pixel* pixels = (Pixel*)(shared + STAGES * STAGE);   // [2][DEPTH], of the step that is copied next and of the one after it
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const int columns = 9 * p.CI, across = (columns + 127) / 128, n0 = tile % across * 128, o0 = tile / across * 128;
    const int2 span = cohort.spans[client];
    const int steps = (span.y * p.H * p.W + DEPTH - 1) / DEPTH;

    const int row0 = tid >> 4, chunk = tid & 15;         // sixteen threads copy a row, eight rows at a time
    const int column = n0 + chunk * 8, tap = column / p.CI;
    const f16* x = p.x + tap_offset(tap, p.W) * p.CI + column - tap * p.CI;
    const f16* dy = p.dy + o0 + chunk * 8;
    const bool wanted = o0 + chunk * 8 < p.CO;
    auto look_up = [&](int k) {
        if (tid < DEPTH) pixels[(k & 1) * DEPTH + tid] = pixel_of(cohort, span, k * DEPTH + tid, p.H, p.W);
    };
    auto load = [&](int k, u32 stage, int part) {   // a quarter of a step's pixels, so that copies and products can take turns
        const u32 to = stage + row0 * 256 + ((chunk ^ (row0 & 7)) << 4);
#pragma unroll
        for (int i = 0; i < DEPTH / 8; i++)
            if (i % 4 == part) {
                const Pixel at = pixels[(k & 1) * DEPTH + row0 + i * 8];
                // Addresses outside are never read. The middle tap is always inside.
                copy16(to + i * 2048, dy + (i64)at.at * p.CO, at.inside && wanted);
                copy16(to + TILE + i * 2048, x + (i64)at.at * p.CI, at.inside >> tap & 1);
            }
    };

    const int wm = (warp & 1) * 64, wn = (warp >> 1) * 64;
    float acc[4][8][4] = {};
    look_up(0);
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        __syncthreads();
#pragma unroll
        for (int part = 0; part < 4; part++) load(s, base + s * STAGE, part);   // beyond the last step all pixels are outside: zeros
        look_up(s + 1);
        copies_commit();
    }
    // Rows of shared memory are pixels, the inner dimension: both fragments are read transposed.
    const u32 ka = (lane & 7) + ((lane >> 4) << 3), kb = lane & 15;
    const u32 ca = wm / 8 + ((lane >> 3) & 1), cb = wn / 8 + (lane >> 4);
    u32 tile_at = base, free = base + (STAGES - 1) * STAGE;   // what is multiplied, and where the copies go
    auto next = [&](u32 at) { return at == base + (STAGES - 1) * STAGE ? base : at + STAGE; };
    for (int k = 0; k < steps; k++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        u32 a[2][4][4], b[2][4][4];
        auto fetch = [&](int ks) {
#pragma unroll
            for (int i = 0; i < 4; i++) fragment_transposed(a[ks & 1][i], tile_at + (ks * 16 + ka) * 256 + (((ca + 2 * i) ^ (ka & 7)) << 4));
#pragma unroll
            for (int j = 0; j < 4; j++) fragment_transposed(b[ks & 1][j], tile_at + TILE + (ks * 16 + kb) * 256 + (((cb + 2 * j) ^ (kb & 7)) << 4));
        };
        fetch(0);
        look_up(k + STAGES);   // its half of the table was last read one barrier ago
#pragma unroll
        for (int ks = 0; ks < 4; ks++) {
            if (ks < 3) fetch(ks + 1);
            if (k + STAGES - 1 < steps) load(k + STAGES - 1, free, ks);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) multiply(acc[i][j], a[ks & 1][i], b[ks & 1][j / 2][(j & 1) * 2], b[ks & 1][j / 2][(j & 1) * 2 + 1]);
        }
        copies_commit();
        tile_at = next(tile_at);
        free = next(free);
    }
    float* dw = p.dw + client * p.stride;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int o = o0 + wm + i * 16 + (lane >> 2) + h * 8, n = n0 + wn + j * 8 + 2 * (lane & 3);
                if (o < p.CO && n < columns) store2(dw, ((i64)o * columns + n) / 2, make_float2(p.alpha * acc[i][j][2 * h], p.alpha * acc[i][j][2 * h + 1]));
            }
}

// Dynamic shared memory: STAGES * STAGE + 2 * DEPTH * 8 = 99,328 bytes.
extern "C" __global__ void __launch_bounds__(128, 2) conv_weights_f16(WeightGradient first, WeightGradient second, int tiles_of_first, Cohort cohort) {
    const int tile = blockIdx.x;
    if (tile < tiles_of_first) gradient(first, cohort, tile, blockIdx.y);
    else gradient(second, cohort, tile - tiles_of_first, blockIdx.y);
}
