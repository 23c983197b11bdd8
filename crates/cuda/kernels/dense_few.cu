// Fully connected layers of many weights and few samples, which should cost no more than to read (or write) the weights once: the products of dense.cu, one row a sample
// (`per` is 1), in 32 bits. Weights go from memory to the registers of one thread, or through a pipeline of copies where they must be turned; samples are what is read again
// and again, from shared memory, the same number for all lanes of a warp. Groups of four rows that are not there are not computed.
// Inputs and outputs are multiples of 4, and clients' weights begin at multiples of 16 bytes. Blocks of 128 threads. Every sum has one order.
#include "dense.cuh"
#include "tensor_core.cuh"

constexpr int ROWS = 32;

__device__ __forceinline__ void add_to(float4& sum, float f, float4 v) {
    sum.x = fmaf(f, v.x, sum.x); sum.y = fmaf(f, v.y, sum.y); sum.z = fmaf(f, v.z, sum.z); sum.w = fmaf(f, v.w, sum.w);
}
__device__ __forceinline__ float4 nothing() { return make_float4(0.f, 0.f, 0.f, 0.f); }

// Piece number `index` of `pieces` of an inner sum of n, a multiple of `step` long but for the last.
struct Stretch { int begin, end; };
__device__ __forceinline__ Stretch piece_of(int n, int pieces, int index, int step) {
    const int length = ((n + pieces - 1) / pieces + step - 1) / step * step, begin = index * length;
    return {begin < n ? begin : n, begin + length < n ? begin + length : n};
}

// partial[part][sample][out], 32 samples by 128 columns, four a lane. The warps of a block take a quarter of its part of the inner sum each, and wait for each other only at the end.
// Grid: (ceil(out / 128), ceil(most samples of a client / 32) * parts, clients).
extern "C" __global__ void __launch_bounds__(128) dense_forward_few(Dense d, float* partial, int parts, int samples) {
    constexpr int DEPTH = 8;
    const int client = blockIdx.z, part = blockIdx.y % parts, m0 = blockIdx.y / parts * ROWS;
    const int2 span = d.cohort.spans[client];
    if (m0 >= span.y) return;
    __shared__ __align__(16) float xs[4][2][ROWS][DEPTH], sums[ROWS][128];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = blockIdx.x * 128 + lane * 4;
    const int rows = span.y - m0 < ROWS ? span.y - m0 : ROWS, quads = (rows + 3) / 4;
    const Stretch k = piece_of(d.in, parts * 4, part * 4 + warp, DEPTH);
    const float *w = d.w + client * d.w_stride + n, *x = d.x + (lane < rows ? (i64)sample_at(d.cohort, span, m0 + lane) * d.in : 0);
    float4 acc[ROWS], next_w[DEPTH], next_x[DEPTH / 4];
#pragma unroll
    for (int m = 0; m < ROWS; m++) acc[m] = nothing();
    auto fetch = [&](int k0) {
#pragma unroll
        for (int j = 0; j < DEPTH; j++) next_w[j] = k0 + j < k.end && n < d.out ? *(const float4*)(w + (i64)(k0 + j) * d.out) : nothing();
#pragma unroll
        for (int j = 0; j < DEPTH; j += 4) next_x[j / 4] = k0 + j < k.end && lane < rows ? *(const float4*)(x + k0 + j) : nothing();
    };
    fetch(k.begin);
    for (int k0 = k.begin, stage = 0; k0 < k.end; k0 += DEPTH, stage ^= 1) {
        float4 now[DEPTH];
#pragma unroll
        for (int j = 0; j < DEPTH; j++) now[j] = next_w[j];
#pragma unroll
        for (int j = 0; j < DEPTH; j += 4) *(float4*)&xs[warp][stage][lane][j] = next_x[j / 4];
        __syncwarp();   // and whoever is here has read the other stage
        if (k0 + DEPTH < k.end) fetch(k0 + DEPTH);
#pragma unroll
        for (int q = 0; q < ROWS / 4; q++)
            if (q < quads)
#pragma unroll
                for (int m = 4 * q; m < 4 * q + 4; m++)
#pragma unroll
                    for (int j = 0; j < DEPTH; j += 4) {
                        const float4 f = *(const float4*)&xs[warp][stage][m][j];
                        add_to(acc[m], f.x, now[j]); add_to(acc[m], f.y, now[j + 1]); add_to(acc[m], f.z, now[j + 2]); add_to(acc[m], f.w, now[j + 3]);
                    }
    }
    for (int turn = 0; turn < 4; turn++) {   // the warps' sums, in their order
        if (warp == turn)
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
                float4* to = (float4*)&sums[m][lane * 4];
                if (m < rows) *to = turn ? *to + acc[m] : acc[m];
            }
        __syncthreads();
    }
    if (n >= d.out) return;
    for (int m = warp; m < rows; m += 4) *(float4*)(partial + ((i64)part * samples + sample_at(d.cohort, span, m0 + m)) * d.out + n) = *(const float4*)&sums[m][lane * 4];
}

