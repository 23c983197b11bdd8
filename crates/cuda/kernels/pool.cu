// The largest of every 3x3 window moved by 2, with TensorFlow's SAME padding, [H][W][C] -> [ceil(H / 2)][ceil(W / 2)][C], in 32 bits.
// Grid: (ceil(numbers of an output, or of an input, / (256 V)), most samples of a client, clients), 256 threads.
#include "pool.cuh"

// V neighbouring channels a thread: 4 where that divides the channels.
template <int V> struct alignas(V * 4) Floats { float v[V]; };

// `places` gets which of the nine entries was taken, the first among equals; what is not a number wins.
template <int V> __device__ __forceinline__ void forward(const float* x, float* y, u8* places, const Cohort& cohort, int H, int W, int C) {
    const Mine mine = my_sample(cohort);
    const int HO = (H + 1) / 2, WO = (W + 1) / 2, e = (blockIdx.x * 256 + threadIdx.x) * V;
    if (!mine.here || e >= HO * WO * C) return;
    const int pixel = e / C, c = e - pixel * C, top = window_begin(pixel / WO, H), left = window_begin(pixel % WO, W);
    Floats<V> best;
    Bytes<V> place;
    bool begun = false;
#pragma unroll
    for (int t = 0; t < 9; t++) {
        const int row = top + t / 3, column = left + t % 3;
        if (row < 0 || row >= H || column < 0 || column >= W) continue;
        const Floats<V> here = *(const Floats<V>*)(x + ((mine.sample * H + row) * W + column) * C + c);
#pragma unroll
        for (int k = 0; k < V; k++)
            if (!begun || here.v[k] > best.v[k] || here.v[k] != here.v[k]) { best.v[k] = here.v[k]; place.v[k] = t; }
        begun = true;
    }
    *(Floats<V>*)(y + mine.sample * HO * WO * C + e) = best;
    if (places) *(Bytes<V>*)(places + mine.sample * HO * WO * C + e) = place;
}

// Every input looks at the at most four windows it is in.
template <int V> __device__ __forceinline__ void backward(const float* dy, const u8* places, float* dx, const Cohort& cohort, int H, int W, int C) {
    const Mine mine = my_sample(cohort);
    const int HO = (H + 1) / 2, WO = (W + 1) / 2, e = (blockIdx.x * 256 + threadIdx.x) * V;
    if (!mine.here || e >= H * W * C) return;
    const int pixel = e / C, c = e - pixel * C, row = pixel / W, column = pixel % W;
    Floats<V> sum = {};
#pragma unroll
    for (int t = 0; t < 4; t++) {
        const int i = (row + (H & 1)) / 2 - t / 2, j = (column + (W & 1)) / 2 - t % 2;
        const int ty = row - window_begin(i, H), tx = column - window_begin(j, W);
        if (i < 0 || j < 0 || i >= HO || j >= WO || ty > 2 || tx > 2) continue;
        const i64 at = ((mine.sample * HO + i) * WO + j) * C + c;
        const Bytes<V> place = *(const Bytes<V>*)(places + at);
        const Floats<V> d = *(const Floats<V>*)(dy + at);
#pragma unroll
        for (int k = 0; k < V; k++) sum.v[k] += place.v[k] == ty * 3 + tx ? d.v[k] : 0.f;
    }
    *(Floats<V>*)(dx + mine.sample * H * W * C + e) = sum;
}

#define POOL(SUFFIX, V)                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) max_pool##SUFFIX(const float* x, float* y, u8* places, Cohort cohort, int H, int W, int C) { forward<V>(x, y, places, cohort, H, W, C); } \
    extern "C" __global__ void __launch_bounds__(256) max_pool_backward##SUFFIX(const float* dy, const u8* places, float* dx, Cohort cohort, int H, int W, int C) { backward<V>(dy, places, dx, cohort, H, W, C); }
POOL(, 1)
POOL(_by_4, 4)
