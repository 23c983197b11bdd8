// Batch normalisation, every client over its own batch: statistics a channel over all samples and pixels of a client, in 32 bits.
//
// Samples are reduced one by one (a block a sample and slice of channels) and then combined in their order, so that no sum depends on how
// blocks run. Networks have it as norm(phi(x)), as phi(norm(x)) and as phi(norm(x) + shortcut): the activation in front comes with the convolution
// (`x` is its value), the one behind is `after`. What is read may be in 16 bits; sums and gradients are in 32.
// Blocks of 256 threads, a thread two neighbouring channels; `lanes` = channels / 2 / slices divides 256.
// Per-sample grids: (slices, most samples of a client, clients).
#include "shortcut.cuh"

constexpr float EPSILON = 1e-5f;
constexpr double DECAY = 0.9;

struct BatchNorm {
    const float* scale;    // [clients][C], clients `stride` numbers apart
    const float* offset;
    float2* moments;       // [clients][C] {mean, 1 / deviation}
    Cohort cohort;
    i64 stride;
    int pixels, C, slices;
    int before, after;     // activations
};

// A block's sample, this thread's two channels of it, and which of its pixels the thread takes.
struct Part {
    Mine mine;
    int channel, lanes, row, rows, pixels, pairs;
    i64 first;             // pair of channels of the sample's first pixel
    __device__ __forceinline__ Part(const BatchNorm& n) : mine(my_sample(n.cohort)), pixels(n.pixels), pairs(n.C / 2) {
        lanes = n.C / 2 / n.slices;
        channel = ((int)blockIdx.x * lanes + (int)threadIdx.x % lanes) * 2;
        row = threadIdx.x / lanes;
        rows = 256 / lanes;
        first = (mine.sample * n.pixels * n.C + channel) / 2;
    }
    template <class F> __device__ __forceinline__ void each(F f) const {
#pragma unroll 4
        for (int p = row; p < pixels; p += rows) f(first + (i64)p * pairs, p);
    }
    __device__ __forceinline__ float2 of(const BatchNorm& n, const float* affine) const { return load2(affine + mine.client * n.stride, channel / 2); }
    __device__ __forceinline__ float4 moments(const BatchNorm& n) const { return ((const float4*)n.moments)[(mine.client * n.C + channel) / 2]; }
};
// The sums of all threads with the same channels, added in order; the result is in those of row 0.
__device__ __forceinline__ float4 column_sum(float4 v, const Part& l) {
    __shared__ float4 each[256];
    __syncthreads();
    each[threadIdx.x] = v;
    __syncthreads();
    if (l.row == 0)
        for (int r = 1; r < l.rows; r++) {
            const float4 more = each[r * l.lanes + threadIdx.x];
            v.x += more.x; v.y += more.y; v.z += more.z; v.w += more.w;
        }
    return v;
}

// partial[sample][C] = {mean, sum of squared differences from it} of one sample's pixels.
template <class T> __device__ __forceinline__ void look(const BatchNorm& n, const T* x, float2* partial) {
    const Part l(n);
    if (!l.mine.here) return;
    __shared__ float2 means[256];
    float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
    l.each([&](i64 at, int) { const float2 v = load2(x, at); s.x += v.x; s.y += v.y; });
    s = column_sum(s, l);
    if (l.row == 0) means[threadIdx.x] = make_float2(s.x / n.pixels, s.y / n.pixels);
    __syncthreads();
    const float2 mean = means[threadIdx.x % l.lanes];
    float4 q = make_float4(0.f, 0.f, 0.f, 0.f);
    l.each([&](i64 at, int) {
        const float2 v = load2(x, at);
        q.x += (v.x - mean.x) * (v.x - mean.x); q.y += (v.y - mean.y) * (v.y - mean.y);
    });
    q = column_sum(q, l);
    if (l.row == 0) ((float4*)partial)[(l.mine.sample * n.C + l.channel) / 2] = make_float4(mean.x, q.x, mean.y, q.y);
}

// Combines the samples of a client, and moves its running statistics (may be null) [clients][2][C] {means, variances} by one step of the zero-debiased
// average avg_t = (0.9 (1 - 0.9^(t-1)) avg_(t-1) + 0.1 x) / (1 - 0.9^t); `steps` [clients] says how many there have been and is not changed.
// Grid: (ceil(C / 128), clients), 128 threads.
extern "C" __global__ void batch_norm_moments(BatchNorm n, const float2* partial, float* running, const float* steps) {
    const int c = blockIdx.x * 128 + threadIdx.x, client = blockIdx.y;
    const int2 span = n.cohort.spans[client];
    if (c >= n.C || span.y == 0) return;
    double mean = 0.0, square = 0.0;
    for (int index = 0; index < span.y; index++) mean += partial[(i64)sample_at(n.cohort, span, index) * n.C + c].x;
    mean /= span.y;
    for (int index = 0; index < span.y; index++) {
        const float2 of = partial[(i64)sample_at(n.cohort, span, index) * n.C + c];
        square += of.y + n.pixels * (of.x - mean) * (of.x - mean);
    }
    const double variance = square / ((double)span.y * n.pixels);
    n.moments[client * n.C + c] = make_float2((float)mean, (float)(1.0 / sqrt(variance + EPSILON)));
    if (!running) return;
    const double t = (double)steps[client] + 1.0, total = 1.0 - pow(DECAY, t), old = DECAY * (1.0 - pow(DECAY, t - 1.0)) / total, fresh = (1.0 - DECAY) / total;
    float* to = running + (i64)client * 2 * n.C + c;
    to[0] = (float)(old * to[0] + fresh * mean);
    to[n.C] = (float)(old * to[n.C] + fresh * variance);
}

