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

// For conv_packed_sm90.cu: w [client][CO][9][CI] in 16 bits as tiles of 128 output channels by 64 input channels, [client][ceil(CO / 128)][ceil(CI / 64)][9][128][64], in the order of conv_tiles.cuh and with
// zeros where there is no channel; `turned` the same of the turned weights, so that the output channels are those of CI. Clients are `stride` numbers apart in w and `packed_stride` in `packed`.
// Grid: (ceil(pieces of 8 numbers / 256), clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) pack_weights(const float* w, f16* packed, i64 stride, i64 packed_stride, int CI, int CO, int turned) {
    const int rows = turned ? CI : CO, inner = turned ? CO : CI, across = (inner + 63) / 64, e = blockIdx.x * 256 + threadIdx.x;
    // Neighbouring threads read neighbouring numbers.
    const int row = turned ? e & 127 : e >> 3 & 127, piece = turned ? e >> 7 & 7 : e & 7, tile = e >> 10, tap = tile % 9, chunk = tile / 9 % across, r = tile / 9 / across * 128 + row;
    if (tile >= (rows + 127) / 128 * across * 9) return;
    const float* from = w + blockIdx.y * stride;
    float v[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const int i = chunk * 64 + piece * 8 + k;
        v[k] = r >= rows || i >= inner ? 0.f : turned ? from[((i64)i * 9 + 8 - tap) * CI + r] : from[((i64)r * 9 + tap) * CI + i];
    }
    *(uint4*)(packed + blockIdx.y * packed_stride + (i64)tile * 8192 + row * 64 + (piece ^ (row & 7)) * 8) = make_uint4(pack2(v[0], v[1]), pack2(v[2], v[3]), pack2(v[4], v[5]), pack2(v[6], v[7]));
}
