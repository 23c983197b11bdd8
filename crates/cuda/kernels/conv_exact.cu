// Convolutions and their gradients in 32 bits throughout: what the 16-bit kernels are compared with, and for any number of channels.
//
// Any odd-sized square window (1x1 and 3x3 are what networks use), any stride, `above` rows and `left` columns of zeros in front: TensorFlow's SAME
// padding puts the odd one at the end. Blocks of 256 threads, 64 x 64 numbers each.
#include "product.cuh"

struct ConvExact {
    const float* x;      // [samples][H][W][CI]
    const float* w;      // [clients][CO][window][window][CI], clients `w_stride` numbers apart
    const float* bias;   // [clients][CO], clients `bias_stride` numbers apart; may be null
    float* y;            // [samples][HO][WO][CO]
    Cohort cohort;
    i64 w_stride, bias_stride;
    int H, W, CI, HO, WO, CO, window, stride, above, left;
};

struct Place { int sample, y, x; };

__device__ __forceinline__ Place place_of(const ConvExact& c, int2 span, int p, int H, int W) {
    const int index = p / (H * W), q = p - index * (H * W);
    return {sample_at(c.cohort, span, index), q / W, q % W};
}
// The input under tap (ty, tx) of an output pixel.
__device__ __forceinline__ float under(const ConvExact& c, Place at, int ty, int tx, int ci) {
    const int y = at.y * c.stride + ty - c.above, x = at.x * c.stride + tx - c.left;
    if (y < 0 || y >= c.H || x < 0 || x >= c.W) return 0.f;
    return c.x[(((i64)at.sample * c.H + y) * c.W + x) * c.CI + ci];
}

// y = phi(conv(x, w) + bias). Grid: (ceil(CO / 64), ceil(most output pixels of a client / 64), clients).
template <int PHI> __device__ __forceinline__ void convolve(const ConvExact& c) {
    const int client = blockIdx.z, m0 = blockIdx.y * 64, taps = c.window * c.window;
    const int2 span = c.cohort.spans[client];
    const int pixels = span.y * c.HO * c.WO;
    if (m0 >= pixels) return;
    const float* w = c.w + client * c.w_stride;
    product<64, 64, ALONG_INNER, ALONG_INNER>(
        m0, blockIdx.x * 64, pixels, c.CO, 0, taps * c.CI,
        [&](int m, int k) { return under(c, place_of(c, span, m, c.HO, c.WO), k / c.CI / c.window, k / c.CI % c.window, k % c.CI); },
        [&](int k, int n) { return w[(i64)n * taps * c.CI + k]; },
        [&](int m, int n, float sum) {
            const Place at = place_of(c, span, m, c.HO, c.WO);
            const float bias = c.bias ? c.bias[client * c.bias_stride + n] : 0.f;
            c.y[(((i64)at.sample * c.HO + at.y) * c.WO + at.x) * c.CO + n] = phi<PHI>(sum + bias);
        });
}
extern "C" __global__ void __launch_bounds__(256) conv_exact(ConvExact c) { convolve<IDENTITY>(c); }
extern "C" __global__ void __launch_bounds__(256) conv_exact_relu(ConvExact c) { convolve<RELU>(c); }
extern "C" __global__ void __launch_bounds__(256) conv_exact_softplus(ConvExact c) { convolve<SOFTPLUS_EXACT>(c); }

// x <- the gradient by input, given dy in `y`. Every input pixel gathers from the outputs it reached: nothing is scattered.
// Grid: (ceil(CI / 64), ceil(most input pixels of a client / 64), clients).
extern "C" __global__ void __launch_bounds__(256) conv_exact_input(ConvExact c, float* dx) {
    const int client = blockIdx.z, m0 = blockIdx.y * 64, taps = c.window * c.window;
    const int2 span = c.cohort.spans[client];
    const int pixels = span.y * c.H * c.W;
    if (m0 >= pixels) return;
    const float* w = c.w + client * c.w_stride;
    product<64, 64, ALONG_INNER, ALONG_OUTER>(
        m0, blockIdx.x * 64, pixels, c.CI, 0, taps * c.CO,
        [&](int m, int k) {
            const Place at = place_of(c, span, m, c.H, c.W);
            const int tap = k / c.CO, y = at.y + c.above - tap / c.window, x = at.x + c.left - tap % c.window;
            if (y < 0 || x < 0 || y % c.stride || x % c.stride || y / c.stride >= c.HO || x / c.stride >= c.WO) return 0.f;
            return c.y[(((i64)at.sample * c.HO + y / c.stride) * c.WO + x / c.stride) * c.CO + k % c.CO];
        },
        [&](int k, int n) { return w[((i64)(k % c.CO) * taps + k / c.CO) * c.CI + n]; },
        [&](int m, int n, float sum) {
            const Place at = place_of(c, span, m, c.H, c.W);
            dx[(((i64)at.sample * c.H + at.y) * c.W + at.x) * c.CI + n] = sum;
        });
}

// dw <- the gradient by weights, given dy in `y`; clients `w_stride` apart. Grid: (ceil(window^2 CI / 64), ceil(CO / 64), clients).
extern "C" __global__ void __launch_bounds__(256) conv_exact_weights(ConvExact c, float* dw) {
    const int client = blockIdx.z, columns = c.window * c.window * c.CI;
    const int2 span = c.cohort.spans[client];
    product<64, 64, ALONG_OUTER, ALONG_OUTER>(
        blockIdx.y * 64, blockIdx.x * 64, c.CO, columns, 0, span.y * c.HO * c.WO,
        [&](int m, int k) {
            const Place at = place_of(c, span, k, c.HO, c.WO);
            return c.y[(((i64)at.sample * c.HO + at.y) * c.WO + at.x) * c.CO + m];
        },
        [&](int k, int n) { return under(c, place_of(c, span, k, c.HO, c.WO), n / c.CI / c.window, n / c.CI % c.window, n % c.CI); },
        [&](int m, int n, float sum) { dw[client * c.w_stride + (i64)m * columns + n] = sum; });
}
