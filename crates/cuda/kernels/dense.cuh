// What the kernels of fully connected layers are told.
#pragma once
#include "common.cuh"

struct Dense {
    const float* x;   // [samples][per][in]
    const float* w;   // [clients][in][out], clients `w_stride` numbers apart
    const float* dy;  // [samples][per][out], for the gradients
    Cohort cohort;
    i64 w_stride;
    int in, out, per;
};

__device__ __forceinline__ i64 row_at(const Cohort& cohort, int2 span, int m, int per) {
    return per == 1 ? sample_at(cohort, span, m) : (i64)sample_at(cohort, span, m / per) * per + m % per;
}
