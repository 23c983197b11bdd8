// What a convolution is told, and the pixels of its blocks.
#pragma once
#include "common.cuh"

// 3x3, stride 1, zeros outside: y = phi(alpha conv(x, w) + bias). With flipped, transposed weights (see weights.cu) it is the gradient by input.
struct Conv {
    const f16* x;        // [samples][H][W][CI]
    const f16* w;        // [clients][CO][3][3][CI], clients `w_stride` numbers apart
    const float* bias;   // [clients][CO], clients `bias_stride` numbers apart; may be null
    void* y;             // [samples][H][W][CO], in 16 bits if `narrow`
    Cohort cohort;
    i64 w_stride, bias_stride;
    float alpha;         // undoes the scale of 16-bit gradients
    int H, W, CI, CO;    // CI and CO are multiples of 8
    int phi, narrow;     // settings rather than template parameters: these kernels are long, and their ends short
};

// A pixel of the cohort and which of the nine taps around it lie inside its image.
struct Pixel { int at; u32 inside; };

__device__ __forceinline__ Pixel pixel_of(const Cohort& cohort, int2 span, int p, int H, int W) {
    if (p >= span.y * H * W) return {-1, 0};
    const int index = p / (H * W), q = p - index * (H * W), y = q / W, x = q - y * W;
    u32 rows = (y > 0 ? 7u : 0u) | 7u << 3 | (y + 1 < H ? 7u << 6 : 0u);
    u32 columns = (x > 0 ? 0111u : 0u) | 0222u | (x + 1 < W ? 0444u : 0u);
    return {sample_at(cohort, span, index) * (H * W) + q, rows & columns};
}

// How far tap 0..8 is from its pixel.
__device__ __forceinline__ int tap_offset(int tap, int W) { return (tap / 3 - 1) * W + tap % 3 - 1; }
