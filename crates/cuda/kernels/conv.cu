// 3x3 convolution of a cohort on tensor cores: an implicit matrix product, pixels by output channels, 16-bit factors, 32-bit sums.
// A block computes BM pixels by BN channels; a ring of STAGES tiles hides the memory's latency.
// Grid: (ceil(CO / BN), ceil(most pixels of a client / BM), clients).
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
    constexpr int THREADS = (BM / WM) * (BN / WN) * 32, MT = WM / 16, NT = WN / 8, STAGE = (BM + BN) * 128;
    extern __shared__ __align__(1024) char shared[];
    const u32 base = shared_address(shared);
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, client = blockIdx.z;
    const int n0 = blockIdx.x * BN, m0 = blockIdx.y * BM;
    const int2 span = c.cohort.spans[client];
    if (m0 >= span.y * c.H * c.W) return;
    Tiles<BM, BN, THREADS> tiles(c, span, client, m0, n0);

    const int steps = tiles.steps(), wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
    // Where this lane's rows of the fragments begin; a step of 16 inner numbers only flips bits of the chunk.
    const u32 ra = wm + (lane & 15), rb = wn + (lane & 7) + ((lane >> 4) << 3);
    const u32 pa = ra * 128 + (((lane >> 4) ^ (ra & 7)) << 4), pb = (BM + rb) * 128 + ((((lane >> 3) & 1) ^ (rb & 7)) << 4);
    float acc[MT][NT][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) tiles.load(c, base + s * STAGE);
        copies_commit();
    }
    u32 tile = base, free = base + (STAGES - 1) * STAGE;   // what is multiplied, and where the copies go
    auto next = [&](u32 at) { return at == base + (STAGES - 1) * STAGE ? base : at + STAGE; };
    for (int k = 0; k < steps; k++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        u32 a[2][MT][4], b[2][NT / 2][4];   // the next fragments arrive while these are multiplied
        auto fetch = [&](int ks) {
#pragma unroll
            for (int i = 0; i < MT; i++) fragment(a[ks & 1][i], (tile + pa + i * 2048) ^ (ks << 5));
#pragma unroll
            for (int j = 0; j < NT / 2; j++) fragment(b[ks & 1][j], (tile + pb + j * 2048) ^ (ks << 5));
        };
        fetch(0);
        if (k + STAGES - 1 < steps) tiles.load(c, free);
        copies_commit();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) {
            if (ks < 3) fetch(ks + 1);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) multiply(acc[i][j], a[ks & 1][i], b[ks & 1][j / 2][(j & 1) * 2], b[ks & 1][j / 2][(j & 1) * 2 + 1]);
        }
        tile = next(tile);
        free = next(free);
    }

    int* places = (int*)(shared + STAGES * STAGE);
    tiles.tell_places(c, places);
    Sums<MT, NT> sums{acc, wm + (lane >> 2), wn + 2 * (lane & 3)};
    finish<BM, BN, THREADS>(c, client, n0, shared, places, sums);
}

// Four warps. Two blocks of 128 x 128 share a multiprocessor; 128 x 64 is for few output channels.
// Dynamic shared memory: STAGES * (BM + BN) * 128 + BM * 4 bytes = 98,816 for both.
extern "C" __global__ void __launch_bounds__(128, 2) conv(Conv c) { convolve<128, 128, 64, 64, 3>(c); }
extern "C" __global__ void __launch_bounds__(128, 2) conv_few(Conv c) { convolve<128, 64, 64, 32, 4>(c); }
