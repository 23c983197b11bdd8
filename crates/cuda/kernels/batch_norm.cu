// Batch normalisation, every client over its own batch: statistics a channel over all samples and pixels of a client, in 32 bits.
//
// A block takes a chunk of a sample's pixels and a slice of its channels, which it reads once; chunks are then combined in their order, so
// that no sum depends on how blocks run. Networks have it as norm(phi(x)), as phi(norm(x)) and as phi(norm(x) + shortcut): the activation in front
// comes with the convolution (`x` is its value), the one behind is `after`. What is read may be in 16 bits; sums and gradients are in 32.
// Blocks of 256 threads, a thread four neighbouring channels of up to E pixels. With lanes = C / slices / 4 <= 256 and rows = 256 / lanes (rounded down)
// a chunk has at most E * rows pixels. Grids: (slices * chunks, most samples of a client, clients). C / slices is a multiple of 4.
#include "batch_norm.cuh"
#include "shortcut.cuh"

constexpr double DECAY = 0.9;

// partial[sample][chunk][C] = {mean, sum of squared differences from it} of one chunk's pixels.
template <class T> __device__ __forceinline__ void look(const BatchNorm& n, const T* x, float2* partial) {
    const Part l(n);
    if (!l.mine.here) return;
    __shared__ float4 means[256];
    float4 v[E], sum = make_float4(0.f, 0.f, 0.f, 0.f), square = sum;
    l.load(v, x);
#pragma unroll
    for (int i = 0; i < E; i++) sum = sum + v[i];
    sum = column_sum(sum, l);
    if (l.row == 0) means[threadIdx.x] = 1.f / l.count * sum;
    __syncthreads();
    const float4 mean = means[threadIdx.x % l.lanes];
#pragma unroll
    for (int i = 0; i < E; i++)
        if (l.has(i)) square = square + (v[i] - mean) * (v[i] - mean);
    square = column_sum(square, l);
    if (l.row) return;
    float4* to = (float4*)(partial + (l.mine.sample * n.chunks + l.chunk) * n.C + l.channel);
    to[0] = make_float4(mean.x, square.x, mean.y, square.y);
    to[1] = make_float4(mean.z, square.z, mean.w, square.w);
}

// The sum of eight lanes' numbers, in order, for all of them.
__device__ __forceinline__ double lanes_sum(double v) {
    __shared__ double each[8][32];
    __syncthreads();
    each[threadIdx.x >> 5][threadIdx.x & 31] = v;
    __syncthreads();
    double sum = 0.0;
    for (int lane = 0; lane < 8; lane++) sum += each[lane][threadIdx.x & 31];
    return sum;
}
// This lane's chunks of a client, and how many pixels they have.
template <class F> __device__ __forceinline__ void each_chunk(const BatchNorm& n, const float2* partial, int2 span, int c, F f) {
    if (c >= n.C) return;
    for (int e = threadIdx.x >> 5; e < span.y * n.chunks; e += 8) {
        const int index = e / n.chunks, chunk = e - index * n.chunks;
        f(partial[((i64)sample_at(n.cohort, span, index) * n.chunks + chunk) * n.C + c], chunk_begin(n, chunk + 1) - chunk_begin(n, chunk));
    }
}
// Combines the chunks of a client, and moves its running statistics, means and variances [C] (both may be null), by one step of the zero-debiased
// average avg_t = (0.9 (1 - 0.9^(t-1)) avg_(t-1) + 0.1 x) / (1 - 0.9^t). Clients are `apart` numbers from each other in all three tables; `steps`
// says how many there have been and is not changed: count_batches does that for all layers at once.
// Grid: (ceil(C / 32), clients), 256 threads: 32 channels by 8 lanes of chunks.
extern "C" __global__ void __launch_bounds__(256) batch_norm_moments(BatchNorm n, const float2* partial, float* means, float* variances, const float* steps, i64 apart) {
    const int c = blockIdx.x * 32 + (threadIdx.x & 31), lane = threadIdx.x >> 5, client = blockIdx.y;
    const int2 span = n.cohort.spans[client];
    if (span.y == 0) return;
    const double count = (double)span.y * n.pixels;
    double mean = 0.0, square = 0.0;
    each_chunk(n, partial, span, c, [&](float2 of, int pixels) { mean += (double)of.x * pixels; });
    mean = lanes_sum(mean) / count;
    each_chunk(n, partial, span, c, [&](float2 of, int pixels) { square += of.y + pixels * (of.x - mean) * (of.x - mean); });
    const double variance = lanes_sum(square) / count;
    if (lane || c >= n.C) return;
    n.moments[(i64)client * n.C + c] = make_float2((float)mean, (float)(1.0 / sqrt(variance + EPSILON)));
    if (!means) return;
    const double t = (double)steps[client * apart] + 1.0, total = 1.0 - pow(DECAY, t);
    const float old = (float)(DECAY * (1.0 - pow(DECAY, t - 1.0)) / total), fresh = (float)((1.0 - DECAY) / total);
    auto move = [&](float& average, float now) { average = __fadd_rn(__fmul_rn(average, old), __fmul_rn(now, fresh)); };
    move(means[client * apart + c], (float)mean);
    move(variances[client * apart + c], (float)variance);
}

