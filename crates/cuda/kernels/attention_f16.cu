// Attention on tensor cores: 16-bit factors, 32-bit scores and sums. A block is one head of one sample, a warp 16 queries (or keys), which never leave
// its registers: the 16 numbers of a head are exactly the inner dimension of a matrix instruction.
// Kernels are named after the longest text they take. Grid: (heads, most samples of a client, clients), 32 * ceil(length / 16) threads.
#include "attention.cuh"
#include "tensor_core.cuh"

constexpr int PITCH = 24;   // halves from position to position: eight rows of 16 bytes meet in no bank

// Positions up to a multiple of 16, zeros beyond the last one: two lanes a position, 16 positions a warp.
__device__ __forceinline__ void load(f16* to, const f16* from, i64 sample, int row, int length) {
    const f16* x = from + sample * length * row + blockIdx.x * EACH;
    const int t = threadIdx.x / 2, half = threadIdx.x % 2 * 8;
    *(uint4*)(to + t * PITCH + half) = t < length ? *(const uint4*)(x + (i64)t * row + half) : make_uint4(0, 0, 0, 0);
}
// Rows as the left factor, and as the right one: 16 rows by 16 numbers along which is added up.
__device__ __forceinline__ void left(u32 (&r)[4], const f16* x, int first) {
    const int lane = threadIdx.x & 31;
    fragment(r, shared_address(x + (first + (lane & 15)) * PITCH + (lane >> 4) * 8));
}
__device__ __forceinline__ void right(u32 (&r)[4], const f16* x, int first) {
    const int lane = threadIdx.x & 31;
    fragment(r, shared_address(x + (first + (lane & 7) + ((lane >> 4) << 3)) * PITCH + (lane >> 3 & 1) * 8));
}
// Rows as the right factor where the sum runs over them.
__device__ __forceinline__ void along(u32 (&r)[4], const f16* x, int first) {
    const int lane = threadIdx.x & 31;
    fragment_transposed(r, shared_address(x + (first + (lane & 15)) * PITCH + (lane >> 4) * 8));
}
// d[16 x 16 BLOCKS] = a b^T for rows `first`... of b in steps of 16, only those between begin and end.
template <int BLOCKS> __device__ __forceinline__ void products(float (&d)[2 * BLOCKS][4], const u32 (&a)[4], const f16* b, int begin, int end) {
#pragma unroll
    for (int m = 0; m < BLOCKS; m++) {
#pragma unroll
        for (int e = 0; e < 4; e++) d[2 * m][e] = d[2 * m + 1][e] = 0.f;
        if (m * 16 < begin || m * 16 >= end) continue;
        u32 r[4];
        right(r, b, m * 16);
        multiply(d[2 * m], a, r[0], r[1]);
        multiply(d[2 * m + 1], a, r[2], r[3]);
    }
}
// out[16 x 16] = w x, w being sums in registers, rounded to 16 bits.
template <int BLOCKS> __device__ __forceinline__ void weighted(float (&out)[2][4], const float (&w)[2 * BLOCKS][4], const f16* x, int begin, int end) {
#pragma unroll
    for (int e = 0; e < 4; e++) out[0][e] = out[1][e] = 0.f;
#pragma unroll
    for (int m = 0; m < BLOCKS; m++) {
        if (m * 16 < begin || m * 16 >= end) continue;
        const u32 a[4] = {pack2(w[2 * m][0], w[2 * m][1]), pack2(w[2 * m][2], w[2 * m][3]), pack2(w[2 * m + 1][0], w[2 * m + 1][1]), pack2(w[2 * m + 1][2], w[2 * m + 1][3])};
        u32 r[4];
        along(r, x, m * 16);
        multiply(out[0], a, r[0], r[1]);
        multiply(out[1], a, r[2], r[3]);
    }
}
// Row and column, of a warp's 16 rows, of number e of tile n.
__device__ __forceinline__ int row_of(int e) { return ((int)threadIdx.x & 31) / 4 + e / 2 * 8; }
__device__ __forceinline__ int column_of(int n, int e) { return n * 8 + 2 * (threadIdx.x & 3) + e % 2; }
__device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}
// 16 rows of 16 numbers to positions `first`..., `row` numbers apart.
__device__ __forceinline__ void put(f16* to, const float (&x)[2][4], float (&factor)[2], i64 sample, int first, int row, int length) {
    f16* at = to + sample * length * row + blockIdx.x * EACH;
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int t = first + row_of(2 * h);
            if (t < length) store2(at + (i64)t * row, column_of(n, 0) / 2, make_float2(factor[h] * x[n][2 * h], factor[h] * x[n][2 * h + 1]));
        }
}

