// From trained 32-bit weights to what the convolutions on tensor cores read.
#include "common.cuh"

// w [client][CO][taps][CI] -> straight, the same in 16 bits, and turned [client][CI][taps][CO] with the taps in opposite order: the convolution with that
// is the gradient by input. Either may be null. Clients are `stride` numbers apart in w and `packed` in the others. A dense layer's [in][out] is CO = in, CI = out, one tap:
// its forward pass then reads `turned`, its gradient by input `straight`. Tiles of 32 x 32 go through shared memory,
// so that both sides are read and written in order. Grid: (ceil(CI / 32), ceil(CO / 32), taps * clients), 32 x 8 threads.
extern "C" __global__ void weights_to_f16(const float* w, f16* straight, f16* turned, i64 stride, i64 packed, int CI, int CO, int taps) {
    __shared__ float tile[32][33];
    const int tap = blockIdx.z % taps, ci0 = blockIdx.x * 32, co0 = blockIdx.y * 32;
    const i64 client = blockIdx.z / taps, from = client * stride, to = client * packed;
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int co = co0 + r, ci = ci0 + threadIdx.x;
        if (co >= CO || ci >= CI) continue;
        const i64 at = ((i64)co * taps + tap) * CI + ci;
        const float v = w[from + at];
        tile[r][threadIdx.x] = v;
        if (straight) straight[to + at] = half_of(v);
    }
    __syncthreads();
    if (!turned) return;
    for (int r = threadIdx.y; r < 32; r += 8) {
        const int ci = ci0 + r, co = co0 + threadIdx.x;
        if (co < CO && ci < CI) turned[to + ((i64)ci * taps + taps - 1 - tap) * CO + co] = half_of(tile[threadIdx.x][r]);
    }
}
