// Transformer layers one after the other, where nothing of their inside is kept: texts of up to 16 symbols, 64 numbers a position, 4 heads, 256 numbers inside an MLP.
//     h <- h + injection;  h <- h + drop(attention(norm_1(h)));  h <- h + drop(mlp(norm_2(h)));   y = norm(h) at the end, or h.
// 16-bit factors, 32-bit sums, and a stream of 32 bits that never leaves the registers: a solver's step over a whole stack is one launch, where texts so short would leave the card
// waiting for launches.
//
// A block takes four texts of a client; two warps share a text's 16 positions, each with two heads and half of the MLP, and both hold the stream. While one half of a layer is
// computed, the weights of the next are on their way. Grid: (ceil(most samples of a client / 4), clients), 256 threads. Dynamic shared memory: 144,384 bytes.
#include "attention.cuh"
#include "mlp.cuh"

constexpr int TEXTS = 4, LONGEST = 16, MOST_LAYERS = 16, SUMS = WIDTH + 8;   // from row to row of sums: half a warp's pairs meet in no bank
constexpr int OF_QKV = 3 * WIDTH * NARROW, OF_OUTPUT = WIDTH * NARROW, OF_W1 = INSIDE * NARROW, OF_W2 = WIDTH * WIDE;
constexpr float EPSILON = 1e-5f;

struct Norm { const float *scale, *offset; };
struct Layer {
    const f16 *qkv, *output, *w1, *w2;                    // [clients][192][64], [64][64], [256][64] and [64][256]: output by input
    const float *qkv_bias, *output_bias, *b1, *b2;        // clients `stride` numbers apart, like the norms'
    Norm first, second;
    const u8* masks[2];                                   // of attention and MLP, as layer_norm.cu has them; may be null
};
struct Stack {
    Layer layers[MOST_LAYERS];
    Norm end;                  // may be null
    const float *h, *injection;   // [samples][length][64]; h may be null
    float* y;                  // [samples][length][64]
    Text text;
    Cohort cohort;
    i64 stride, mask_stride;
    float kept;                // what numbers are multiplied by that are not dropped
    int count;                 // of layers
};

__device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
}

// f(h, n, e) for the pairs of numbers that a thread holds of 16 rows: row lane / 4 + 8 h, columns 8 n + 2 (lane % 4)..., the pair being v[n][e] and v[n][e + 1].
template <class F> __device__ __forceinline__ void mine(F f) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) f(h, n, 2 * h);
}

// x <- its normalisation, row by row.
__device__ __forceinline__ void normalise(float (&x)[8][4], const Norm& norm, i64 client) {
    const int column = threadIdx.x & 3;
    float sums[2] = {0.f, 0.f}, squares[2] = {0.f, 0.f};
    mine([&](int h, int n, int e) { sums[h] += x[n][e] + x[n][e + 1]; });
    const float means[2] = {quad_sum(sums[0]) / WIDTH, quad_sum(sums[1]) / WIDTH};
    mine([&](int h, int n, int e) {
        x[n][e] -= means[h]; x[n][e + 1] -= means[h];
        squares[h] = fmaf(x[n][e], x[n][e], fmaf(x[n][e + 1], x[n][e + 1], squares[h]));
    });
    const float inverse[2] = {1.f / sqrtf(quad_sum(squares[0]) / WIDTH + EPSILON), 1.f / sqrtf(quad_sum(squares[1]) / WIDTH + EPSILON)};
    mine([&](int h, int n, int e) {
        const float2 scale = load2(norm.scale + client, n * 4 + column), offset = load2(norm.offset + client, n * 4 + column);
        x[n][e] = fmaf(x[n][e] * inverse[h], scale.x, offset.x);
        x[n][e + 1] = fmaf(x[n][e + 1] * inverse[h], scale.y, offset.y);
    });
}
// The same as a left factor, leaving x as it is.
__device__ __forceinline__ void normalised(u32 (&a)[4][4], const float (&x)[8][4], const Norm& norm, i64 client) {
    float y[8][4];
    mine([&](int, int n, int e) { y[n][e] = x[n][e]; y[n][e + 1] = x[n][e + 1]; });
    normalise(y, norm, client);
#pragma unroll
    for (int k = 0; k < 4; k++) narrowed(a[k], y[2 * k], y[2 * k + 1]);
}

