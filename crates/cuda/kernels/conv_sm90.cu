// The convolution of conv.cu with Hopper's matrix instruction, which reads both factors from shared memory: no fragments to load.
// One warpgroup a block, 128 pixels by 128 channels in two products of 64 x 128; two blocks a multiprocessor, so that one multiplies while
// the other begins or ends. Grid: (ceil(CO / 128), ceil(most pixels of a client / 128), clients), 128 threads.
#include "conv_tiles.cuh"
#include "wgmma.cuh"

constexpr int STAGES = 3, STAGE = 256 * 128;

// Where wgmma leaves the sums of two products of 64 x 128.
struct Sums {
    float (&acc)[2][64];
    int m, n;
    template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
        for (int j = 0; j < 16; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) f(m + i * 64 + h * 8, n + j * 8, acc[i][j * 4 + 2 * h], acc[i][j * 4 + 2 * h + 1]);
    }
};

// Dynamic shared memory: STAGES * STAGE + 1024 + 512 = 99,840 bytes.
extern "C" __global__ void __launch_bounds__(128, 2) conv_sm90(Conv c) {
    extern __shared__ char shared[];
    const u32 base = (shared_address(shared) + 1023) & ~1023u;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, client = blockIdx.z, n0 = blockIdx.x * 128, m0 = blockIdx.y * 128;
    const int2 span = c.cohort.spans[client];
    if (m0 >= span.y * c.H * c.W) return;
    Tiles<128, 128, 128> tiles(c, span, client, m0, n0);
    const int steps = tiles.steps();
    float acc[2][64] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) tiles.load(c, base + s * STAGE);
        copies_commit();
    }
    u32 tile = base, free = base + (STAGES - 1) * STAGE;   // what is multiplied, and where the copies go
    auto next = [&](u32 at) { return at == base + (STAGES - 1) * STAGE ? base : at + STAGE; };
    for (int k = 0; k < steps; k++) {
        copies_wait<STAGES - 2>();
        publish();
        __syncthreads();
        const u64 a = descriptor_of(tile), b = a + (128 * 128 >> 4);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
            for (int i = 0; i < 2; i++) wgmma<0>(acc[i], a + ks * 2 + i * (64 * 128 >> 4), b + ks * 2);
        wgmma_commit();
        // The tile before this one has been read by all warps: its place is free while this one is multiplied.
        wgmma_wait<1>();
        __syncthreads();
        if (k + STAGES - 1 < steps) tiles.load(c, free);
        copies_commit();
        tile = next(tile);
        free = next(free);
    }
    wgmma_wait<0>();

    int* places = (int*)(shared + STAGES * STAGE + 1024);
    tiles.tell_places(c, places);
    Sums sums{acc, warp * 16 + (lane >> 2), 2 * (lane & 3)};
    finish<128, 128, 128>(c, client, n0, shared + (base - shared_address(shared)), places, sums);
}
