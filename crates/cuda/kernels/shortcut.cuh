// What a residual block adds to what it has computed.
#pragma once
#include "common.cuh"

// [samples][HS][WS][CS]. With as many channels as the block has it is added as it is; otherwise every second pixel of it, with channels of zero on
// both sides. `x` may be null.
struct Shortcut {
    const float* x;
    int W;            // columns of the block's output
    int HS, WS, CS;
};

// At a pixel and two channels of the block's output of C channels.
__device__ __forceinline__ float2 shortcut_at(const Shortcut& s, i64 sample, int pixel, int channel, int C) {
    if (s.CS == C) return load2(s.x + (sample * s.HS * s.WS + pixel) * C, channel / 2);
    const int y = pixel / s.W, x = pixel - y * s.W, c = channel - (C - s.CS) / 2;
    const float* from = s.x + ((sample * s.HS + 2 * y) * s.WS + 2 * x) * s.CS;
    return make_float2(c >= 0 && c < s.CS ? from[c] : 0.f, c + 1 >= 0 && c + 1 < s.CS ? from[c + 1] : 0.f);
}
