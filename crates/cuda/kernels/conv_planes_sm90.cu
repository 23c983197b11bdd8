// 3x3 convolutions of stride 1 to few channels, and their gradients by input, with Hopper's matrix instruction and every pixel read once for its nine
// taps (planes.cuh). At 64 channels it takes three quarters of the time of conv_sm90.cu; at 128, with one block a multiprocessor, it took longer.
// Two warpgroups a block, 256 positions by 64 channels, two blocks a multiprocessor. Inner numbers are taken 64 channels at a time, nine taps each: pixels of the next 64 channels
// arrive while these are multiplied; weights go through a ring.
// Grid: (ceil(CO / 64), ceil(most positions of a client / 256), clients), a client having samples * (H + 1) * (W + 1) positions; 256 threads.
#include "conv_tiles.cuh"
#include "planes.cuh"
#include "wgmma.cuh"

constexpr int N = 64, STAGES = 3, STAGE = N * 128, BM = 256, THREADS = 256, SPREAD = 5;   // pixels of the next channels come with the first taps of these

struct Sums {
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

// Dynamic shared memory: STAGES * STAGE + 16 planes + 4 bytes a position + 1024, with BM + 2 (W + 2) positions, a plane being 16 bytes a position (their
// number rounded up to a multiple of 8, and one more).
extern "C" __global__ void __launch_bounds__(256, 2) conv_planes_sm90(Conv c) {
    extern __shared__ char memory[];
    char* shared = memory + ((1024 - (shared_address(memory) & 1023)) & 1023);
    const int tid = threadIdx.x, group = tid >> 7, warp = tid >> 5 & 3, lane = tid & 31, client = blockIdx.z, n0 = blockIdx.x * N, m0 = blockIdx.y * BM;
    const Line line(c.cohort, client, c.H, c.W);
    if (m0 >= line.length()) return;
    const int margin = line.pitch + 1, positions = BM + 2 * margin, plane = plane_bytes(positions), chunks = (c.CI + 63) / 64;
    const u32 ring = shared_address(shared), pixels = ring + STAGES * STAGE;
    int* pixel = (int*)(shared + STAGES * STAGE + 16 * plane);   // behind two times eight planes
    for (int r = tid; r < positions; r += THREADS) pixel[r] = line.pixel_at(c.cohort, m0 - margin + r, c.H);
    __syncthreads();

    const int part = tid & 7, row0 = tid >> 3;   // eight threads copy a position or an output channel
    const f16* w = c.w + client * c.w_stride + (i64)(n0 + row0) * 9 * c.CI + part * 8;
    const u32 w_to = row0 * 128 + ((part ^ (row0 & 7)) << 4);
    auto load_weights = [&](int chunk, int tap, u32 to) {
        const bool there = chunk * 64 + part * 8 < c.CI;
#pragma unroll
        for (int i = 0; i < N / 32; i++) copy16(to + w_to + i * 32 * 128, w + (i64)i * 32 * 9 * c.CI + tap * c.CI + chunk * 64, there && n0 + row0 + i * 32 < c.CO);
    };
    const int rounds = (positions + 31) / 32;
    auto load_pixels = [&](int chunk, int first, int last) {
        const bool there = chunk * 64 + part * 8 < c.CI;
        for (int i = first; i < last && i < rounds; i++) {
            const int r = row0 + i * 32;
            if (r < positions) copy16(pixels + (chunk & 1) * 8 * plane + part * plane + r * 16, c.x + (i64)pixel[r] * c.CI + chunk * 64 + part * 8, there && pixel[r] >= 0);
        }
    };
    load_pixels(0, 0, rounds);
    int ahead_chunk = 0, ahead_tap = 0;   // of the next weights to be copied
    auto ahead = [&](u32 to) {
        if (ahead_chunk < chunks) load_weights(ahead_chunk, ahead_tap, to);
        if (++ahead_tap == 9) { ahead_tap = 0; ahead_chunk++; }
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        ahead(ring + s * STAGE);
        copies_commit();
    }
    u32 tile = ring, free = ring + (STAGES - 1) * STAGE;   // weights that are multiplied, and where the copies go
    auto next = [&](u32 at) { return at == ring + (STAGES - 1) * STAGE ? ring : at + STAGE; };
    const int each = (rounds + SPREAD - 1) / SPREAD;
    int chunk = 0, tap = 0, ty = 0, tx = 0;
    float acc[2][N / 2] = {};
    do {
        copies_wait<STAGES - 2>();
        publish();
        __syncthreads();
        const u64 a = plane_descriptor_of(pixels + (chunk & 1) * 8 * plane + (group * 128 + ty * line.pitch + tx) * 16, plane), b = descriptor_of(tile);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 4; ks++)
#pragma unroll
            for (int i = 0; i < 2; i++) wgmma<0>(acc[i], a + ks * 2 * (plane >> 4) + i * 64, b + ks * 2);
        wgmma_commit();
        // What was multiplied before has been read by all warps: its place is free while this is multiplied.
        wgmma_wait<1>();
        __syncthreads();
        ahead(free);
        if (tap < SPREAD && chunk + 1 < chunks) load_pixels(chunk + 1, tap * each, (tap + 1) * each);
        copies_commit();
        tile = next(tile);
        free = next(free);
        tap++;
        if (++tx == 3) { tx = 0; ty++; }
        if (tap == 9) { tap = ty = 0; chunk++; }
    } while (chunk < chunks);
    wgmma_wait<0>();
    __syncthreads();
    Sums sums{acc, group * 128 + warp * 16 + (lane >> 2), 2 * (lane & 3)};
    finish<BM, N, THREADS>(c, client, n0, shared, pixel + margin, sums);
}
