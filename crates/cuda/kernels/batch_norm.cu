// Batch normalisation, every client over its own batch: statistics a channel over all samples and pixels of a client, in 32 bits.
//
// Samples are reduced one by one (a block a sample and slice of channels) and then combined in their order, so that no sum depends on how
// blocks run. `x` is what the activation before the norm gave, as in group_norm.cu; the backward pass includes that activation.
// Blocks of 256 threads, a thread two neighbouring channels; `lanes` = channels / 2 / slices divides 256.
// Per-sample grids: (slices, most samples of a client, clients).
#include "common.cuh"

constexpr float EPSILON = 1e-5f;
constexpr double DECAY = 0.9;

struct BatchNorm {
    const float* scale;    // [clients][C], clients `stride` numbers apart
    const float* offset;
    float2* moments;       // [clients][C] {mean, 1 / deviation}
    Cohort cohort;
    i64 stride;
    int pixels, C, slices;
};

struct Lane { int channel, lanes, row, rows; };   // this thread's channels, and which of the block's pixels it takes

__device__ __forceinline__ Lane lane_of(const BatchNorm& n) {
    const int lanes = n.C / 2 / n.slices, tid = threadIdx.x;
    return {((int)blockIdx.x * lanes + tid % lanes) * 2, lanes, tid / lanes, 256 / lanes};
}
// The sums of all threads with the same channels, added in order; the result is in those of row 0.
__device__ __forceinline__ float4 column_sum(float4 v, const Lane& l) {
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
extern "C" __global__ void __launch_bounds__(256) batch_norm_look(BatchNorm n, const float* x, float2* partial) {
    const int2 span = n.cohort.spans[blockIdx.z];
    if ((int)blockIdx.y >= span.y) return;
    const i64 sample = sample_at(n.cohort, span, blockIdx.y);
    const Lane l = lane_of(n);
    const float* from = x + sample * n.pixels * n.C + l.channel;
    __shared__ float2 means[256];
    float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int p = l.row; p < n.pixels; p += l.rows) { const float2 v = load2(from + (i64)p * n.C, 0); s.x += v.x; s.y += v.y; }
    s = column_sum(s, l);
    if (l.row == 0) means[threadIdx.x] = make_float2(s.x / n.pixels, s.y / n.pixels);
    __syncthreads();
    const float2 mean = means[threadIdx.x % l.lanes];
    float4 q = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int p = l.row; p < n.pixels; p += l.rows) {
        const float2 v = load2(from + (i64)p * n.C, 0);
        q.x += (v.x - mean.x) * (v.x - mean.x); q.y += (v.y - mean.y) * (v.y - mean.y);
    }
    q = column_sum(q, l);
    if (l.row == 0) { partial[sample * n.C + l.channel] = make_float2(mean.x, q.x); partial[sample * n.C + l.channel + 1] = make_float2(mean.y, q.y); }
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

// y = (x - mean) / deviation * scale + offset; y16 is the same in 16 bits; either may be null, and y may be x.
extern "C" __global__ void __launch_bounds__(256) batch_norm_apply(BatchNorm n, const float* x, float* y, f16* y16) {
    const int client = blockIdx.z;
    const int2 span = n.cohort.spans[client];
    if ((int)blockIdx.y >= span.y) return;
    const Lane l = lane_of(n);
    const float2 a = n.moments[client * n.C + l.channel], b = n.moments[client * n.C + l.channel + 1];
    const float2 scale = load2(n.scale + client * n.stride, l.channel / 2), offset = load2(n.offset + client * n.stride, l.channel / 2);
    const i64 first = ((i64)sample_at(n.cohort, span, blockIdx.y) * n.pixels * n.C + l.channel) / 2;
    for (int p = l.row; p < n.pixels; p += l.rows) {
        const i64 at = first + (i64)p * (n.C / 2);
        const float2 v = load2(x, at), out = make_float2((v.x - a.x) * a.y * scale.x + offset.x, (v.y - b.x) * b.y * scale.y + offset.y);
        if (y) store2(y, at, out);
        if (y16) store2(y16, at, out);
    }
}

// One sample's share in the gradients of scale and offset, partial[sample][2][C]; sum_samples then gives `gradients` [clients][2][C].
extern "C" __global__ void __launch_bounds__(256) batch_norm_backward_look(BatchNorm n, const float* x, const float* dy, float* partial) {
    const int client = blockIdx.z;
    const int2 span = n.cohort.spans[client];
    if ((int)blockIdx.y >= span.y) return;
    const i64 sample = sample_at(n.cohort, span, blockIdx.y);
    const Lane l = lane_of(n);
    const float2 a = n.moments[client * n.C + l.channel], b = n.moments[client * n.C + l.channel + 1];
    const i64 first = (sample * n.pixels * n.C + l.channel) / 2;
    float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int p = l.row; p < n.pixels; p += l.rows) {
        const i64 at = first + (i64)p * (n.C / 2);
        const float2 v = load2(x, at), d = load2(dy, at);
        s.x += d.x * ((v.x - a.x) * a.y); s.y += d.y * ((v.y - b.x) * b.y); s.z += d.x; s.w += d.y;
    }
    s = column_sum(s, l);
    if (l.row) return;
    store2(partial + sample * 2 * n.C, l.channel / 2, make_float2(s.x, s.y));
    store2(partial + (sample * 2 + 1) * n.C, l.channel / 2, make_float2(s.z, s.w));
}

// dx = phi'(x) times the gradient in front of the normalisation; dx may be dy.
template <int PHI> __device__ __forceinline__ void backward(const BatchNorm& n, const float* x, const float* dy, const float* gradients, float* dx) {
    const int client = blockIdx.z;
    const int2 span = n.cohort.spans[client];
    if ((int)blockIdx.y >= span.y) return;
    const Lane l = lane_of(n);
    const float2 a = n.moments[client * n.C + l.channel], b = n.moments[client * n.C + l.channel + 1], scale = load2(n.scale + client * n.stride, l.channel / 2);
    const float count = (float)span.y * n.pixels;
    const float2 along = load2(gradients + (i64)client * 2 * n.C, l.channel / 2), plain = load2(gradients + (i64)(client * 2 + 1) * n.C, l.channel / 2);
    const i64 first = ((i64)sample_at(n.cohort, span, blockIdx.y) * n.pixels * n.C + l.channel) / 2;
    for (int p = l.row; p < n.pixels; p += l.rows) {
        const i64 at = first + (i64)p * (n.C / 2);
        const float2 v = load2(x, at), d = load2(dy, at);
        const float hx = (v.x - a.x) * a.y, hy = (v.y - b.x) * b.y;
        store2(dx, at, make_float2(slope<PHI>(v.x) * a.y * scale.x * (d.x - (plain.x + hx * along.x) / count),
                                   slope<PHI>(v.y) * b.y * scale.y * (d.y - (plain.y + hy * along.y) / count)));
    }
}
#define BACKWARD(NAME, PHI)                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) NAME(BatchNorm n, const float* x, const float* dy, const float* gradients, float* dx) { backward<PHI>(n, x, dy, gradients, dx); }
BACKWARD(batch_norm_backward, IDENTITY)
BACKWARD(batch_norm_backward_relu, RELU)
BACKWARD(batch_norm_backward_softplus, SOFTPLUS_EXACT)