template <int BLOCKS> struct Memory {
    static constexpr int ROWS = BLOCKS * 16;
    f16 q[ROWS * PITCH], k[ROWS * PITCH], v[ROWS * PITCH], d[ROWS * PITCH];
    float2 sums[ROWS];   // of every query
    float means[ROWS];   // of its weights' gradients
    u8 padding[ROWS];
};

template <int BLOCKS> __device__ __forceinline__ void forward(const Attention<f16>& a, f16* out, Memory<BLOCKS>& s, i64 sample) {
    const int length = a.text.length, first = first_seen(text_of(a.text, sample), length, s.padding), q0 = threadIdx.x / 32 * 16, all = blockDim.x / 2;
    const int end = q0 < first ? all : q0 + 16;   // keys that some query of this warp may see
    u32 query[4];
    float w[2 * BLOCKS][4], largest[2] = {-__int_as_float(0x7f800000), -__int_as_float(0x7f800000)}, total[2] = {0.f, 0.f}, o[2][4];
    left(query, s.q, q0);
    products<BLOCKS>(w, query, s.k, 0, end);
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int key = column_of(n, e);
            if (n * 8 >= end || key >= length) { w[n][e] = -__int_as_float(0x7f800000); continue; }
            w[n][e] = key > q0 + row_of(e) || s.padding[key] ? BLOCKED : SCALE * w[n][e];
            largest[e / 2] = fmaxf(largest[e / 2], w[n][e]);
        }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 1));
        largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], 2));
    }
#pragma unroll
    for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            w[n][e] = n * 8 < end ? __expf(w[n][e] - largest[e / 2]) : 0.f;
            total[e / 2] += w[n][e];
        }
    weighted<BLOCKS>(o, w, s.v, 0, end);
    float share[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        share[h] = 1.f / quad_sum(total[h]);
        const int t = q0 + row_of(2 * h);
        if (a.sums && (threadIdx.x & 3) == 0 && t < length) a.sums[(sample * gridDim.x + blockIdx.x) * length + t] = make_float2(largest[h], share[h]);
    }
    put(out, o, share, sample, q0, gridDim.x * EACH, length);
}

