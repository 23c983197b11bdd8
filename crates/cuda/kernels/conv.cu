// 3x3 convolution of a cohort on tensor cores: an implicit matrix product, pixels by output channels, 16-bit factors, 32-bit sums.
//
// A block computes BM pixels by BN channels. The inner dimension, 9 taps of CI channels, goes by in steps of 64 numbers (128 bytes);
// a ring of STAGES tiles hides the memory's latency. Rows of a tile are 128 bytes, their eight 16-byte chunks permuted by
// `chunk ^ (row % 8)`, so that neither the copies in nor the fragments out meet in a bank. An image's border costs nothing: taps outside
// are copies of zero bytes.
// Grid: (ceil(CO / BN), ceil(most pixels of a client / BM), clients).
#include "conv.cuh"
#include "tensor_core.cuh"

template <int PHI, class OUT, int BM, int BN, int WM, int WN, int STAGES> __device__ __forceinline__ void convolve(const Conv& c) {
    constexpr int THREADS = (BM / WM) * (BN / WN) * 32, ROWS = THREADS / 8;   // eight threads copy a row
    constexpr int AR = BM / ROWS, BR = BN / ROWS, MT = WM / 16, NT = WN / 8, STAGE = (BM + BN) * 128;
    extern __shared__ __align__(1024) char shared[];
    const u32 base = shared_address(shared);
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, client = blockIdx.z;
    const int n0 = blockIdx.x * BN, m0 = blockIdx.y * BM;
    const int2 span = c.cohort.spans[client];
    if (m0 >= span.y * c.H * c.W) return;

    const int row0 = tid >> 3, chunk = tid & 7, chunks = c.CI / 8;   // chunks a tap
    Pixel pixel[AR];
#pragma unroll
    for (int i = 0; i < AR; i++) pixel[i] = pixel_of(c.cohort, span, m0 + row0 + i * ROWS, c.H, c.W);
    const f16* w = c.w + client * c.w_stride + (i64)(n0 + row0) * 9 * c.CI;
    const u32 to = row0 * 128 + ((chunk ^ (row0 & 7)) << 4);
    int tap = 0, at = chunk;   // of the next step's copies, this thread's chunk
    while (at >= chunks) { at -= chunks; tap++; }
    auto load = [&](int stage) {
        const u32 d = base + stage * STAGE + to;
        const int offset = tap_offset(tap, c.W);
#pragma unroll
        for (int i = 0; i < AR; i++) {
            const bool in = pixel[i].inside >> tap & 1;
            copy16(d + i * ROWS * 128, in ? c.x + (i64)(pixel[i].at + offset) * c.CI + at * 8 : c.x, in);
        }
        const f16* from = w + tap * c.CI + at * 8;
#pragma unroll
        for (int i = 0; i < BR; i++) {
            const bool in = tap < 9 && n0 + row0 + i * ROWS < c.CO;
            copy16(d + (BM + i * ROWS) * 128, in ? from + (i64)i * ROWS * 9 * c.CI : c.w, in);
        }
        at += 8;
        while (at >= chunks) { at -= chunks; tap++; }
    };

    const int steps = (9 * chunks + 7) / 8, wm = warp % (BM / WM) * WM, wn = warp / (BM / WM) * WN;
    // Where this lane's rows of the fragments begin; a step of 16 inner numbers only flips bits of the chunk.
    const u32 ra = wm + (lane & 15), rb = wn + (lane & 7) + ((lane >> 4) << 3);
    const u32 pa = ra * 128 + (((lane >> 4) ^ (ra & 7)) << 4), pb = (BM + rb) * 128 + ((((lane >> 3) & 1) ^ (rb & 7)) << 4);
    float acc[MT][NT][4] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load(s);
        copies_commit();
    }
    for (int k = 0; k < steps; k++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        const u32 tile = base + (k % STAGES) * STAGE;
        u32 a[2][MT][4], b[2][NT / 2][4];   // the next fragments arrive while these are multiplied
        auto fetch = [&](int ks) {
#pragma unroll
            for (int i = 0; i < MT; i++) fragment(a[ks & 1][i], (tile + pa + i * 2048) ^ (ks << 5));
#pragma unroll
            for (int j = 0; j < NT / 2; j++) fragment(b[ks & 1][j], (tile + pb + j * 2048) ^ (ks << 5));
        };
        fetch(0);
        if (k + STAGES - 1 < steps) load((k + STAGES - 1) % STAGES);
        copies_commit();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) {
            if (ks < 3) fetch(ks + 1);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < NT; j++) multiply(acc[i][j], a[ks & 1][i], b[ks & 1][j / 2][(j & 1) * 2], b[ks & 1][j / 2][(j & 1) * 2 + 1]);
        }
    }

    // The rows a thread multiplies are not those it copied: their pixels go through shared memory, past the tiles still being read.
    int* places = (int*)(shared + STAGES * STAGE);
    if (chunk == 0)
#pragma unroll
        for (int i = 0; i < AR; i++) places[row0 + i * ROWS] = pixel[i].at;
    __syncthreads();
    const float* bias = c.bias ? c.bias + client * c.bias_stride : nullptr;
#pragma unroll
    for (int j = 0; j < NT; j++) {
        const int n = n0 + wn + j * 8 + 2 * (lane & 3);
        if (n >= c.CO) continue;
        const float2 add = bias ? load2(bias, n / 2) : make_float2(0.f, 0.f);
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int place = places[wm + i * 16 + (lane >> 2) + h * 8];
                const float2 v = make_float2(phi<PHI>(c.alpha * acc[i][j][2 * h] + add.x), phi<PHI>(c.alpha * acc[i][j][2 * h + 1] + add.y));
                if (place >= 0) store2((OUT*)c.y, ((i64)place * c.CO + n) / 2, v);
            }
    }
}

// Four warps. Two blocks of 128 x 128 share a multiprocessor; 128 x 64 is for few output channels.
// Dynamic shared memory: STAGES * (BM + BN) * 128 + BM * 4 bytes = 98,816 for both.
#define CONV(NAME, PHI, OUT)                                                                                                           \
    extern "C" __global__ void __launch_bounds__(128, 2) NAME(Conv c) { convolve<PHI, OUT, 128, 128, 64, 64, 3>(c); }                   \
    extern "C" __global__ void __launch_bounds__(128, 2) NAME##_narrow(Conv c) { convolve<PHI, OUT, 128, 64, 64, 32, 4>(c); }
CONV(conv_f32, IDENTITY, float)
CONV(conv_f16, IDENTITY, f16)
CONV(conv_f16_relu, RELU, f16)
CONV(conv_f16_softplus, SOFTPLUS, f16)