// dx = dy W^T as partial[part][sample][in], 32 samples by 128 inputs, one a thread; with one part that is dx. Three stages of 32 outputs are on their way.
// Grid: (ceil(in / 128), ceil(most samples of a client / 32) * parts, clients), with INPUT_SHARED bytes of dynamic shared memory.
constexpr int OUTPUTS = 32, PITCH = OUTPUTS + 4, STAGE = (128 + ROWS) * PITCH, STAGES = 3;   // lanes read what is PITCH numbers apart without conflicts
constexpr int INPUT_SHARED = STAGES * STAGE * 4;
static_assert(INPUT_SHARED == 69120, "what hosts ask for");
extern "C" __global__ void __launch_bounds__(128) dense_input_few(Dense d, float* partial, int parts, int samples) {
    extern __shared__ __align__(16) float stages[];
    const int client = blockIdx.z, part = blockIdx.y % parts, m0 = blockIdx.y / parts * ROWS, n0 = blockIdx.x * 128, tid = threadIdx.x;
    const int2 span = d.cohort.spans[client];
    if (m0 >= span.y) return;
    const int rows = span.y - m0 < ROWS ? span.y - m0 : ROWS, quads = (rows + 3) / 4;
    const Stretch k = piece_of(d.out, parts, part, OUTPUTS);
    const int steps = (k.end - k.begin + OUTPUTS - 1) / OUTPUTS;
    const float* w = d.w + client * d.w_stride;
    const int quad = tid % 8 * 4;   // the outputs of a stage that this thread copies, for every 16th input and sample
    const float* dy[ROWS / 16];
#pragma unroll
    for (int i = 0; i < ROWS / 16; i++) {
        const int m = tid / 8 + i * 16;
        dy[i] = m < rows ? d.dy + (i64)sample_at(d.cohort, span, m0 + m) * d.out : nullptr;
    }
    auto fetch = [&](int step) {
        if (step < steps) {
            float* to = stages + step % STAGES * STAGE;
            const int at = k.begin + step * OUTPUTS + quad;
            const bool inside = at < k.end;
#pragma unroll
            for (int i = 0; i < 8; i++) {
                const int n = tid / 8 + i * 16;
                const bool there = inside && n0 + n < d.in;
                copy16(shared_address(to + n * PITCH + quad), there ? w + (i64)(n0 + n) * d.out + at : w, there);
            }
#pragma unroll
            for (int i = 0; i < ROWS / 16; i++) {
                const bool there = inside && dy[i];
                copy16(shared_address(to + (128 + tid / 8 + i * 16) * PITCH + quad), there ? dy[i] + at : w, there);
            }
        }
        copies_commit();   // a group of nothing at the end, so that there are always as many
    };
    float acc[ROWS] = {};
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) fetch(step);
    for (int step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads();   // this stage is there, and nobody reads the one that is fetched into
        fetch(step + STAGES - 1);
        const float *stage = stages + step % STAGES * STAGE, *mine = stage + tid * PITCH, *theirs = stage + 128 * PITCH;
#pragma unroll
        for (int j = 0; j < OUTPUTS; j += 4) {
            const float4 v = *(const float4*)(mine + j);
#pragma unroll
            for (int q = 0; q < ROWS / 4; q++)
                if (q < quads)
#pragma unroll
                    for (int m = 4 * q; m < 4 * q + 4; m++) {
                        const float4 f = *(const float4*)(theirs + m * PITCH + j);
                        acc[m] = fmaf(f.w, v.w, fmaf(f.z, v.z, fmaf(f.y, v.y, fmaf(f.x, v.x, acc[m]))));
                    }
        }
    }
    if (n0 + tid >= d.in) return;
#pragma unroll
    for (int m = 0; m < ROWS; m++)
        if (m < rows) partial[((i64)part * samples + sample_at(d.cohort, span, m0 + m)) * d.in + n0 + tid] = acc[m];
}

// dw = x^T dy for up to 32 samples a client, clients `w_stride` apart: 128 inputs by 128 columns. A lane has the gradients of its four columns in registers, and a warp takes every
// fourth input. Grid: (ceil(out / 128), ceil(in / 128), clients).
extern "C" __global__ void __launch_bounds__(128) dense_weights_few(Dense d, float* dw) {
    __shared__ __align__(16) float xs[128][ROWS + 4];
    const int client = blockIdx.z, i0 = blockIdx.y * 128, tid = threadIdx.x, warp = tid / 32, n = blockIdx.x * 128 + tid % 32 * 4;
    const int2 span = d.cohort.spans[client];
    const int quads = (span.y + 3) / 4;
    float4 dy[ROWS];
#pragma unroll
    for (int m = 0; m < ROWS; m++) dy[m] = m < span.y && n < d.out ? *(const float4*)(d.dy + (i64)sample_at(d.cohort, span, m) * d.out + n) : nothing();
#pragma unroll
    for (int q = 0; q < ROWS / 4; q++)
        if (q < quads) {
            float f[4];
#pragma unroll
            for (int m = 0; m < 4; m++) f[m] = 4 * q + m < span.y && i0 + tid < d.in ? d.x[(i64)sample_at(d.cohort, span, 4 * q + m) * d.in + i0 + tid] : 0.f;
            *(float4*)&xs[tid][4 * q] = make_float4(f[0], f[1], f[2], f[3]);
        }
    __syncthreads();
    if (n >= d.out) return;
    float* to = dw + client * d.w_stride + n;
#pragma unroll 4
    for (int i = warp; i < 128; i += 4) {
        if (i0 + i >= d.in) return;
        float4 sum = nothing();
#pragma unroll
        for (int q = 0; q < ROWS / 4; q++)
            if (q < quads) {
                const float4 f = *(const float4*)&xs[i][4 * q];
                add_to(sum, f.x, dy[4 * q]); add_to(sum, f.y, dy[4 * q + 1]); add_to(sum, f.z, dy[4 * q + 2]); add_to(sum, f.w, dy[4 * q + 3]);
            }
        *(float4*)(to + (i64)(i0 + i) * d.out) = sum;
    }
}
