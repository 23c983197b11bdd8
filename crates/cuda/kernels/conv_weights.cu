// The gradient by weights with mma.sync: four warps of 64 x 64.
#include "conv_weights.cuh"

__device__ __forceinline__ void gradient(const WeightGradient& p, const Cohort& cohort, int tile, int client) {
    extern __shared__ __align__(1024) char shared[];
    const u32 ring = shared_address(shared);
    const Walk walk(p, cohort, (Pixel*)(shared + RING), tile, client);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, side_a = warp & 1, side_b = warp >> 1, steps = walk.steps();
    float acc[4][8][4] = {};
    walk.begin(ring);
    // Rows of shared memory are pixels, the inner dimension: both fragments are read transposed.
    const u32 ka = (lane & 7) + ((lane >> 4) << 3), kb = lane & 15, ca = (lane >> 3) & 1, cb = lane >> 4;
    u32 tile_at = ring, free = ring + (STAGES - 1) * STAGE;   // what is multiplied, and where the copies go
    for (int k = 0; k < steps; k++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        u32 a[2][4][4], b[2][4][4];
        auto fetch = [&](int ks) {
#pragma unroll
            for (int i = 0; i < 4; i++) fragment_transposed(a[ks & 1][i], tile_at + side_a * QUARTER + (ks * 16 + ka) * 128 + (((ca + 2 * i) ^ (ka & 7)) << 4));
#pragma unroll
            for (int j = 0; j < 4; j++) fragment_transposed(b[ks & 1][j], tile_at + (2 + side_b) * QUARTER + (ks * 16 + kb) * 128 + (((cb + 2 * j) ^ (kb & 7)) << 4));
        };
        fetch(0);
        if (k + STAGES - 1 < steps) walk.load(k + STAGES - 1, free);
        walk.look_up(k + STAGES);
        copies_commit();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) {
            if (ks < 3) fetch(ks + 1);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) multiply(acc[i][j], a[ks & 1][i], b[ks & 1][j / 2][(j & 1) * 2], b[ks & 1][j / 2][(j & 1) * 2 + 1]);
        }
        tile_at = next_stage(tile_at, ring);
        free = next_stage(free, ring);
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                walk.put(p, client, side_a * 64 + i * 16 + (lane >> 2) + h * 8, side_b * 64 + j * 8 + 2 * (lane & 3), acc[i][j][2 * h], acc[i][j][2 * h + 1]);
}

extern "C" __global__ void __launch_bounds__(128, 2) conv_weights(WeightGradient first, WeightGradient second, int tiles_of_first, Cohort cohort) {
    gradient(chosen(first, second, tiles_of_first), cohort, blockIdx.x - ((int)blockIdx.x < tiles_of_first ? 0 : tiles_of_first), blockIdx.y);
}