// For evaluation: moments from running statistics. Grid as above.
extern "C" __global__ void batch_norm_running(BatchNorm n, const float* running) {
    const int c = blockIdx.x * 128 + threadIdx.x, client = blockIdx.y;
    if (c >= n.C) return;
    const float* from = running + (i64)client * 2 * n.C + c;
    n.moments[client * n.C + c] = make_float2(from[0], 1.f / sqrtf(from[n.C] + EPSILON));
}

// y = after((x - mean) / deviation * scale + offset + shortcut); y16 is the same in 16 bits; either may be null, and y may be x.
template <class T> __device__ __forceinline__ void apply(const BatchNorm& n, const T* x, const Shortcut& shortcut, float* y, f16* y16) {
    const Part l(n);
    if (!l.mine.here) return;
    const float4 m = l.moments(n);
    const float2 scale = l.of(n, n.scale), offset = l.of(n, n.offset);
    l.each([&](i64 at, int pixel) {
        const float2 v = load2(x, at);
        float2 out = make_float2((v.x - m.x) * m.y * scale.x + offset.x, (v.y - m.z) * m.w * scale.y + offset.y);
        if (shortcut.x) {
            const float2 s = shortcut_at(shortcut, l.mine.sample, pixel, l.channel, n.C);
            out.x += s.x; out.y += s.y;
        }
        out = make_float2(phi_of(n.after, out.x), phi_of(n.after, out.y));
        if (y) store2(y, at, out);
        if (y16) store2(y16, at, out);
    });
}

// d = after'(.) dy from y, the value of the activation behind the norm; d, which may be dy, is also the gradient of a shortcut. Where there is no such
// activation y is not read, and d is only written if it is not null. One sample's share in the gradients of scale and offset goes to
// partial[sample][2][C]; sum_samples then gives `gradients` [clients][2][C].
template <class T> __device__ __forceinline__ void backward_look(const BatchNorm& n, const T* x, const T* y, const float* dy, float* d, float* partial) {
    const Part l(n);
    if (!l.mine.here) return;
    const float4 m = l.moments(n);
    float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
    l.each([&](i64 at, int) {
        const float2 v = load2(x, at);
        float2 g = load2(dy, at);
        if (n.after != IDENTITY) {
            const float2 value = load2(y, at);
            g = make_float2(slope_of(n.after, value.x) * g.x, slope_of(n.after, value.y) * g.y);
        }
        if (d) store2(d, at, g);
        s.x += g.x * ((v.x - m.x) * m.y); s.y += g.y * ((v.y - m.z) * m.w); s.z += g.x; s.w += g.y;
    });
    s = column_sum(s, l);
    if (l.row) return;
    store2(partial + l.mine.sample * 2 * n.C, l.channel / 2, make_float2(s.x, s.y));
    store2(partial + (l.mine.sample * 2 + 1) * n.C, l.channel / 2, make_float2(s.z, s.w));
}

// dx = before'(x) times the gradient in front of the normalisation, dx16 the same in 16 bits times `scale16`; either may be null, and dx may be d.
template <class T> __device__ __forceinline__ void backward(const BatchNorm& n, const T* x, const float* d, const float* gradients, float* dx, f16* dx16, float scale16) {
    const Part l(n);
    if (!l.mine.here) return;
    const float4 m = l.moments(n);
    const float2 scale = l.of(n, n.scale);
    const float count = (float)l.mine.count * n.pixels;
    const float2 along = load2(gradients + (i64)l.mine.client * 2 * n.C, l.channel / 2), plain = load2(gradients + (i64)(l.mine.client * 2 + 1) * n.C, l.channel / 2);
    l.each([&](i64 at, int) {
        const float2 v = load2(x, at), g = load2(d, at);
        const float hx = (v.x - m.x) * m.y, hy = (v.y - m.z) * m.w;
        const float2 out = make_float2(slope_of(n.before, v.x) * m.y * scale.x * (g.x - (plain.x + hx * along.x) / count),
                                       slope_of(n.before, v.y) * m.w * scale.y * (g.y - (plain.y + hy * along.y) / count));
        if (dx) store2(dx, at, out);
        if (dx16) store2(dx16, at, make_float2(scale16 * out.x, scale16 * out.y));
    });
}

#define BATCH_NORM(BITS, T)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_look_##BITS(BatchNorm n, const T* x, float2* partial) { look(n, x, partial); } \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_apply_##BITS(BatchNorm n, const T* x, Shortcut shortcut, float* y, f16* y16) { apply(n, x, shortcut, y, y16); } \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_backward_look_##BITS(BatchNorm n, const T* x, const T* y, const float* dy, float* d, float* partial) { backward_look(n, x, y, dy, d, partial); } \
    extern "C" __global__ void __launch_bounds__(256) batch_norm_backward_##BITS(BatchNorm n, const T* x, const float* d, const float* gradients, float* dx, f16* dx16, float scale16) { backward(n, x, d, gradients, dx, dx16, scale16); }
BATCH_NORM(f32, float)
BATCH_NORM(f16, f16)
