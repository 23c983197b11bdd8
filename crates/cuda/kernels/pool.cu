// The largest of every 3x3 window moved by 2, with TensorFlow's SAME padding, [H][W][C] -> [ceil(H / 2)][ceil(W / 2)][C], in 32 bits.
// Grid: (ceil(numbers of an output or input / 256), most samples of a client, clients), 256 threads.
#include "common.cuh"

// Rows or columns of a window: SAME padding of an even size puts one beyond the end, of an odd size one at each end.
__device__ __forceinline__ int window_begin(int at, int size) { return 2 * at - (size & 1); }

// `places` gets which of the nine entries was taken, the first among equals; what is not a number wins.
extern "C" __global__ void max_pool(const float* x, float* y, u8* places, Cohort cohort, int H, int W, int C) {
    const int2 span = cohort.spans[blockIdx.z];
    const int HO = (H + 1) / 2, WO = (W + 1) / 2, e = blockIdx.x * 256 + threadIdx.x;
    if ((int)blockIdx.y >= span.y || e >= HO * WO * C) return;
    const i64 sample = sample_at(cohort, span, blockIdx.y);
    const int c = e % C, top = window_begin(e / C / WO, H), left = window_begin(e / C % WO, W);
    float best = 0.f;
    int place = -1;
    for (int t = 0; t < 9; t++) {
        const int row = top + t / 3, column = left + t % 3;
        if (row < 0 || row >= H || column < 0 || column >= W) continue;
        const float v = x[((sample * H + row) * W + column) * C + c];
        if (place < 0 || v > best || v != v) { best = v; place = t; }
    }
    y[sample * HO * WO * C + e] = best;
    if (places) places[sample * HO * WO * C + e] = place;
}

// Every input looks at the at most four windows it is in.
extern "C" __global__ void max_pool_backward(const float* dy, const u8* places, float* dx, Cohort cohort, int H, int W, int C) {
    const int2 span = cohort.spans[blockIdx.z];
    const int HO = (H + 1) / 2, WO = (W + 1) / 2, e = blockIdx.x * 256 + threadIdx.x;
    if ((int)blockIdx.y >= span.y || e >= H * W * C) return;
    const i64 sample = sample_at(cohort, span, blockIdx.y);
    const int c = e % C, row = e / C / W, column = e / C % W;
    float sum = 0.f;
    for (int i = (row + (H & 1)) / 2, down = 0; down < 2 && i >= 0; i--, down++)
        for (int j = (column + (W & 1)) / 2, across = 0; across < 2 && j >= 0; j--, across++) {
            const int ty = row - window_begin(i, H), tx = column - window_begin(j, W);
            if (i >= HO || j >= WO || ty > 2 || tx > 2) continue;
            const i64 at = ((sample * HO + i) * WO + j) * C + c;
            if (places[at] == ty * 3 + tx) sum += dy[at];
        }
    dx[sample * H * W * C + e] = sum;
}
