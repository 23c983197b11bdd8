// The MLP of a transformer's layer where nothing of its inside is kept: y = gelu(x W1 + b1) W2 + b2 over the positions of texts, 64 -> 256 -> 64, in one pass.
// 16-bit factors, 32-bit sums. A block takes 64 positions of a client and all its weights; a warp 16 positions and half of the inside, which it computes 16 numbers at a
// time and never writes anywhere. Grid: (ceil(most positions of a client / 64), clients), 256 threads. Dynamic shared memory: 79,872 bytes.
#include "gelu.cuh"
#include "tensor_core.cuh"

constexpr int WIDTH = 64, INSIDE = 256, ROWS = 64;
constexpr int NARROW = WIDTH + 8, WIDE = INSIDE + 8, SUMS = WIDTH + 4;   // from row to row in shared memory: eight rows of 16 bytes meet in no bank

struct Mlp {
    const f16* x;            // [samples][length][64]
    const f16 *w1, *w2;      // [clients][256][64] and [clients][64][256]: output by input
    const float *b1, *b2;    // clients `stride` numbers apart
    f16* y;                  // [samples][length][64]
    Cohort cohort;
    i64 stride;
    int length;
};

// Rows of the right factor, 16 of them from `first` on, by 16 numbers along which is added up.
__device__ __forceinline__ void right(u32 (&r)[4], const f16* x, int pitch, int first, int from) {
    const int lane = threadIdx.x & 31;
    fragment(r, shared_address(x + (first + (lane & 7) + ((lane >> 4) << 3)) * pitch + from + (lane >> 3 & 1) * 8));
}

// Row and column, and both numbers, of every pair of a warp's 16 x 64 sums.
template <class F> __device__ __forceinline__ void each_pair(const float (&sums)[8][4], int first, F f) {
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) f(first + lane / 4 + h * 8, n * 8 + 2 * (lane & 3), sums[n][2 * h], sums[n][2 * h + 1]);
}

extern "C" __global__ void __launch_bounds__(256, 2) mlp_f16(Mlp p) {
    extern __shared__ __align__(16) f16 memory[];
    __shared__ i64 places[ROWS];
    f16 *x = memory, *w1 = x + ROWS * NARROW, *w2 = w1 + INSIDE * NARROW;
    const int client = blockIdx.y, m0 = blockIdx.x * ROWS, tid = threadIdx.x, lane = tid & 31;
    const int2 span = p.cohort.spans[client];
    const int rows = span.y * p.length;
    if (m0 >= rows) return;
    if (tid < ROWS) {
        const int m = m0 + tid;
        places[tid] = m < rows ? (i64)sample_at(p.cohort, span, m / p.length) * p.length + m % p.length : -1;
    }
    const f16 *from1 = p.w1 + (i64)client * INSIDE * WIDTH, *from2 = p.w2 + (i64)client * INSIDE * WIDTH;
    for (int e = tid; e < INSIDE * WIDTH / 8; e += 256) {
        copy16(shared_address(w1 + e / 8 * NARROW + e % 8 * 8), from1 + e * 8, true);
        copy16(shared_address(w2 + e / 32 * WIDE + e % 32 * 8), from2 + e * 8, true);
    }
    __syncthreads();
    for (int e = tid; e < ROWS * WIDTH / 8; e += 256) {
        const i64 at = places[e / 8];
        copy16(shared_address(x + e / 8 * NARROW + e % 8 * 8), p.x + (at < 0 ? 0 : at) * WIDTH + e % 8 * 8, at >= 0);
    }
    copies_commit();
    copies_wait<0>();
    __syncthreads();

    const int wm = (tid >> 5 & 3) * 16, half = tid >> 7;
    u32 a[4][4];
#pragma unroll
    for (int k = 0; k < 4; k++) fragment(a[k], shared_address(x + (wm + (lane & 15)) * NARROW + k * 16 + (lane >> 4) * 8));
    const float* b1 = p.b1 + client * p.stride;
    float out[8][4] = {};
#pragma unroll 2
    for (int h = half * (INSIDE / 2); h < (half + 1) * (INSIDE / 2); h += 16) {
        float s[2][4] = {};
        u32 b[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            right(b, w1, NARROW, h, k * 16);
            multiply(s[0], a[k], b[0], b[1]);
            multiply(s[1], a[k], b[2], b[3]);
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const float2 bias = load2(b1, (h + n * 8) / 2 + (lane & 3));
#pragma unroll
            for (int e = 0; e < 4; e++) s[n][e] = gelu_fast(s[n][e] + (e & 1 ? bias.y : bias.x));
        }
        const u32 inside[4] = {pack2(s[0][0], s[0][1]), pack2(s[0][2], s[0][3]), pack2(s[1][0], s[1][1]), pack2(s[1][2], s[1][3])};
#pragma unroll
        for (int n = 0; n < 4; n++) {
            right(b, w2, WIDE, n * 16, h);
            multiply(out[2 * n], inside, b[0], b[1]);
            multiply(out[2 * n + 1], inside, b[2], b[3]);
        }
    }
    // The second half's sums go to the first one through the memory of W1.
    float* sums = (float*)w1;
    __syncthreads();
    if (half) each_pair(out, wm, [&](int m, int n, float one, float two) { *(float2*)(sums + m * SUMS + n) = make_float2(one, two); });
    __syncthreads();
    if (half) return;
    const float* b2 = p.b2 + client * p.stride;
    each_pair(out, wm, [&](int m, int n, float one, float two) {
        if (places[m] < 0) return;
        const float2 other = *(const float2*)(sums + m * SUMS + n), bias = load2(b2, n / 2);
        store2(p.y + places[m] * WIDTH, n / 2, make_float2(one + other.x + bias.x, two + other.y + bias.y));
    });
}
