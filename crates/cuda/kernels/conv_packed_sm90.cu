// 3x3 convolutions of stride 1 to many channels, and their gradients by input, with Hopper's matrix instruction, for weights packed by pack_weights.
//
// What holds the kernels of conv_sm90.cu back is the way from the second cache to the multiprocessors: 32 KB for every 128 pixels by 128 channels by 64
// inner numbers. Here every pixel is read once for its nine taps (planes.cuh), and two blocks with neighbouring pixels share their weights, each
// fetching half of a tile for both: a third of the bytes.
//
// A block is a warpgroup that multiplies, 128 positions by 128 channels, and a warp that copies; they meet at barriers only, so that copies and products of
// several steps are under way at any time. Inner numbers are taken 64 channels at a time, nine taps each. Two blocks a multiprocessor: one multiplies while the other begins or ends.
// Grid: (ceil(CO / 128), ceil(most positions of a client / 256) * 2, clients), a client having samples * (H + 1) * (W + 1) positions; 160 threads.
// Dynamic shared memory: 1024 + FIXED + 16 planes + 4 bytes a position + stages * 16 KB, 3 or more; positions and planes as in conv_planes_sm90.cu with 128 for 256. As many stages as fit in 115,712 bytes, for two blocks.
#include "barrier.cuh"
#include "conv_tiles.cuh"
#include "planes.cuh"
#include "wgmma.cuh"

constexpr int N = 128, BM = 128, STAGE = N * 128, THREADS = 160, MOST_STAGES = 8, FIXED = 256;

struct Sums {
    float (&acc)[2][N / 2];
    int m, n;
    bool here;   // the warp that copies has none
    template <class F> __device__ __forceinline__ void each(F f) {
        if (!here) return;
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) f(m + i * 64 + h * 8, n + j * 8, acc[i][j * 4 + 2 * h], acc[i][j * 4 + 2 * h + 1]);
    }
};

