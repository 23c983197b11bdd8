// Attention in 32 bits. A block is one head of one sample, a warp a query, its lanes keys: everything stays in shared memory.
// Grid: (heads, most samples of a client, clients), 256 threads.
#include "attention.cuh"

constexpr int PITCH = 20, CHUNKS = MOST / 32, WARPS = 8;   // a row of PITCH floats: lanes that read 16 bytes of neighbouring rows meet in no bank

template <class T> __device__ __forceinline__ void load(float* to, const T* from, i64 sample, int row, int length) {
    const T* x = from + sample * length * row + blockIdx.x * EACH;
    for (int e = threadIdx.x; e < length * (EACH / 2); e += 256) {
        const int t = e / (EACH / 2), pair = e % (EACH / 2);
        const float2 v = load2(x + (i64)t * row, pair);
        to[t * PITCH + 2 * pair] = v.x;
        to[t * PITCH + 2 * pair + 1] = v.y;
    }
}
__device__ __forceinline__ float dot(const float4 (&a)[4], const float* b) {
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const float4 v = ((const float4*)b)[k];
        sum += a[k].x * v.x + a[k].y * v.y + a[k].z * v.z + a[k].w * v.w;
    }
    return sum;
}
// sum over rows j < n of weight(j) x[j][lane % 16], in all lanes.
template <class W> __device__ __forceinline__ float weighted(const float* x, int n, W weight) {
    const int lane = threadIdx.x & 31;
    float sum = 0.f;
    for (int j = lane >> 4; j < n; j += 2) sum = fmaf(weight(j), x[j * PITCH + (lane & 15)], sum);
    return sum + __shfl_xor_sync(~0u, sum, 16);
}
// The scores of query t, those of keys lane + 32 c, and whether they are blocked.
struct Scores {
    float of[CHUNKS];
    u32 blocked;
    int keys;   // that count: beyond, all weights are zero
    __device__ __forceinline__ Scores(const float* q, const float* k, const u8* padding, int t, int length, int first) {
        const int lane = threadIdx.x & 31;
        keys = t >= first ? t + 1 : length;
        blocked = 0;
        float4 query[4];
#pragma unroll
        for (int i = 0; i < 4; i++) query[i] = ((const float4*)(q + t * PITCH))[i];
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int j = lane + 32 * c;
            if (32 * c >= keys) break;
            const bool hidden = j > t || j >= keys || padding[j];
            blocked |= (hidden ? 1u : 0u) << c;
            of[c] = hidden ? BLOCKED : SCALE * dot(query, k + j * PITCH);
        }
    }
    __device__ __forceinline__ bool has(int c) const { return (int)(threadIdx.x & 31) + 32 * c < keys; }
};

// out [samples][length][heads * 16]. Dynamic shared memory: (3 * 20 + 8) * length * 4 bytes.
template <class T> __device__ __forceinline__ void forward(const Attention<T>& a, T* out) {
    const Mine mine = my_sample(a.cohort);
    if (!mine.here) return;
    extern __shared__ __align__(16) float memory[];
    __shared__ u8 padding[32 * CHUNKS];
    const int length = a.text.length, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, width = gridDim.x * EACH;
    float *q = memory, *k = q + length * PITCH, *v = k + length * PITCH, *weights = v + length * PITCH + warp * length;
    load(q, a.q, mine.sample, a.row, length);
    load(k, a.k, mine.sample, a.row, length);
    load(v, a.v, mine.sample, a.row, length);
    const int first = first_seen(text_of(a.text, mine.sample), length, padding);
    for (int t = warp; t < length; t += WARPS) {
        Scores s(q, k, padding, t, length, first);
        float largest = -__int_as_float(0x7f800000), total = 0.f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (s.has(c)) largest = fmaxf(largest, s.of[c]);
#pragma unroll
        for (int d = 16; d; d >>= 1) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, d));
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            if (s.has(c)) {
                const float e = expf(s.of[c] - largest);
                total += e;
                weights[lane + 32 * c] = e;
            }
        total = warp_sum(total);
        __syncwarp();
        const float o = weighted(v, s.keys, [&](int j) { return weights[j]; }) / total;
        // Two lanes' numbers leave as a pair.
        const float other = __shfl_down_sync(~0u, o, 1);
        if (lane < EACH && !(lane & 1)) store2(out + (mine.sample * length + t) * width + blockIdx.x * EACH, lane / 2, make_float2(o, other));
        if (a.sums && lane == 0) a.sums[(mine.sample * gridDim.x + blockIdx.x) * length + t] = make_float2(largest, 1.f / total);
        __syncwarp();
    }
}

// Gradients of q, k and v, laid out like them, from that of `out`. Dynamic shared memory: (4 * 20 + 2 * length) * length * 4 bytes.
template <class T> __device__ __forceinline__ void backward(const Attention<T>& a, const T* dout, T* dq, T* dk, T* dv) {
    const Mine mine = my_sample(a.cohort);
    if (!mine.here) return;
    extern __shared__ __align__(16) float memory[];
    __shared__ u8 padding[32 * CHUNKS];
    const int length = a.text.length, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, width = gridDim.x * EACH;
    float *q = memory, *k = q + length * PITCH, *v = k + length * PITCH, *d = v + length * PITCH, *weights = d + length * PITCH, *slopes = weights + length * length;
    load(q, a.q, mine.sample, a.row, length);
    load(k, a.k, mine.sample, a.row, length);
    load(v, a.v, mine.sample, a.row, length);
    load(d, dout, mine.sample, width, length);
    const int first = first_seen(text_of(a.text, mine.sample), length, padding);
    auto put = [&](T* to, int t, float o) {
        const float other = __shfl_down_sync(~0u, o, 1);
        if (lane < EACH && !(lane & 1)) store2(to + (mine.sample * length + t) * a.row + blockIdx.x * EACH, lane / 2, make_float2(o, other));
    };
    for (int t = warp; t < length; t += WARPS) {
        Scores s(q, k, padding, t, length, first);
        const float2 sums = a.sums[(mine.sample * gridDim.x + blockIdx.x) * length + t];
        float4 g[4];
#pragma unroll
        for (int i = 0; i < 4; i++) g[i] = ((const float4*)(d + t * PITCH))[i];
        float w[CHUNKS], dw[CHUNKS], mean = 0.f;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            w[c] = dw[c] = 0.f;
            if (s.has(c)) {
                w[c] = expf(s.of[c] - sums.x) * sums.y;
                dw[c] = dot(g, v + (lane + 32 * c) * PITCH);
                mean = fmaf(w[c], dw[c], mean);
            }
        }
        mean = warp_sum(mean);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            const int j = lane + 32 * c;
            if (j >= length) continue;
            weights[t * length + j] = w[c];
            slopes[t * length + j] = s.has(c) && !(s.blocked >> c & 1) ? SCALE * w[c] * (dw[c] - mean) : 0.f;
        }
        __syncwarp();
        put(dq, t, weighted(k, s.keys, [&](int j) { return slopes[t * length + j]; }));
    }
    __syncthreads();
    for (int j = warp; j < length; j += WARPS) {
        put(dk, j, weighted(q, length, [&](int t) { return slopes[t * length + j]; }));
        put(dv, j, weighted(d, length, [&](int t) { return weights[t * length + j]; }));
    }
}

extern "C" __global__ void __launch_bounds__(256) attention_f32(Attention<float> a, float* out) { forward(a, out); }
extern "C" __global__ void __launch_bounds__(256) attention_backward_f32(Attention<float> a, const float* dout, float* dq, float* dk, float* dv) { backward(a, dout, dq, dk, dv); }
