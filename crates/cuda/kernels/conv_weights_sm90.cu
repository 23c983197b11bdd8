// The gradient by weights with Hopper's matrix instruction, which reads both factors transposed from shared memory: one warpgroup, products of
// 64 x 128.
#include "conv_weights.cuh"
#include "wgmma.cuh"

template <int OUT> __device__ __forceinline__ void gradient(const WeightGradient& p, const Cohort& cohort, int index, int client) {
    constexpr int MT = OUT / 64;
    extern __shared__ char shared[];
    Walk<OUT> walk(p, cohort, (int4*)(shared + Walk<OUT>::RING + 1024), (shared_address(shared) + 1023) & ~1023u, index, client);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float acc[MT][64] = {};
    for (int k = 0; k < walk.steps; k++) {
        copies_wait<STAGES - 2>();
        publish();
        __syncthreads();
        const u64 a = transposed_descriptor_of(walk.tile, QUARTER), b = a + (walk.OF_X >> 4);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
            for (int i = 0; i < MT; i++) wgmma<1>(acc[i], a + ks * (16 * 128 >> 4) + i * (QUARTER >> 4), b + ks * (16 * 128 >> 4));
        wgmma_commit();
        walk.look_up(k + STAGES);
        // The tile before this one has been read by all warps: its place is free while this one is multiplied.
        wgmma_wait<1>();
        __syncthreads();
        walk.load_next(k);
        copies_commit();
        walk.turn();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) walk.put(p, client, i * 64 + warp * 16 + (lane >> 2) + h * 8, j * 8 + 2 * (lane & 3), acc[i][j * 4 + 2 * h], acc[i][j * 4 + 2 * h + 1]);
}
CONV_WEIGHTS(conv_weights_sm90, 128)
CONV_WEIGHTS(conv_weights_64_sm90, 64)
