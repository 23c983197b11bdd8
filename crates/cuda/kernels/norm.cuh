// Group normalisation of what fits into a block's registers.
//
// Statistics are taken over a region: the plane of a sample (or one row of it, for row-wise normalisation) by one group of channels. Groups
// are independent, so the channels of a region are cut into slices of whole groups, and a block holds one slice: each thread two neighbouring
// channels of up to E pixels. Everything is read once; variances are means of squared differences from the mean, like the CPU's.
//
// Launch: (slices * regions, most samples of a client, clients) blocks of the largest multiple of `slice channels / 2` threads up to 512,
// at least 32 (256 in all was fastest on an H200); pixels <= E * threads / (slice channels / 2). A group has an even number of channels.
#pragma once
#include "common.cuh"

constexpr int E = 16;
constexpr float EPSILON = 1e-5f;

// Extent of a normalisation.
struct Shape { int pixels, regions, channels, groups, slices; };

// Scale and offset, `stride` numbers between clients.
struct Affine { const float* scale; const float* offset; i64 stride; };

// Which numbers this thread holds.
struct Slice {
    i64 first;        // pair of channels of the first pixel
    int step;         // pairs from one of its pixels to the next
    int pixel, pixel_step, pixels, lanes, lane, pairs, groups, channel, region_group;
    float count;      // numbers of a group
    __device__ __forceinline__ bool has(int i) const { return pixel + i * pixel_step < pixels; }
    __device__ __forceinline__ i64 at(int i) const { return first + (i64)i * step; }
};

__device__ __forceinline__ Slice slice_of(const Shape& shape, i64 sample) {
    const int lanes = shape.channels / shape.slices / 2, width = shape.channels / shape.groups, tid = threadIdx.x;
    const int slice = blockIdx.x % shape.slices;
    const i64 region = sample * shape.regions + blockIdx.x / shape.slices;
    Slice s;
    s.lanes = lanes; s.lane = tid % lanes; s.pixel = tid / lanes; s.pixel_step = blockDim.x / lanes; s.pixels = shape.pixels;
    s.channel = (slice * lanes + s.lane) * 2;
    s.first = (region * shape.pixels + s.pixel) * (shape.channels / 2) + s.channel / 2;
    s.step = s.pixel_step * (shape.channels / 2);
    s.pairs = width / 2; s.groups = shape.groups / shape.slices;
    s.region_group = region * shape.groups + s.channel / width;
    s.count = (float)shape.pixels * width;
    return s;
}

template <class T> __device__ __forceinline__ void load(float2 (&v)[E], const T* p, const Slice& s) {
#pragma unroll
    for (int i = 0; i < E; i++) v[i] = s.has(i) ? load2(p, s.at(i)) : make_float2(0.f, 0.f);
}
template <class T> __device__ __forceinline__ void store(T* p, const float2 (&v)[E], const Slice& s) {
#pragma unroll
    for (int i = 0; i < E; i++)
        if (s.has(i)) store2(p, s.at(i), v[i]);
}

// The sum of v over the threads of this thread's group, the same bits for each of them. Calls that follow each other have different CALLs.
template <int CALL> __device__ __forceinline__ float group_sum(float v, const Slice& s) {
    __shared__ float each[512], sums[64], of_warps[16];   // every CALL has its own
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31, warps = blockDim.x >> 5, members = blockDim.x / s.groups;
    if (s.groups == 1 && blockDim.x % 32 == 0) {   // the usual case, with one barrier
        v = warp_sum(v);
        if (lane == 0) of_warps[warp] = v;
        __syncthreads();
        float sum = 0.f;
        for (int w = 0; w < warps; w++) sum += of_warps[w];
        return sum;
    }
    each[tid] = v;
    __syncthreads();
    if (warp < warps)   // an incomplete last warp has only given its share
        for (int g = warp; g < s.groups; g += warps) {
            float sum = 0.f;
            for (int k = lane; k < members; k += 32) sum += each[k / s.pairs * s.lanes + g * s.pairs + k % s.pairs];
            sum = warp_sum(sum);
            if (lane == 0) sums[g] = sum;
        }
    __syncthreads();
    return sums[s.lane / s.pairs];
}

