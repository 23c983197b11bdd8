// Convolutions of a cohort on tensor cores: an implicit matrix product, pixels by output channels, 16-bit factors, 32-bit sums.
// A block computes BM pixels by BN channels; a ring of STAGES tiles hides the memory's latency. See Place for the grid; 128 threads.
#include "conv_tiles.cuh"

// Where mma.sync leaves the sums of a warp's MT x NT products of 16 x 8.
template <int MT, int NT> struct Sums {
    float (&acc)[MT][NT][4];
    int m, n;
    template <class F> __device__ __forceinline__ void each(F f) {
#pragma unroll
        for (int j = 0; j < NT; j++)
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) f(m + i * 16 + h * 8, n + j * 8, acc[i][j][2 * h], acc[i][j][2 * h + 1]);
    }
};

template <int BM, int BN, int WM, int WN, int STAGES> __device__ __forceinline__ void convolve(const Conv& c) {
    constexpr int THREADS = (BM / WM) * (BN / WN) * 32, MT = WM / 16, NT = WN / 8;
    extern __shared__ __align__(1024) char shared[];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const Place<BM, BN> place(c);
    if (place.idle) return;
    Ring<BM, BN, THREADS, STAGES> ring(c, place, shared_address(shared));

    const int wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
    // Where this lane's rows of the fragments begin; a step of 16 inner numbers only flips bits of the chunk.
    const u32 ra = wm + (lane & 15), rb = wn + (lane & 7) + ((lane >> 4) << 3);
    const u32 pa = ra * 128 + (((lane >> 4) ^ (ra & 7)) << 4), pb = (BM + rb) * 128 + ((((lane >> 3) & 1) ^ (rb & 7)) << 4);
    float acc[MT][NT][4] = {};
    for (int k = 0; k < ring.steps; k++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        u32 a[2][MT][4], b[2][NT / 2][4];   // the next fragments arrive while these are multiplied
        auto fetch = [&](int ks) {
#pragma unroll
            for (int i = 0; i < MT; i++) fragment(a[ks & 1][i], (ring.tile + pa + i * 2048) ^ (ks << 5));
#pragma unroll
            for (int j = 0; j < NT / 2; j++) fragment(b[ks & 1][j], (ring.tile + pb + j * 2048) ^ (ks << 5));
        };
        fetch(0);
        ring.load(c, ring.free);
#pragma unroll
        for (int ks = 0; ks < 4; ks++) {
            if (ks < 3) fetch(ks + 1);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) multiply(acc[i][j], a[ks & 1][i], b[ks & 1][j / 2][(j & 1) * 2], b[ks & 1][j / 2][(j & 1) * 2 + 1]);
        }
        ring.turn();
    }
    Sums<MT, NT> sums{acc, wm + (lane >> 2), wn + 2 * (lane & 3)};
    int* places = (int*)(shared + STAGES * ring.STAGE);
    tell_places<BM, BN, THREADS>(c, place, places);
    finish<BM, BN, THREADS>(c, place.client, place.n0, shared, places, sums);
}

// Four warps. Two blocks of 128 x 128 share a multiprocessor; the others are for 64 output channels or 32.
// Dynamic shared memory: STAGES * (BM + BN) * 128 + BM * 4 bytes = 98,816, 98,816 and 82,432.
extern "C" __global__ void __launch_bounds__(128, 2) conv(Conv c) { convolve<128, 128, 64, 64, 3>(c); }
extern "C" __global__ void __launch_bounds__(128, 2) conv_64(Conv c) { convolve<128, 64, 64, 32, 4>(c); }
extern "C" __global__ void __launch_bounds__(128, 2) conv_32(Conv c) { convolve<128, 32, 32, 32, 4>(c); }