template <int BLOCKS> __device__ __forceinline__ void backward(const Attention<f16>& a, f16* dq, f16* dk, f16* dv, Memory<BLOCKS>& s, i64 sample) {
    const int length = a.text.length, first = first_seen(text_of(a.text, sample), length, s.padding), q0 = threadIdx.x / 32 * 16, all = blockDim.x / 2;
    float one[2] = {1.f, 1.f}, w[2 * BLOCKS][4], g[2 * BLOCKS][4], o[2][4];
    u32 rows[4];
    {   // this warp's queries, over their keys
        const int end = q0 < first ? all : q0 + 16;
        left(rows, s.q, q0);
        products<BLOCKS>(w, rows, s.k, 0, end);
        left(rows, s.d, q0);
        products<BLOCKS>(g, rows, s.v, 0, end);
        float mean[2] = {0.f, 0.f};
        const float2 sums[2] = {s.sums[q0 + row_of(0)], s.sums[q0 + row_of(2)]};
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = column_of(n, e);
                const bool there = n * 8 < end && key < length, hidden = there && (key > q0 + row_of(e) || s.padding[key]);
                const float p = there ? __expf((hidden ? BLOCKED : SCALE * w[n][e]) - sums[e / 2].x) * sums[e / 2].y : 0.f;
                mean[e / 2] = fmaf(p, g[n][e], mean[e / 2]);
                w[n][e] = hidden ? 0.f : SCALE * p;
            }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            mean[h] = quad_sum(mean[h]);
            if ((threadIdx.x & 3) == 0) s.means[q0 + row_of(2 * h)] = mean[h];
        }
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) w[n][e] *= g[n][e] - mean[e / 2];
        weighted<BLOCKS>(o, w, s.k, 0, end);
        put(dq, o, one, sample, q0, a.row, length);
    }
    __syncthreads();
    {   // this warp's keys, over the queries that may see them
        const int begin = first ? 0 : q0;
        left(rows, s.k, q0);
        products<BLOCKS>(w, rows, s.q, begin, all);
        left(rows, s.v, q0);
        products<BLOCKS>(g, rows, s.d, begin, all);
#pragma unroll
        for (int n = 0; n < 2 * BLOCKS; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int t = column_of(n, e), key = q0 + row_of(e);
                const bool hidden = key > t || s.padding[key < length ? key : 0];
                const float2 sums = s.sums[t];   // zeros beyond the last query
                w[n][e] = n * 8 >= begin && n * 8 < all && key < length ? __expf((hidden ? BLOCKED : SCALE * w[n][e]) - sums.x) * sums.y : 0.f;
                g[n][e] = hidden ? 0.f : SCALE * w[n][e] * (g[n][e] - s.means[t]);
            }
        weighted<BLOCKS>(o, w, s.d, begin, all);
        put(dv, o, one, sample, q0, a.row, length);
        weighted<BLOCKS>(o, g, s.q, begin, all);
        put(dk, o, one, sample, q0, a.row, length);
    }
}

// out [samples][length][heads * 16].
template <int BLOCKS> __device__ __forceinline__ void attend(const Attention<f16>& a, f16* out) {
    __shared__ __align__(16) Memory<BLOCKS> s;
    const Mine mine = my_sample(a.cohort);
    if (!mine.here) return;
    load(s.q, a.q, mine.sample, a.row, a.text.length);
    load(s.k, a.k, mine.sample, a.row, a.text.length);
    load(s.v, a.v, mine.sample, a.row, a.text.length);
    forward<BLOCKS>(a, out, s, mine.sample);
}
// Gradients of q, k and v, laid out like them, from that of `out`.
template <int BLOCKS> __device__ __forceinline__ void attend_backward(const Attention<f16>& a, const f16* dout, f16* dq, f16* dk, f16* dv) {
    __shared__ __align__(16) Memory<BLOCKS> s;
    const Mine mine = my_sample(a.cohort);
    if (!mine.here) return;
    const int length = a.text.length;
    load(s.q, a.q, mine.sample, a.row, length);
    load(s.k, a.k, mine.sample, a.row, length);
    load(s.v, a.v, mine.sample, a.row, length);
    load(s.d, dout, mine.sample, gridDim.x * EACH, length);
    for (int t = threadIdx.x; t < s.ROWS; t += blockDim.x) {
        s.sums[t] = t < length ? a.sums[(mine.sample * gridDim.x + blockIdx.x) * length + t] : make_float2(0.f, 0.f);
        s.means[t] = 0.f;
    }
    backward<BLOCKS>(a, dq, dk, dv, s, mine.sample);
}

#define ATTENTION(LONGEST, AT_ONCE)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(2 * LONGEST, AT_ONCE) attention_f16_##LONGEST(Attention<f16> a, f16* out) { attend<LONGEST / 16>(a, out); } \
    extern "C" __global__ void __launch_bounds__(2 * LONGEST, AT_ONCE) attention_backward_f16_##LONGEST(Attention<f16> a, const f16* dout, f16* dq, f16* dk, f16* dv) { \
        attend_backward<LONGEST / 16>(a, dout, dq, dk, dv);                                                                             \
    }
ATTENTION(16, 16)
ATTENTION(80, 3)
ATTENTION(128, 1)