// Mean and reciprocal deviation.
struct Moments { float mean, scale; };

// WHICH normalisation of the kernel this is: each has its own room in shared memory.
template <int WHICH = 0> __device__ __forceinline__ Moments moments_of(const float2 (&v)[E], const Slice& s) {
    float sum = 0.f, square = 0.f;
#pragma unroll
    for (int i = 0; i < E; i++) sum += v[i].x + v[i].y;
    const float mean = group_sum<2 * WHICH>(sum, s) / s.count;
#pragma unroll
    for (int i = 0; i < E; i++)
        if (s.has(i)) square += (v[i].x - mean) * (v[i].x - mean) + (v[i].y - mean) * (v[i].y - mean);
    return {mean, 1.f / sqrtf(group_sum<2 * WHICH + 1>(square, s) / s.count + EPSILON)};
}

__device__ __forceinline__ void keep(Moments* to, Moments m, const Slice& s) {
    if (to && s.pixel == 0 && s.lane % s.pairs == 0) to[s.region_group] = m;
}

__device__ __forceinline__ float2 normalized(float2 v, Moments m, float2 scale, float2 offset) {
    return make_float2((v.x - m.mean) * m.scale * scale.x + offset.x, (v.y - m.mean) * m.scale * scale.y + offset.y);
}

// d <- phi'(x) times the gradient in front of the normalisation, x being its input (and phi's value) and d the gradient behind it. This sample's
// share in the gradients of scale and offset goes to `partial` [samples][regions][2][channels].
template <int PHI> __device__ __forceinline__ void pull_back(float2 (&d)[E], const float2 (&x)[E], Moments m, const Affine& affine, int client, float* partial, const Shape& shape, const Slice& s) {
    __shared__ float4 each[512];
    __shared__ float2 weighted[512];
    const int tid = threadIdx.x;
    const float2 scale = load2(affine.scale + client * affine.stride, s.channel / 2);
    float4 sums = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int i = 0; i < E; i++) {   // d is zero beyond the last pixel
        sums.x += d[i].x * ((x[i].x - m.mean) * m.scale); sums.y += d[i].y * ((x[i].y - m.mean) * m.scale);
        sums.z += d[i].x; sums.w += d[i].y;
    }
    __syncthreads();                // from an earlier call
    each[tid] = sums;
    __syncthreads();
    if (tid < s.lanes) {            // one thread for every pair of channels, in order of the threads
        for (int row = 1; row < s.pixel_step; row++) {
            const float4 more = each[row * s.lanes + tid];
            sums.x += more.x; sums.y += more.y; sums.z += more.z; sums.w += more.w;
        }
        float* to = partial + (s.first / ((i64)shape.pixels * (shape.channels / 2))) * 2 * shape.channels;
        store2(to, s.channel / 2, make_float2(sums.x, sums.y));
        store2(to + shape.channels, s.channel / 2, make_float2(sums.z, sums.w));
        weighted[tid] = make_float2(scale.x * sums.z + scale.y * sums.w, scale.x * sums.x + scale.y * sums.y);
    }
    __syncthreads();
    float plain = 0.f, along = 0.f;
    for (int k = 0; k < s.pairs; k++) {
        const float2 w = weighted[s.lane / s.pairs * s.pairs + k];
        plain += w.x; along += w.y;
    }
    plain /= s.count; along /= s.count;
#pragma unroll
    for (int i = 0; i < E; i++) {
        const float hx = (x[i].x - m.mean) * m.scale, hy = (x[i].y - m.mean) * m.scale;
        d[i].x = slope<PHI>(x[i].x) * m.scale * (scale.x * d[i].x - plain - hx * along);
        d[i].y = slope<PHI>(x[i].y) * m.scale * (scale.y * d[i].y - plain - hy * along);
    }
}
