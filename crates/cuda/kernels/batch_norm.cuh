// How batch normalisations cut pixels and channels; batch_norm.cu says more.
#pragma once
#include "common.cuh"

constexpr int E = 8;
constexpr float EPSILON = 1e-5f;

struct BatchNorm {
    const float* scale;    // [clients][C], clients `stride` numbers apart
    const float* offset;
    float2* moments;       // [clients][C] {mean, 1 / deviation}
    Cohort cohort;
    i64 stride;
    int pixels, C, slices, chunks;
    int before, after;     // activations
};

__device__ __forceinline__ int chunk_begin(const BatchNorm& n, int chunk) { return (int)((i64)n.pixels * chunk / n.chunks); }

// What a thread holds.
struct Part {
    Mine mine;
    int channel, lanes, row, rows, chunk, begin, count, quads;
    i64 first;             // four channels of its first pixel
    __device__ __forceinline__ Part(const BatchNorm& n) : mine(my_sample(n.cohort)), quads(n.C / 4) {
        lanes = n.C / n.slices / 4;
        rows = 256 / lanes;
        row = threadIdx.x / lanes;
        channel = ((int)blockIdx.x % n.slices * lanes + (int)threadIdx.x % lanes) * 4;
        chunk = blockIdx.x / n.slices;
        begin = chunk_begin(n, chunk);
        count = chunk_begin(n, chunk + 1) - begin;
        first = (mine.sample * n.pixels + begin + row) * quads + channel / 4;
    }
    __device__ __forceinline__ bool has(int i) const { return row < rows && row + i * rows < count; }
    __device__ __forceinline__ i64 at(int i) const { return first + (i64)i * rows * quads; }
    __device__ __forceinline__ int pixel(int i) const { return begin + row + i * rows; }
    template <class T> __device__ __forceinline__ void load(float4 (&v)[E], const T* x) const {
#pragma unroll
        for (int i = 0; i < E; i++) v[i] = has(i) ? load4(x, at(i)) : make_float4(0.f, 0.f, 0.f, 0.f);
    }
    // Scales and offsets need not begin at multiples of 16 bytes.
    __device__ __forceinline__ float4 of(const BatchNorm& n, const float* affine) const {
        const float* p = affine + mine.client * n.stride + channel;
        return make_float4(p[0], p[1], p[2], p[3]);
    }
    __device__ __forceinline__ void moments(const BatchNorm& n, float4& mean, float4& inverse) const {
        const float4 *m = (const float4*)(n.moments + (i64)mine.client * n.C + channel), a = m[0], b = m[1];
        mean = make_float4(a.x, a.z, b.x, b.z);
        inverse = make_float4(a.y, a.w, b.y, b.w);
    }
};
// The sum over the rows of a block, in one order; the result is in the threads of row 0.
__device__ __forceinline__ float4 column_sum(float4 v, const Part& l) {
    __shared__ float4 each[256];
    __syncthreads();
    each[threadIdx.x] = v;
    for (int n = l.rows; n > 1; n = (n + 1) / 2) {
        __syncthreads();
        if (l.row + (n + 1) / 2 < n) each[threadIdx.x] = each[threadIdx.x] + each[threadIdx.x + (n + 1) / 2 * l.lanes];
    }
    return each[threadIdx.x];
}