extern "C" __global__ void __cluster_dims__(1, 2, 1) __launch_bounds__(160, 2) conv_packed_sm90(Conv c) {
    extern __shared__ char memory[];
    char* shared = memory + ((1024 - (shared_address(memory) & 1023)) & 1023);
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, client = blockIdx.z, n0 = blockIdx.x * N, m0 = blockIdx.y * BM;
    const Line line(c.cohort, client, c.H, c.W);
    if ((int)(blockIdx.y & ~1u) * BM >= line.length()) return;   // both blocks of the pair
    const int margin = line.pitch + 1, positions = BM + 2 * margin, plane = plane_bytes(positions), chunks = (c.CI + 63) / 64;
    u32 room;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(room));
    const int fit = ((int)room - 1024 - FIXED - 16 * plane - 4 * positions) / STAGE, stages = fit < MOST_STAGES ? fit : MOST_STAGES;
    // Weights, two times eight planes of pixels, where they are, barriers.
    const u32 ring = shared_address(shared), pixels = ring + stages * STAGE, barriers = pixels + 16 * plane + (4 * positions + 7) / 8 * 8;
    int* pixel = (int*)(shared + stages * STAGE + 16 * plane);
    auto full = [&](int stage) { return barriers + stage * 8; };
    auto empty = [&](int stage) { return barriers + (MOST_STAGES + stage) * 8; };
    auto pixels_full = [&](int chunk) { return barriers + (2 * MOST_STAGES + (chunk & 1)) * 8; };
    auto pixels_empty = [&](int chunk) { return barriers + (2 * MOST_STAGES + 2 + (chunk & 1)) * 8; };
    if (tid == 0) {
        for (int s = 0; s < stages; s++) {
            barrier_init(full(s), 1);
            barrier_init(empty(s), 8);   // the warps that multiply, of both blocks
        }
        for (int s = 0; s < 2; s++) {
            barrier_init(pixels_full(s), 32);
            barrier_init(pixels_empty(s), 4);
        }
        barriers_ready();
    }
    for (int r = tid; r < positions; r += THREADS) pixel[r] = line.pixel_at(c.cohort, m0 - margin + r, c.H);
    __syncthreads();
    cluster_sync();

    float acc[2][N / 2] = {};
    if (warp == 4) {
        const int rank = cluster_rank(), part = lane & 7, row0 = lane >> 3;   // eight threads copy a position
        const f16* w = c.w + client * c.w_stride + (i64)blockIdx.x * chunks * 9 * (STAGE / 2) + rank * (STAGE / 4);
        const int rounds = (positions + 3) / 4, each = (rounds + 4) / 5;
        auto load_pixels = [&](int chunk, int first, int last) {
            const bool there = chunk * 64 + part * 8 < c.CI;
            const u32 to = pixels + ((chunk & 1) * 8 + part) * plane;
            const f16* from = c.x + chunk * 64 + part * 8;
#pragma unroll 4
            for (int i = first; i < last && i < rounds; i++) {
                const int r = row0 + i * 4;
                if (r < positions) copy16(to + r * 16, from + (i64)pixel[r] * c.CI, there && pixel[r] >= 0);
            }
        };
        auto pixels_are_there = [&](int chunk) {
            copies_commit();
            copies_wait<0>();
            publish();
            barrier_arrive(pixels_full(chunk));
        };
        load_pixels(0, 0, rounds);
        Turn turn = {0, 1};
        for (int chunk = 0; chunk < chunks; chunk++)
            for (int tap = 0; tap < 9; tap++) {
                barrier_wait(empty(turn.at), turn.parity);
                if (lane == 0) {
                    barrier_expect(full(turn.at), STAGE);
                    copy_to_both(ring + turn.at * STAGE + rank * (STAGE / 2), w + (i64)(chunk * 9 + tap) * (STAGE / 2), STAGE / 2, full(turn.at));
                }
                __syncwarp();
                turn.next(stages);
                // Pixels of the next 64 channels come with the last taps of these: those who multiply are then done with the ones before.
                if (tap == 1) pixels_are_there(chunk);
                if (tap >= 4 && chunk + 1 < chunks) {
                    if (tap == 4) barrier_wait(pixels_empty(chunk + 1), (chunk + 1 >> 1 & 1) ^ 1);
                    load_pixels(chunk + 1, (tap - 4) * each, (tap - 3) * each);
                }
            }
    } else {
        Turn turn = {0, 0};
        int before = 0;   // the stage of the step before this one
        for (int chunk = 0; chunk < chunks; chunk++) {
            barrier_wait(pixels_full(chunk), chunk >> 1 & 1);
#pragma unroll 1
            for (int ty = 0; ty < 3; ty++)
#pragma unroll 1
                for (int tx = 0; tx < 3; tx++) {
                    barrier_wait(full(turn.at), turn.parity);
                    const u64 a = plane_descriptor_of(pixels + (chunk & 1) * 8 * plane + (ty * line.pitch + tx) * 16, plane), b = descriptor_of(ring + turn.at * STAGE);
                    wgmma_fence();
#pragma unroll
                    for (int ks = 0; ks < 4; ks++)
#pragma unroll
                        for (int i = 0; i < 2; i++) wgmma<0>(acc[i], a + ks * 2 * (plane >> 4) + i * 64, b + ks * 2);
                    wgmma_commit();
                    wgmma_wait<1>();
                    // What was multiplied before this step has been read.
                    const bool first = chunk == 0 && ty == 0 && tx == 0;
                    if (lane < 2 && !first) barrier_arrive_at(empty(before), lane);
                    if (lane == 2 && chunk && ty == 0 && tx == 0) barrier_arrive(pixels_empty(chunk - 1));
                    __syncwarp();
                    before = turn.at;
                    turn.next(stages);
                }
        }
        wgmma_wait<0>();
    }
    __syncthreads();
    Sums sums{acc, warp * 16 + (lane >> 2), 2 * (lane & 3), warp < 4};
    finish<BM, N, THREADS>(c, client, n0, shared, pixel + margin, sums);
    cluster_sync();   // the other block may still arrive at the barriers of this one
}
