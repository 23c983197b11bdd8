// What gradients of convolutions by their weights are told.
#pragma once
#include "common.cuh"

struct WeightGradient {
    const f16* x;    // [samples][H][W][CI]
    const f16* dy;   // [samples][HO][WO][CO]
    float* dw;       // [parts][clients][CO][window][window][CI]
    i64 w_stride, part_stride;   // numbers from client to client, and from part to part
    float alpha;     // undoes the scale of 16-bit gradients
    int H, W, CI, HO, WO, CO;
    int window, stride, above, left;
};

// The problem a block works on; number by number, so that it stays in registers.
__device__ __forceinline__ WeightGradient chosen(const WeightGradient& a, const WeightGradient& b, int tiles_of_a) {
    const bool first = (int)blockIdx.x < tiles_of_a;
#define ONE(FIELD) first ? a.FIELD : b.FIELD
    return {ONE(x), ONE(dy), ONE(dw), ONE(w_stride), ONE(part_stride), ONE(alpha), ONE(H), ONE(W), ONE(CI), ONE(HO), ONE(WO), ONE(CO), ONE(window), ONE(stride), ONE(above), ONE(left)};
#undef ONE
}
__device__ __forceinline__ int tile_of_block(int tiles_of_a) { return blockIdx.x - ((int)blockIdx.x < tiles_of_a ? 0 : tiles_of_a); }
