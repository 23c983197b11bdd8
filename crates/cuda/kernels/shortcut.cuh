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

// At a pixel and four channels of the block's output of C channels, all multiples of 4.
__device__ __forceinline__ float4 shortcut_at(const Shortcut& s, i64 sample, int pixel, int channel, int C) {
    if (s.CS == C) return load4(s.x, ((sample * s.HS * s.WS + pixel) * C + channel) / 4);
    const int y = pixel / s.W, x = pixel - y * s.W, c = channel - (C - s.CS) / 2;
    const float* from = s.x + ((sample * s.HS + 2 * y) * s.WS + 2 * x) * s.CS;
    auto at = [&](int k) { return c + k >= 0 && c + k < s.CS ? from[c + k] : 0.f; };
    return make_float4(at(0), at(1), at(2), at(3));
}
