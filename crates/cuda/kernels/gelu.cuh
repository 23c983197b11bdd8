// GELU by tanh, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, and its slope.
#pragma once
#include "common.cuh"

constexpr float GELU_A = 0.7978845608028654f, GELU_B = 0.044715f;

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.f + tanhf(GELU_A * (x + GELU_B * x * x * x))); }
__device__ __forceinline__ float gelu_slope(float x) {
    const float t = tanhf(GELU_A * (x + GELU_B * x * x * x));
    return 0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * GELU_A * (1.f + 3.f * GELU_B * x * x);
}

// The same for 16-bit results, by x / (1 + e^-u) with u = 2 sqrt(2 / pi) (x + 0.044715 x^3): two special-function instructions and no branch.
__device__ __forceinline__ float gelu_gate(float x) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-2.f * GELU_A * 1.4426950408889634f * (x + GELU_B * x * x * x)));
    return __fdividef(1.f, 1.f + e);
}
__device__ __forceinline__ float gelu_fast(float x) { return x * gelu_gate(x); }
__device__ __forceinline__ float gelu_slope_fast(float x) {
    const float s = gelu_gate(x);
    return s + x * s * (1.f - s) * 2.f * GELU_A * (1.f + 3.f * GELU_B * x * x);
}
