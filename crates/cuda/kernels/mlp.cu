// The MLP of a transformer's layer where nothing of its inside is kept: y = gelu(x W1 + b1) W2 + b2 over the positions of texts, in one pass.
// A block takes 64 positions of a client and all its weights; a warp 16 positions and half of the inside.
// Grid: (ceil(most positions of a client / 64), clients), 256 threads. Dynamic shared memory: 79,872 bytes.
#include "mlp.cuh"

constexpr int SUMS = WIDTH + 4;

struct Mlp {
    const f16* x;            // [samples][length][64]
    const f16 *w1, *w2;      // [clients][256][64] and [clients][64][256]: output by input
    const float *b1, *b2;    // clients `stride` numbers apart
    f16* y;                  // [samples][length][64]
    Cohort cohort;
    i64 stride;
    int length;
};

extern "C" __global__ void __launch_bounds__(256, 2) mlp_f16(Mlp p) {
    extern __shared__ __align__(16) f16 memory[];
    __shared__ i64 places[ROWS];
    f16 *x = memory, *w1 = x + ROWS * NARROW, *w2 = w1 + INSIDE * NARROW;
    const int client = blockIdx.y, m0 = blockIdx.x * ROWS, tid = threadIdx.x;
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
    for (int k = 0; k < 4; k++) left(a[k], x, NARROW, wm, k * 16);
    float out[8][4] = {};
    add_mlp(out, a, w1, w2, p.b1 + client * p.stride, half);
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
