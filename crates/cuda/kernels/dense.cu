// Fully connected layers, every client its own: y = phi(x W + b) with W [in][out], in 32 bits. At a client's few samples these layers are bound
// by reading their weights, which tensor cores do not make faster; over the positions of texts the 1x1 convolutions of conv.cu are the faster ones.
//
// A sample has `per` rows (1, or the positions of a text). Blocks of 256 threads, 32 rows (or inputs) by 128 columns. A long inner sum is cut into
// `parts` for more blocks; the parts are added in order by dense_finish. dense_few.cu has the same for few rows and many weights.
#include "dense.cuh"
#include "product.cuh"

// This block's part of an inner sum of n.
struct Stretch { int begin, end; };
__device__ __forceinline__ Stretch stretch_of(int n, int parts) {
    const int length = (n + parts - 1) / parts, begin = (int)blockIdx.y % parts * length;
    return {begin, begin + length < n ? begin + length : n};
}

// partial[part][sample][per][out]. Grid: (ceil(out / 128), ceil(most rows of a client / 32) * parts, clients).
extern "C" __global__ void __launch_bounds__(256) dense_forward(Dense d, float* partial, int parts, int samples) {
    const int client = blockIdx.z, part = blockIdx.y % parts, m0 = blockIdx.y / parts * 32;
    const int2 span = d.cohort.spans[client];
    if (m0 >= span.y * d.per) return;
    const Stretch k = stretch_of(d.in, parts);
    const float* w = d.w + client * d.w_stride;
    product<32, 128, ALONG_INNER, ALONG_OUTER>(
        m0, blockIdx.x * 128, span.y * d.per, d.out, k.begin, k.end,
        [&](int m, int k) { return d.x[row_at(d.cohort, span, m, d.per) * d.in + k]; },
        [&](int k, int n) { return w[(i64)k * d.out + n]; },
        [&](int m, int n, float sum) { partial[((i64)part * samples * d.per + row_at(d.cohort, span, m, d.per)) * d.out + n] = sum; });
}

// y = phi(sum of parts + bias + more); bias and more [samples][per][out] may be null. With `more` the injected input this is DEQ-MLP's cell.
// Grid: (ceil(out / 256), up to most rows of a client, clients), 256 threads.
extern "C" __global__ void dense_finish(const float* partial, const float* bias, const float* more, float* y, Cohort cohort, i64 bias_stride, int out, int per, int parts, int samples, int phi) {
    const int client = blockIdx.z, n = blockIdx.x * 256 + threadIdx.x;
    const int2 span = cohort.spans[client];
    if (n >= out) return;
    for (int row = blockIdx.y; row < span.y * per; row += gridDim.y) {
        const i64 at = row_at(cohort, span, row, per) * out + n;
        float sum = bias ? bias[client * bias_stride + n] : 0.f;
        for (int part = 0; part < parts; part++) sum += partial[(i64)part * samples * per * out + at];
        if (more) sum += more[at];
        y[at] = phi_of(phi, sum);
    }
}

// dx = dy W^T, as partial[part][sample][per][in], which dense_finish adds up; with one part that is dx. Grid: (ceil(in / 128), ceil(most rows of a client / 32) * parts, clients).
extern "C" __global__ void __launch_bounds__(256) dense_input(Dense d, float* partial, int parts, int samples) {
    const int client = blockIdx.z, part = blockIdx.y % parts, m0 = blockIdx.y / parts * 32;
    const int2 span = d.cohort.spans[client];
    if (m0 >= span.y * d.per) return;
    const Stretch k = stretch_of(d.out, parts);
    const float* w = d.w + client * d.w_stride;
    product<32, 128, ALONG_INNER, ALONG_INNER>(
        m0, blockIdx.x * 128, span.y * d.per, d.in, k.begin, k.end,
        [&](int m, int k) { return d.dy[row_at(d.cohort, span, m, d.per) * d.out + k]; },
        [&](int k, int n) { return w[(i64)n * d.out + k]; },
        [&](int m, int n, float sum) { partial[((i64)part * samples * d.per + row_at(d.cohort, span, m, d.per)) * d.in + n] = sum; });
}

// dw = x^T dy, clients `w_stride` apart. Grid: (ceil(out / 128), ceil(in / 32), clients).
extern "C" __global__ void __launch_bounds__(256) dense_weights(Dense d, float* dw) {
    const int client = blockIdx.z;
    const int2 span = d.cohort.spans[client];
    product<32, 128, ALONG_OUTER, ALONG_OUTER>(
        blockIdx.y * 32, blockIdx.x * 128, d.in, d.out, 0, span.y * d.per,
        [&](int m, int k) { return d.x[row_at(d.cohort, span, k, d.per) * d.in + m]; },
        [&](int k, int n) { return d.dy[row_at(d.cohort, span, k, d.per) * d.out + n]; },
        [&](int m, int n, float sum) { dw[client * d.w_stride + (i64)m * d.out + n] = sum; });
}