// d = rows `first`... of the weights times the positions: 16 x 16, with what is added to every column.
__device__ __forceinline__ void project(float (&d)[2][4], const u32 (&a)[4][4], const f16* w, int first, const float* bias) {
    u32 b[4];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const float2 v = load2(bias, (first + n * 8) / 2 + (threadIdx.x & 3));
        d[n][0] = d[n][2] = v.x;
        d[n][1] = d[n][3] = v.y;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        right(b, w, NARROW, first, k * 16);
        multiply(d[0], a[k], b[0], b[1]);
        multiply(d[1], a[k], b[2], b[3]);
    }
}
// The transposed of it: rows are numbers of the head, columns positions. As sums of a product it is laid out like the right factor of the next one.
__device__ __forceinline__ void project_turned(float (&d)[2][4], const u32 (&a)[4][4], const f16* w, int first, const float* bias) {
    const int row = first + (threadIdx.x & 31) / 4;
    d[0][0] = d[0][1] = d[1][0] = d[1][1] = bias[row];
    d[0][2] = d[0][3] = d[1][2] = d[1][3] = bias[row + 8];
    u32 b[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
        left(b, w, NARROW, first, k * 16);
        multiply(d[0], b, a[k][0], a[k][2]);
        multiply(d[1], b, a[k][1], a[k][3]);
    }
}

// out += what one head sees, projected. Bit t of `padding` says whether symbol t is.
__device__ __forceinline__ void add_head(float (&out)[8][4], const u32 (&a)[4][4], const f16* qkv, const f16* output, const float* bias, int head, u32 padding, int length) {
    const float none = -__int_as_float(0x7f800000);
    const int lane = threadIdx.x & 31;
    float q[2][4], k[2][4], v[2][4], w[2][4] = {}, seen[2][4] = {};
    project(q, a, qkv, head * EACH, bias);
    project(k, a, qkv, WIDTH + head * EACH, bias);
    project_turned(v, a, qkv, 2 * WIDTH + head * EACH, bias);
    u32 r[4];
    narrowed(r, q[0], q[1]);
    // Keys and values are where the matrix instruction wants its right factor already.
    multiply(w[0], r, pack2(k[0][0], k[0][1]), pack2(k[1][0], k[1][1]));
    multiply(w[1], r, pack2(k[0][2], k[0][3]), pack2(k[1][2], k[1][3]));
    float share[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float largest = none, total = 0.f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& score = w[i / 2][2 * h + i % 2];
            const int key = i / 2 * 8 + 2 * (lane & 3) + i % 2;
            score = key >= length ? none : key > lane / 4 + 8 * h || padding >> key & 1 ? BLOCKED : SCALE * score;
            largest = fmaxf(largest, score);
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float& score = w[i / 2][2 * h + i % 2];
            score = __expf(score - largest);
            total += score;
        }
        share[h] = 1.f / quad_sum(total);
    }
    narrowed(r, w[0], w[1]);
    multiply(seen[0], r, pack2(v[0][0], v[0][1]), pack2(v[1][0], v[1][1]));
    multiply(seen[1], r, pack2(v[0][2], v[0][3]), pack2(v[1][2], v[1][3]));
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) seen[n][e] *= share[e / 2];
    narrowed(r, seen[0], seen[1]);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        u32 b[4];
        right(b, output, NARROW, n * 16, head * EACH);
        multiply(out[2 * n], r, b[0], b[1]);
        multiply(out[2 * n + 1], r, b[2], b[3]);
    }
}

// Weights on their way to shared memory, `rows` of them.
__device__ __forceinline__ void fetch(f16* to, const f16* from, int rows, int columns, int pitch) {
    for (int e = threadIdx.x; e < rows * columns / 8; e += 256)
        copy16(shared_address(to + e / (columns / 8) * pitch + e % (columns / 8) * 8), from + e * 8, true);
}

// A warp's text, its place in memory and its half of the work.
struct Text16 { int row, half; bool here; i64 first; };   // the block's row it begins at; the first pair of its numbers

// x += drop(sums of both halves + bias).
__device__ __forceinline__ void add_branch(float (&x)[8][4], const float (&out)[8][4], float* sums, const Text16& t, const Stack& p, const float* bias, const u8* mask, i64 sample) {
    const int lane = threadIdx.x & 31;
    each_pair(out, t.row, [&](int m, int n, float one, float two) { *(float2*)(sums + (t.half * ROWS + m) * SUMS + n) = make_float2(one, two); });
    __syncthreads();
    mine([&](int h, int n, int e) {
        const int row = lane / 4 + 8 * h, column = n * 8 + 2 * (lane & 3);
        const float2 other = *(const float2*)(sums + ((1 - t.half) * ROWS + t.row + row) * SUMS + column), b = load2(bias, column / 2);
        float2 f = make_float2(1.f, 1.f);
        if (mask && t.here && row < p.text.length) {
            const unsigned short both = *(const unsigned short*)(mask + sample * p.mask_stride + row * WIDTH + column);
            f = make_float2(both & 0xff ? p.kept : 0.f, both >> 8 ? p.kept : 0.f);
        }
        x[n][e] = fmaf(f.x, out[n][e] + other.x + b.x, x[n][e]);
        x[n][e + 1] = fmaf(f.y, out[n][e + 1] + other.y + b.y, x[n][e + 1]);
    });
}