// One more batch seen by every layer of the clients that have samples: statistics[client][places[layer]] += 1. Grid: clients, 64 threads.
extern "C" __global__ void count_batches(float* statistics, const int* places, Cohort cohort, i64 apart, int layers) {
    if (cohort.spans[blockIdx.x].y == 0) return;
    for (int layer = threadIdx.x; layer < layers; layer += 64) statistics[blockIdx.x * apart + places[layer]] += 1.f;
}

// For evaluation: moments from running statistics, clients `apart` numbers from each other. Grid: (ceil(C / 128), clients), 128 threads.
extern "C" __global__ void batch_norm_running(BatchNorm n, const float* means, const float* variances, i64 apart) {
    const int c = blockIdx.x * 128 + threadIdx.x, client = blockIdx.y;
    if (c >= n.C) return;
    n.moments[(i64)client * n.C + c] = make_float2(means[client * apart + c], 1.f / sqrtf(variances[client * apart + c] + EPSILON));
}

// y = after((x - mean) / deviation * scale + offset + shortcut); y16 is the same in 16 bits; either may be null, and y may be x.
template <class T> __device__ __forceinline__ void apply(const BatchNorm& n, const T* x, const Shortcut& shortcut, float* y, f16* y16) {
    const Part l(n);
    if (!l.mine.here || l.row >= l.rows) return;
    float4 mean, inverse;
    l.moments(n, mean, inverse);
    const float4 scale = inverse * l.of(n, n.scale), offset = l.of(n, n.offset);
#pragma unroll 2
    for (int i = 0; l.has(i); i++) {
        float4 out = (load4(x, l.at(i)) - mean) * scale + offset;
        if (shortcut.x) out = out + shortcut_at(shortcut, l.mine.sample, l.pixel(i), l.channel, n.C);
        out = phi_of(n.after, out);
        if (y) store4(y, l.at(i), out);
        if (y16) store4(y16, l.at(i), out);
    }
}

// d = after'(.) dy from y, the value of the activation behind the norm; d, which may be dy, is also the gradient of a shortcut. Where there is no such
// activation y is not read, and d is only written if it is not null. A chunk's share in the gradients of scale and offset goes to
// partial[sample][chunk][2][C]; sum_samples then gives `gradients` [clients][2][C].
template <class T> __device__ __forceinline__ void backward_look(const BatchNorm& n, const T* x, const T* y, const float* dy, float* d, float* partial) {
    const Part l(n);
    if (!l.mine.here) return;
    float4 mean, inverse, along = make_float4(0.f, 0.f, 0.f, 0.f), plain = along;
    l.moments(n, mean, inverse);
#pragma unroll 4
    for (int i = 0; l.has(i); i++) {
        float4 g = load4(dy, l.at(i));
        if (n.after != IDENTITY) g = g * slope_of(n.after, load4(y, l.at(i)));
        if (d) store4(d, l.at(i), g);
        along = along + g * ((load4(x, l.at(i)) - mean) * inverse);
        plain = plain + g;
    }
    along = column_sum(along, l);
    plain = column_sum(plain, l);
    if (l.row) return;
    float* to = partial + (l.mine.sample * n.chunks + l.chunk) * 2 * n.C;
    store4(to, l.channel / 4, along);
    store4(to + n.C, l.channel / 4, plain);
}

// dx = before'(x) times the gradient in front of the normalisation, dx16 the same in 16 bits times `scale16`; either may be null, and dx may be d. `gradients` [2][C] are those
// of scale and offset, clients `apart` numbers from each other; null where the moments were not the batch's own, so that nothing flows through them.
template <class T> __device__ __forceinline__ void backward(const BatchNorm& n, const T* x, const float* d, const float* gradients, i64 apart, float* dx, f16* dx16, float scale16) {
    const Part l(n);
    if (!l.mine.here || l.row >= l.rows) return;
    float4 mean, inverse, along = make_float4(0.f, 0.f, 0.f, 0.f), plain = along;
    l.moments(n, mean, inverse);
    const float4 scale = inverse * l.of(n, n.scale);
    if (gradients) {
        const float share = 1.f / ((float)l.mine.count * n.pixels);
        const float* of = gradients + l.mine.client * apart + l.channel;
        along = share * make_float4(of[0], of[1], of[2], of[3]);
        of += n.C;
        plain = share * make_float4(of[0], of[1], of[2], of[3]);
    }
#pragma unroll 2
    for (int i = 0; l.has(i); i++) {
        const float4 v = load4(x, l.at(i));
        float4 out = scale * (load4(d, l.at(i)) - plain - (v - mean) * inverse * along);
        if (n.before != IDENTITY) out = out * slope_of(n.before, v);
        if (dx) store4(dx, l.at(i), out);
        if (dx16) store4(dx16, l.at(i), scale16 * out);
    }
}

#define BATCH_NORM(BITS, T)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_look_##BITS(BatchNorm n, const T* x, float2* partial) { look(n, x, partial); } \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_apply_##BITS(BatchNorm n, const T* x, Shortcut shortcut, float* y, f16* y16) { apply(n, x, shortcut, y, y16); } \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_backward_look_##BITS(BatchNorm n, const T* x, const T* y, const float* dy, float* d, float* partial) { backward_look(n, x, y, dy, d, partial); } \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_backward_##BITS(BatchNorm n, const T* x, const float* d, const float* gradients, i64 apart, float* dx, f16* dx16, float scale16) { backward(n, x, d, gradients, apart, dx, dx16, scale16); }
BATCH_NORM(f32, float)
BATCH_NORM(f16, f16)
