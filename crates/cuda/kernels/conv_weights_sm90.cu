// The gradient by weights with Hopper's matrix instruction, which reads both factors transposed from shared memory: one warpgroup, two products of
// 64 x 128.
#include "conv_weights.cuh"
#include "wgmma.cuh"

__device__ __forceinline__ void gradient(const WeightGradient& p, const Cohort& cohort, int tile, int client) {
    extern __shared__ char shared[];
    const u32 ring = (shared_address(shared) + 1023) & ~1023u;
    const Walk walk(p, cohort, (Pixel*)(shared + RING + 1024), tile, client);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, steps = walk.steps();
    float acc[2][64] = {};
    walk.begin(ring);
    u32 tile_at = ring, free = ring + (STAGES - 1) * STAGE;   // what is multiplied, and where the copies go
    for (int k = 0; k < steps; k++) {
        copies_wait<STAGES - 2>();
        publish();
        __syncthreads();
        const u64 a = transposed_descriptor_of(tile_at, QUARTER), b = a + (2 * QUARTER >> 4);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
            for (int i = 0; i < 2; i++) wgmma<1>(acc[i], a + ks * (16 * 128 >> 4) + i * (QUARTER >> 4), b + ks * (16 * 128 >> 4));
        wgmma_commit();
        walk.look_up(k + STAGES);
        // The tile before this one has been read by all warps: its place is free while this one is multiplied.
        wgmma_wait<1>();
        __syncthreads();
        if (k + STAGES - 1 < steps) walk.load(k + STAGES - 1, free);
        copies_commit();
        tile_at = next_stage(tile_at, ring);
        free = next_stage(free, ring);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) walk.put(p, client, i * 64 + warp * 16 + (lane >> 2) + h * 8, j * 8 + 2 * (lane & 3), acc[i][j * 4 + 2 * h], acc[i][j * 4 + 2 * h + 1]);
}

extern "C" __global__ void __launch_bounds__(128, 2) conv_weights_sm90(WeightGradient first, WeightGradient second, int tiles_of_first, Cohort cohort) {
    gradient(chosen(first, second, tiles_of_first), cohort, blockIdx.x - ((int)blockIdx.x < tiles_of_first ? 0 : tiles_of_first), blockIdx.y);
}
