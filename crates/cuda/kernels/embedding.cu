// Vectors that stand for symbols: gathered, and their gradients.
#include "text.cuh"

// out[sample][position][width] = tokens[client][symbol] + positions[client][position] (may be null); clients are `stride` numbers apart in both.
// Grid: (ceil(length * width / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) embed(const float* tokens, const float* positions, float* out, Text text, Cohort cohort, i64 stride, int width) {
    const Mine mine = my_sample(cohort);
    const int e = blockIdx.x * 256 + threadIdx.x, position = e / width, c = e - position * width;
    if (!mine.here || position >= text.length) return;
    const float v = tokens[mine.client * stride + (i64)text_of(text, mine.sample)[position] * width + c];
    out[mine.sample * text.length * width + e] = positions ? v + positions[mine.client * stride + e] : v;
}

// dtokens[client][symbol][width] = sum of d over the positions where the symbol stands; every symbol is written, or added to. Each block lists its symbol's
// positions in order, so that the sum has one order. (The positions' gradient is sum_samples.)
// Grid: (symbols, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) embed_backward(const float* d, float* dtokens, Text text, Cohort cohort, i64 stride, int width, int add) {
    __shared__ i64 found[256];
    __shared__ int counts[8];
    __shared__ float each[256];
    const int symbol = blockIdx.x, client = blockIdx.y, tid = threadIdx.x, warp = tid >> 5;
    const int2 span = cohort.spans[client];
    for (int c0 = 0; c0 < width; c0 += 64) {   // 64 channels by 4 lanes of positions
        const int channel = c0 + (tid & 63), lane = tid >> 6;
        float sum = 0.f;
        for (int row0 = 0; row0 < span.y * text.length; row0 += 256) {
            const int row = row0 + tid, index = row / text.length, position = row - index * text.length;
            const bool inside = index < span.y;
            const i64 sample = inside ? sample_at(cohort, span, index) : 0;
            const u32 here = __ballot_sync(~0u, inside && text_of(text, sample)[position] == symbol);
            if ((tid & 31) == 0) counts[warp] = __popc(here);
            __syncthreads();
            int before = __popc(here & ((1u << (tid & 31)) - 1)), all = 0;
            for (int w = 0; w < 8; w++) { before += w < warp ? counts[w] : 0; all += counts[w]; }
            if (here >> (tid & 31) & 1) found[before] = sample * text.length + position;
            __syncthreads();
            if (channel < width)
                for (int k = lane; k < all; k += 4) sum += d[found[k] * width + channel];
            __syncthreads();
        }
        each[tid] = sum;
        __syncthreads();
        if (lane == 0 && channel < width) {
            float* to = dtokens + client * stride + (i64)symbol * width + channel;
            const float all = ((each[tid] + each[tid + 64]) + each[tid + 128]) + each[tid + 192];
            *to = add ? *to + all : all;
        }
        __syncthreads();
    }
}