extern "C" __global__ void __launch_bounds__(256, 1) layers_f16(const __grid_constant__ Stack p) {
    extern __shared__ __align__(16) f16 memory[];
    f16 *qkv = memory, *output = qkv + OF_QKV, *w1 = output + OF_OUTPUT, *w2 = w1 + OF_W1;
    float* sums = (float*)(w2 + OF_W2);   // [2][64][SUMS]
    const int client = blockIdx.y, tid = threadIdx.x, lane = tid & 31, length = p.text.length;
    const int2 span = p.cohort.spans[client];
    if ((int)blockIdx.x * TEXTS >= span.y) return;
    const i64 of_client = client * p.stride;
    // Beyond the last layer there is nothing to copy, which counts as a group of copies all the same.
    auto fetch_attention = [&](int layer) {
        if (layer < p.count) {
            fetch(qkv, p.layers[layer].qkv + (i64)client * 3 * WIDTH * WIDTH, 3 * WIDTH, WIDTH, NARROW);
            fetch(output, p.layers[layer].output + (i64)client * WIDTH * WIDTH, WIDTH, WIDTH, NARROW);
        }
        copies_commit();
    };
    auto fetch_mlp = [&](int layer) {
        if (layer < p.count) {
            fetch(w1, p.layers[layer].w1 + (i64)client * INSIDE * WIDTH, INSIDE, WIDTH, NARROW);
            fetch(w2, p.layers[layer].w2 + (i64)client * INSIDE * WIDTH, WIDTH, INSIDE, WIDE);
        }
        copies_commit();
    };
    fetch_attention(0);
    fetch_mlp(0);

    const int warp = tid >> 5, index = blockIdx.x * TEXTS + warp % TEXTS;
    const bool here = index < span.y;
    const i64 sample = here ? sample_at(p.cohort, span, index) : 0;
    const Text16 text{warp % TEXTS * LONGEST, warp / TEXTS, here, sample * length * (WIDTH / 2)};
    const u32 padding = __ballot_sync(~0u, here && lane < length && text_of(p.text, sample)[lane < length ? lane : 0] == 0);
    // Of the pairs that a thread holds; there are none beyond the end of a text.
    auto place = [&](int h, int n) { return text.first + (lane / 4 + 8 * h) * (WIDTH / 2) + n * 4 + (lane & 3); };
    auto there = [&](int h) { return here && lane / 4 + 8 * h < length; };
    float x[8][4] = {};
    if (p.h) mine([&](int h, int n, int e) {
        const float2 v = there(h) ? load2(p.h, place(h, n)) : make_float2(0.f, 0.f);
        x[n][e] = v.x; x[n][e + 1] = v.y;
    });
    for (int at = 0; at < p.count; at++) {
        const Layer& layer = p.layers[at];
        mine([&](int h, int n, int e) {
            const float2 v = there(h) ? load2(p.injection, place(h, n)) : make_float2(0.f, 0.f);
            x[n][e] += v.x; x[n][e + 1] += v.y;
        });
        u32 a[4][4];
        {
            float out[8][4] = {};
            normalised(a, x, layer.first, of_client);
            copies_wait<1>();
            __syncthreads();
#pragma unroll 1
            for (int head = 2 * text.half; head < 2 * text.half + 2; head++)
                add_head(out, a, qkv, output, layer.qkv_bias + of_client, head, padding, length);
            add_branch(x, out, sums, text, p, layer.output_bias + of_client, layer.masks[0], sample);
        }
        // Nobody reads the weights of the attention any more.
        fetch_attention(at + 1);
        {
            float out[8][4] = {};
            normalised(a, x, layer.second, of_client);
            copies_wait<1>();
            __syncthreads();
            add_mlp(out, a, w1, w2, layer.b1 + of_client, text.half);
            add_branch(x, out, sums, text, p, layer.b2 + of_client, layer.masks[1], sample);
        }
        fetch_mlp(at + 1);
    }
    if (p.end.scale) normalise(x, p.end, of_client);
    mine([&](int h, int n, int e) {
        if (n / 4 == text.half && there(h)) store2(p.y, place(h, n), make_float2(x[n][e], x[n][e + 1]));
    });
}
