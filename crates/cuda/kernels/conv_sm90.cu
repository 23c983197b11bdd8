// The convolution of conv.cu with Hopper's matrix instruction, which reads both factors from shared memory: no fragments to load.
// One warpgroup a block, 128 pixels by N channels in two products of 64 x N; two blocks a multiprocessor, so that one multiplies while
// the other begins or ends. See Place for the grid; 128 threads.
#include "conv_tiles.cuh"
#include "wgmma.cuh"

// Where wgmma leaves the sums of two products of 64 x N.
template <int N> struct Sums {
    float (&acc)[2][N / 2];
    int m, n;
    template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) f(m + i * 64 + h * 8, n + j * 8, acc[i][j * 4 + 2 * h], acc[i][j * 4 + 2 * h + 1]);
    }
};

template <int N, int STAGES> __device__ __forceinline__ void convolve(const Conv& c) {
    extern __shared__ char shared[];
    const u32 base = (shared_address(shared) + 1023) & ~1023u;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Place<128, N> place(c);
    if (place.idle) return;
    Ring<128, N, 128, STAGES> ring(c, place, base);
    float acc[2][N / 2] = {};
    for (int k = 0; k < ring.steps; k++) {
        copies_wait<STAGES - 2>();
        publish();
        __syncthreads();
        const u64 a = descriptor_of(ring.tile), b = a + (128 * 128 >> 4);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
            for (int i = 0; i < 2; i++) wgmma<0>(acc[i], a + ks * 2 + i * (64 * 128 >> 4), b + ks * 2);
        wgmma_commit();
        // The tile before this one has been read by all warps: its place is free while this one is multiplied.
        wgmma_wait<1>();
        __syncthreads();
        ring.load(c, ring.free);
        ring.turn();
    }
    wgmma_wait<0>();
    Sums<N> sums{acc, warp * 16 + (lane >> 2), 2 * (lane & 3)};
    int* places = (int*)(shared + STAGES * ring.STAGE + 1024);
    tell_places<128, N, 128>(c, place, places);
    finish<128, N, 128>(c, place.client, place.n0, shared + (base - shared_address(shared)), places, sums);
}

// Dynamic shared memory: STAGES * (128 + N) * 128 + 1024 + 512 bytes = 99,840 for both.
extern "C" __global__ void __launch_bounds__(128, 2) conv_sm90(Conv c) { convolve<128, 3>(c); }
extern "C" __global__ void __launch_bounds__(128, 2) conv_64_sm90(Conv c) { convolve<64, 4>(c); }
