// What a convolution is told, and which pixels and taps its blocks work on.
#pragma once
#include "common.cuh"

// y = phi(alpha conv(x, w) + bias), or y += that. Windows are square, of 1 or 3; strides are 1 or 2; `above` rows and `left` columns of zeros
// lie in front (TensorFlow's SAME padding puts an odd one at the end).
// `back` makes it the gradient by input of such a convolution: x is the gradient of its output, y that of its input, and w is turned (weights.cu).
struct Conv {
    const f16* x;        // [samples][H][W][CI]
    const f16* w;        // [clients][CO][window][window][CI], clients `w_stride` numbers apart
    const float* bias;   // [clients][CO], clients `bias_stride` numbers apart; may be null
    void* y;             // [samples][HO][WO][CO], in 16 bits if `narrow`
    Cohort cohort;
    i64 w_stride, bias_stride;
    float alpha;         // undoes the scale of 16-bit gradients
    int H, W, CI, HO, WO, CO;        // CI and CO are multiples of 8
    int window, stride, above, left;
    int back;
    int phi, narrow, add;            // settings rather than template parameters: these kernels are long, and their ends short; `add` goes with 32 bits only
};

// One class of outputs, those that meet the same taps. A convolution has one class. Its gradient by input has `stride`^2 of them: an input pixel
// of one parity has only met every second tap, so that no product with zeros is computed.
struct Taps {
    int rows, columns;            // of the outputs of the class, in every sample
    int y, x, step;               // where the first of them is, and how far apart they are
    int from_y, from_x, stride;   // the source pixel under the first output's first tap, and how far it moves from output to output
    int ny, nx;                   // taps; the source moves by one from tap to tap
    int tap_y, tap_x, tap_step;   // which taps of the weights they are

    __device__ __forceinline__ int count() const { return ny * nx; }
    // The row of tap 0..8: tap / nx without a division.
    __device__ __forceinline__ int row_of(int tap) const { return tap * (nx == 3 ? 86 : nx == 2 ? 128 : 256) >> 8; }
};

__device__ __forceinline__ Taps all_taps(int HO, int WO, int window, int stride, int above, int left) {
    return {HO, WO, 0, 0, 1, -above, -left, stride, window, window, 0, 0, 1};
}
// With turned weights tap t of `window` is tap window - 1 - t: output a + stride i then reads source i + (a + above - (window - 1) + tap) / stride.
__device__ __forceinline__ Taps taps_of(const Conv& c, int part) {
    if (!c.back) return all_taps(c.HO, c.WO, c.window, c.stride, c.above, c.left);
    const int odd = c.stride - 1;   // the class with the most taps comes first
    const int a = ((part >> 1) ^ c.above) & odd, b = (part ^ c.left) & odd, last = c.window - 1;
    Taps t;
    t.rows = (c.HO - a + odd) / c.stride; t.columns = (c.WO - b + odd) / c.stride;
    t.y = a; t.x = b; t.step = c.stride; t.stride = 1; t.tap_step = c.stride;
    t.tap_y = (a + c.above + last) & odd; t.tap_x = (b + c.left + last) & odd;
    t.ny = (c.window - t.tap_y + odd) / c.stride; t.nx = (c.window - t.tap_x + odd) / c.stride;
    t.from_y = (a + c.above - last + t.tap_y) / c.stride; t.from_x = (b + c.left - last + t.tap_x) / c.stride;
    return t;
}

// An output pixel of the cohort, the source pixel under its first tap (it may lie outside), and which of its taps lie inside.
struct Pixel { int at, from; u32 inside; };

__device__ __forceinline__ Pixel pixel_of(const Cohort& cohort, int2 span, const Taps& t, int p, int H, int W, int HO, int WO) {
    const int each = t.rows * t.columns;
    if (p >= span.y * each) return {-1, 0, 0};
    const int index = p / each, q = p - index * each, i = q / t.columns, j = q - i * t.columns, sample = sample_at(cohort, span, index);
    const int y = i * t.stride + t.from_y, x = j * t.stride + t.from_x;
    u32 columns = 0, inside = 0;
#pragma unroll
    for (int k = 0; k < 3; k++) columns |= (k < t.nx && x + k >= 0 && x + k < W ? 1u : 0u) << k;
#pragma unroll
    for (int k = 0; k < 3; k++) inside |= k < t.ny && y + k >= 0 && y + k < H ? columns << k * t.nx : 0u;
    return {(sample * HO + t.y + t.step * i) * WO + t.x + t.step * j, (sample * H + y) * W + x, inside};
}
