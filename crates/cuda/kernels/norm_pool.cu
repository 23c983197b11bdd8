// Batch normalisation with the max pooling behind it (pool.cu), so that what is between them is neither written nor read: pool(norm(x)), and the gradients. The
// activation in front is as in batch_norm.cu, whose statistics these are; there is none behind, and no shortcut. C is a multiple of 4.
#include "batch_norm.cuh"
#include "pool.cuh"

// Rows and columns of x; pixels = H W.
struct Plane { int H, W; };

// y, y16 (in 16 bits) and places, which entry of its window was taken, [ceil(H / 2)][ceil(W / 2)][C]; each may be null.
template <class T> __device__ __forceinline__ void apply(const BatchNorm& n, const Plane& p, const T* x, float* y, f16* y16, u8* places) {
    const Mine mine = my_sample(n.cohort);
    const int HO = (p.H + 1) / 2, WO = (p.W + 1) / 2, e = blockIdx.x * 256 + threadIdx.x, quads = n.C / 4;
    if (!mine.here || e >= HO * WO * quads) return;
    const int pixel = e / quads, quad = e - pixel * quads, top = window_begin(pixel / WO, p.H), left = window_begin(pixel % WO, p.W);
    const float4 *m = (const float4*)(n.moments + (i64)mine.client * n.C + 4 * quad), a = m[0], b = m[1];
    const float* of = n.scale + mine.client * n.stride + 4 * quad;
    const float4 mean = make_float4(a.x, a.z, b.x, b.z), scale = make_float4(a.y, a.w, b.y, b.w) * make_float4(of[0], of[1], of[2], of[3]);
    of = n.offset + mine.client * n.stride + 4 * quad;
    const float4 offset = make_float4(of[0], of[1], of[2], of[3]);
    float best[4];
    Bytes<4> place;
    bool begun = false;
#pragma unroll
    for (int t = 0; t < 9; t++) {
        const int row = top + t / 3, column = left + t % 3;
        if (row < 0 || row >= p.H || column < 0 || column >= p.W) continue;
        const float4 v = (load4(x, ((mine.sample * p.H + row) * p.W + column) * quads + quad) - mean) * scale + offset;
        const float here[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (!begun || here[k] > best[k] || here[k] != here[k]) { best[k] = here[k]; place.v[k] = t; }
        begun = true;
    }
    const i64 at = mine.sample * HO * WO * quads + e;
    const float4 out = make_float4(best[0], best[1], best[2], best[3]);
    if (y) store4(y, at, out);
    if (y16) store4(y16, at, out);
    if (places) ((Bytes<4>*)places)[at] = place;
}

// The gradient between normalisation and pooling at a pixel: from the at most four windows it is in.
__device__ __forceinline__ float4 pooled(const Plane& p, const float* dy, const u8* places, i64 sample, int pixel, int quad, int quads) {
    const int HO = (p.H + 1) / 2, WO = (p.W + 1) / 2, row = pixel / p.W, column = pixel - row * p.W;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const int i = (row + (p.H & 1)) / 2 - t / 2, j = (column + (p.W & 1)) / 2 - t % 2;
        const int ty = row - window_begin(i, p.H), tx = column - window_begin(j, p.W);
        if (i < 0 || j < 0 || i >= HO || j >= WO || ty > 2 || tx > 2) continue;
        const i64 at = ((sample * HO + i) * WO + j) * quads + quad;
        const Bytes<4> place = ((const Bytes<4>*)places)[at];
        const float4 d = load4(dy, at);
        const int mine = ty * 3 + tx;
        sum = sum + make_float4(place.v[0] == mine ? d.x : 0.f, place.v[1] == mine ? d.y : 0.f, place.v[2] == mine ? d.z : 0.f, place.v[3] == mine ? d.w : 0.f);
    }
    return sum;
}

// A chunk's share in the gradients of scale and offset, as from batch_norm_backward_look.
template <class T> __device__ __forceinline__ void backward_look(const BatchNorm& n, const Plane& p, const T* x, const float* dy, const u8* places, float* partial) {
    const Part l(n);
    if (!l.mine.here) return;
    float4 mean, inverse, along = make_float4(0.f, 0.f, 0.f, 0.f), plain = along;
    l.moments(n, mean, inverse);
#pragma unroll 2
    for (int i = 0; l.has(i); i++) {
        const float4 g = pooled(p, dy, places, l.mine.sample, l.pixel(i), l.channel / 4, l.quads);
        along = along + g * ((load4(x, l.at(i)) - mean) * inverse);
        plain = plain + g;
    }
    along = column_sum(along, l);
    plain = column_sum(plain, l);
    if (l.row) return;
    float* to = partial + (l.mine.sample * n.chunks + l.chunk) * 2 * n.C;
    store4(to, l.channel / 4, along);
    store4(to + n.C, l.channel / 4, plain);
}

// dx and dx16 as from batch_norm_backward.
template <class T> __device__ __forceinline__ void backward(const BatchNorm& n, const Plane& p, const T* x, const float* dy, const u8* places, const float* gradients, i64 apart, float* dx, f16* dx16, float scale16) {
    const Part l(n);
    if (!l.mine.here || l.row >= l.rows) return;
    float4 mean, inverse, along = make_float4(0.f, 0.f, 0.f, 0.f), plain = along;
    l.moments(n, mean, inverse);
    const float4 scale = inverse * l.of(n, n.scale);
    if (gradients) {
        const float share = 1.f / ((float)l.mine.count * n.pixels);
        const float* of = gradients + l.mine.client * apart + l.channel;
        along = share * make_float4(of[0], of[1], of[2], of[3]);
        of += n.C;
        plain = share * make_float4(of[0], of[1], of[2], of[3]);
    }
#pragma unroll 2
    for (int i = 0; l.has(i); i++) {
        const float4 v = load4(x, l.at(i)), d = pooled(p, dy, places, l.mine.sample, l.pixel(i), l.channel / 4, l.quads);
        float4 out = scale * (d - plain - (v - mean) * inverse * along);
        if (n.before != IDENTITY) out = out * slope_of(n.before, v);
        if (dx) store4(dx, l.at(i), out);
        if (dx16) store4(dx16, l.at(i), scale16 * out);
    }
}

// Grids: (ceil(ceil(H / 2) ceil(W / 2) C / 1024), most samples of a client, clients) forward, that of batch_norm.cu back; 256 threads.
#define NORM_POOL(BITS, T)                                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) norm_pool_##BITS(BatchNorm n, Plane p, const T* x, float* y, f16* y16, u8* places) { apply(n, p, x, y, y16, places); } \
    extern "C" __global__ void __launch_bounds__(256) norm_pool_backward_look_##BITS(BatchNorm n, Plane p, const T* x, const float* dy, const u8* places, float* partial) { backward_look(n, p, x, dy, places, partial); } \
    extern "C" __global__ void __launch_bounds__(256) norm_pool_backward_##BITS(BatchNorm n, Plane p, const T* x, const float* dy, const u8* places, const float* gradients, i64 apart, float* dx, f16* dx16, float scale16) { backward(n, p, x, dy, places, gradients, apart, dx, dx16, scale16); }
NORM_POOL(f32, float)
NORM_POOL(f16, f16)
