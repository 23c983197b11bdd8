// Gradients of 3x3 convolutions of stride 1 by their weights with Hopper's matrix instruction, every pixel read once for its nine taps (planes.cuh).
// Three warpgroups a block, one for each row of taps: 64 output channels by 64 input channels by nine taps. They copy together and meet at
// barriers only, so that copies and products of several steps are under way at any time. A block walks its part of its client's
// positions in order, DEPTH a step; sum_parts adds the parts. Up to two convolutions share a launch.
// Grid: (tiles of both problems, clients, parts), a problem having ceil(CO / 64) * ceil(CI / 64) tiles; 384 threads.
// Dynamic shared memory: STAGES * (DEPTH * 128 + 8 planes, in whole KB) + 6,144 + 1,024 + 64 bytes, with DEPTH + 2 (W + 2) <= 384 positions.
#include "barrier.cuh"
#include "planes.cuh"
#include "weight_gradient.cuh"
#include "wgmma.cuh"

constexpr int DEPTH = 128, STAGES = 4, AHEAD = STAGES - 1, THREADS = 384, TABLES = 4, OF_DY = DEPTH * 128;

__device__ __forceinline__ void gradient(const WeightGradient& p, const Cohort& cohort, int index, int client) {
    extern __shared__ char memory[];
    char* shared = memory + ((1024 - (shared_address(memory) & 1023)) & 1023);
    const int tid = threadIdx.x, group = tid >> 7, warp = tid >> 5 & 3, lane = tid & 31;
    const Line line(cohort, client, p.H, p.W);
    const int across = (p.CI + 63) / 64, c0 = index % across * 64, o0 = index / across * 64;
    const int margin = line.pitch + 1, positions = DEPTH + 2 * margin, plane = plane_bytes(positions), bytes = (OF_DY + 8 * plane + 1023) & ~1023;
    const int all = (line.length() + DEPTH - 1) / DEPTH, first = (int)((i64)all * blockIdx.z / gridDim.z), steps = (int)((i64)all * (blockIdx.z + 1) / gridDim.z) - first;
    const u32 ring = shared_address(shared), barriers = ring + STAGES * bytes + TABLES * THREADS * 4;
    int* pixel = (int*)(shared + STAGES * bytes);   // [TABLES][THREADS], of the steps that are copied next
    auto full = [&](int k) { return barriers + k % STAGES * 8; };
    auto empty = [&](int k) { return barriers + (STAGES + k % STAGES) * 8; };
    auto stage_of = [&](int k) { return ring + k % STAGES * bytes; };
    auto look_up = [&](int k) { return tid < positions && k < steps ? line.place_of(cohort, (first + k) * DEPTH - margin + tid, p.H) : make_int2(-1, 0); };
    auto note = [&](int k, int2 place) {
        if (tid < positions && k < steps) pixel[k % TABLES * THREADS + tid] = line.pixel_of(place, p.H);
    };
    const int part = tid & 7, row0 = tid >> 3;   // eight threads copy a position, 48 positions at a time
    const bool has_x = c0 + part * 8 < p.CI, has_dy = o0 + part * 8 < p.CO;
    auto load = [&](int k) {
        if (k >= steps) return;
        const int* of = pixel + k % TABLES * THREADS;
        const u32 to = stage_of(k);
        for (int r = row0; r < DEPTH; r += 48) copy16(to + r * 128 + ((part ^ (r & 7)) << 4), p.dy + (i64)of[r + margin] * p.CO + o0 + part * 8, has_dy && of[r + margin] >= 0);
        for (int r = row0; r < positions; r += 48) copy16(to + OF_DY + part * plane + r * 16, p.x + (i64)of[r] * p.CI + c0 + part * 8, has_x && of[r] >= 0);
        barrier_arrive_after_copies(full(k));
    };
    if (tid == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(full(s), THREADS);
            barrier_init(empty(s), THREADS / 32);
        }
        barriers_ready();
    }
    // Step k loads k + AHEAD and looks up one more: whoever knows that all are done with step k - 1 sees what they looked up in it.
    for (int k = 0; k <= AHEAD; k++) note(k, look_up(k));
    __syncthreads();
    for (int k = 0; k < AHEAD; k++) load(k);
    // Rows of dy are positions, the inner dimension: fragments are read transposed.
    const u32 ka = (lane & 7) + ((lane >> 4) << 3), from = ka * 128 + ((((lane >> 3 & 1) + 2 * warp) ^ (ka & 7)) << 4);
    float acc[3][32] = {};
    u32 a[2][2][4];
    for (int k = 0; k < steps; k++) {
        barrier_wait(full(k), k / STAGES & 1);
        publish();
        const u32 at = stage_of(k);
        const int2 next = look_up(k + AHEAD + 1);   // which takes a while
        const u64 b = transposed_plane_descriptor_of(at + OF_DY + group * line.pitch * 16, plane);
#pragma unroll
        for (int q = 0; q < 4; q++) {   // fragments of one quarter arrive while another one is multiplied
#pragma unroll
            for (int ks = 0; ks < 2; ks++) fragment_transposed(a[q & 1][ks], at + from + (q * 2 + ks) * 16 * 128);
            wgmma_fence();
#pragma unroll
            for (int ks = 0; ks < 2; ks++)
#pragma unroll
                for (int t = 0; t < 3; t++) wgmma(acc[t], a[q & 1][ks], b + (q * 2 + ks) * 16 + t);
            wgmma_commit();
            wgmma_wait<1>();
            if (q == 0 && k) {   // the step before has been read
                __syncwarp();
                if (lane == 0) barrier_arrive(empty(k - 1));
                __syncwarp();
            }
        }
        note(k + AHEAD + 1, next);
        if (k && k + AHEAD < steps) barrier_wait(empty(k - 1), (k - 1) / STAGES & 1);
        load(k + AHEAD);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int t = 0; t < 3; t++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int o = o0 + warp * 16 + (lane >> 2) + h * 8, c = c0 + j * 8 + 2 * (lane & 3);
                if (o < p.CO && c < p.CI) store2(p.dw + blockIdx.z * p.part_stride + client * p.w_stride, (((i64)o * 9 + group * 3 + t) * p.CI + c) / 2, make_float2(p.alpha * acc[t][j * 4 + 2 * h], p.alpha * acc[t][j * 4 + 2 * h + 1]));
            }
}

extern "C" __global__ void __launch_bounds__(384, 1) conv_weights_planes_sm90(WeightGradient first, WeightGradient second, int tiles_of_first, Cohort cohort) {
    gradient(chosen(first, second, tiles_of_first), cohort, tile_of_block(tiles_of_first), blockIdx.y);
}
