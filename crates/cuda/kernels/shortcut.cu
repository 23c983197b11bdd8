// Residual blocks: the shortcut on its own (normalisations add it while they normalise), and one that widens with its gradient.
#include "shortcut.cuh"

// y = phi(x + shortcut), or phi(x) without one, y16 the same in 16 bits; either may be null, and y may be x. C is a multiple of 4.
// Grid: (ceil(pixels * C / 1024), most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) add_shortcut(const float* x, Shortcut shortcut, float* y, f16* y16, Cohort cohort, int pixels, int C, int phi) {
    const Mine mine = my_sample(cohort);
    const int e = (blockIdx.x * 256 + threadIdx.x) * 4;
    if (!mine.here || e >= pixels * C) return;
    const int pixel = e / C;
    const i64 quad = (mine.sample * pixels * C + e) / 4;
    float4 out = load4(x, quad);
    if (shortcut.x) out = out + shortcut_at(shortcut, mine.sample, pixel, e - pixel * C, C);
    out = phi_of(phi, out);
    if (y) store4(y, quad, out);
    if (y16) store4(y16, quad, out);
}

// y[H][W][C] = every second pixel of x [HS][WS][CS], with channels of zero on both sides; y16 is the same in 16 bits, and may be null.
// Grid: (ceil(H * W * C / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) widen(const float* x, float* y, f16* y16, Cohort cohort, int HS, int WS, int CS, int H, int W, int C) {
    const Mine mine = my_sample(cohort);
    const int e = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || e >= H * W * C) return;
    const int pixel = e / C, c = e - pixel * C - (C - CS) / 2, row = pixel / W, column = pixel - row * W;
    const float v = c >= 0 && c < CS ? x[((mine.sample * HS + 2 * row) * WS + 2 * column) * CS + c] : 0.f;
    y[mine.sample * H * W * C + e] = v;
    if (y16) y16[mine.sample * H * W * C + e] = half_of(v);
}

// dx[HS][WS][CS] of a widening shortcut from the gradient d [H][W][C] of what it was added to, every number of it: zeros where nothing was taken.
// A convolution can then `add` its own. Grid: (ceil(HS * WS * CS / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) widen_backward(const float* d, float* dx, Cohort cohort, int HS, int WS, int CS, int H, int W, int C) {
    const Mine mine = my_sample(cohort);
    const int e = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || e >= HS * WS * CS) return;
    const int pixel = e / CS, c = e - pixel * CS, y = pixel / WS, x = pixel - y * WS;
    dx[mine.sample * HS * WS * CS + e] = y & 1 || x & 1 ? 0.f : d[((mine.sample * H + y / 2) * W + x / 2) * C + c + (C - CS) / 2];
}
