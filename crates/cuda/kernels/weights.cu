// From trained 32-bit weights to what the convolutions on tensor cores read.
#include "common.cuh"

// w [client][CO][taps][CI] -> straight, the same in 16 bits, and turned [client][CI][taps][CO] with the taps in opposite order: the convolution with that
// is the gradient by input. Either may be null. Clients are `stride` numbers apart in w, the same for all layers, and `packed` in the others. A dense layer's [in][out] is CO = in, CI = out,
// one tap: its forward pass then reads `turned`, its gradient by input `straight`.
struct Weights {
    const float* w;
    f16 *straight, *turned;
    i64 packed;
    int CI, CO, taps;
    int first;   // of its blocks in the launch: ceil(CI / 32) * ceil(CO / 32) * taps
};
struct Layers { Weights of[16]; };

// Several layers at once. Tiles of 32 x 32 go through shared memory, so that both sides are read and written in order. Grid: (blocks of all layers, clients), 32 x 8 threads.
extern "C" __global__ void weights_to_f16(const __grid_constant__ Layers layers, int count, i64 stride) {
    __shared__ float tile[32][33];
    int layer = 0;
    while (layer + 1 < count && (int)blockIdx.x >= layers.of[layer + 1].first) layer++;
    const Weights& l = layers.of[layer];
    const int block = blockIdx.x - l.first, columns = (l.CI + 31) / 32, rows = (l.CO + 31) / 32;
    const int tap = block / (columns * rows), ci0 = block % columns * 32, co0 = block / columns % rows * 32;
    const i64 from = blockIdx.y * stride, to = blockIdx.y * l.packed;
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int co = co0 + r, ci = ci0 + threadIdx.x;
        if (co >= l.CO || ci >= l.CI) continue;
        const i64 at = ((i64)co * l.taps + tap) * l.CI + ci;
        const float v = l.w[from + at];
        tile[r][threadIdx.x] = v;
        if (l.straight) l.straight[to + at] = half_of(v);
    }
    __syncthreads();
    if (!l.turned) return;
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int ci = ci0 + r, co = co0 + threadIdx.x;
        if (co < l.CO && ci < l.CI) l.turned[to + ((i64)ci * l.taps + l.taps - 1 - tap) * l.CO + co] = half_of(tile[threadIdx.x][r]);
    }
}
