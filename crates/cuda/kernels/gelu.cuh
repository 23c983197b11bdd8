// GELU by tanh, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, and its slope.
#pragma once
#include "common.cuh"

constexpr float GELU_A = 0.7978845608028654f, GELU_B = 0.044715f;

__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.f + tanhf(GELU_A * (x + GELU_B * x * x * x))); }
__device__ __forceinline__ float gelu_slope(float x) {
    const float t = tanhf(GELU_A * (x + GELU_B * x * x * x));
    return 0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * GELU_A * (1.f + 3.f * GELU_B * x * x);
}
