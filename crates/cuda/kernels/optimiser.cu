// Steps of optimisers beyond plain gradient descent: shortened gradients, weight decay, momentum, Adam. Every product, sum, quotient and root is rounded on its own and
// in the CPU's order.
#include "common.cuh"

// A step of one part of all lanes' parameters.
struct OptimiserStep {
    float *theta, *first, *second;        // [lanes][stride]; a moment that the optimiser does not have is null
    const float *gradient, *offset;       // the same; `offset` is null where there is no proximal term
    Cohort cohort;
    const int* counts;                    // [lanes] predictions that the gradient is a mean of, if the proximal term is of one of them; or null
    const double* norms;                  // [lanes] of all that is trained, if gradients longer than `longest` are shortened to it; or null
    const float* rates;                   // [steps][lanes], as many numbers each as the optimiser has, by *counter
    const int* counter;
    i64 stride, n;
    double longest;
    float strength, decay;
};

// What a lane's gradients are multiplied by, so that none is too long.
__device__ __forceinline__ float shortened(const OptimiserStep& s) {
    if (!s.norms) return 1.f;
    const double norm = s.norms[blockIdx.y];
    return norm > s.longest ? (float)(s.longest / norm) : 1.f;
}

// factor gradient + (strength theta + offset) / share
__device__ __forceinline__ float force_at(const OptimiserStep& s, i64 at, float p, float factor, float share) {
    const float g = __fmul_rn(factor, s.gradient[at]);
    if (!s.offset) return g;
    return __fadd_rn(g, __fdiv_rn(__fadd_rn(__fmul_rn(s.strength, p), s.offset[at]), share));
}

__device__ __forceinline__ float decayed(float g, float p, float decay) { return decay != 0.f ? __fadd_rn(g, __fmul_rn(decay, p)) : g; }

// Every number of this block's stretch of a lane that has samples in this batch; others keep all they have. Grid: (ceil(n / 1024), lanes), 256 threads.
template <class F> __device__ __forceinline__ void each_parameter(const OptimiserStep& s, F f) {
    if (s.cohort.spans[blockIdx.y].y == 0) return;
    const float factor = shortened(s), share = s.counts && s.counts[blockIdx.y] > 1 ? (float)s.counts[blockIdx.y] : 1.f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const i64 i = ((i64)blockIdx.x * 4 + k) * 256 + threadIdx.x, at = blockIdx.y * s.stride + i;
        if (i >= s.n) return;
        const float p = s.theta[at];
        f(at, p, force_at(s, at, p, factor, share));
    }
}

// The numbers of a lane in this step.
__device__ __forceinline__ const float* rates_of(const OptimiserStep& s, int numbers) { return s.rates + ((i64)*s.counter * gridDim.y + blockIdx.y) * numbers; }

// g <- force + decay theta; first <- momentum first + g; theta <- theta - rate first, or rate (g + momentum first) where it looks ahead. Without a first moment
// theta <- theta - rate g. One rate.
extern "C" __global__ void __launch_bounds__(256) momentum_step(OptimiserStep s, float momentum, int looks_ahead) {
    const float rate = *rates_of(s, 1);
    each_parameter(s, [&](i64 at, float p, float force) {
        const float g = decayed(force, p, s.decay);
        float direction = g;
        if (s.first) {
            const float m = __fadd_rn(__fmul_rn(momentum, s.first[at]), g);
            s.first[at] = m;
            direction = looks_ahead ? __fadd_rn(g, __fmul_rn(momentum, m)) : m;
        }
        s.theta[at] = __fsub_rn(p, __fmul_rn(rate, direction));
    });
}

// first <- beta_1 first + new_1 g; second <- beta_2 second + new_2 g^2; theta <- theta - rate first / (scale sqrt(second) + epsilon). Three numbers a step: what is kept of
// theta beforehand (weight decay beside the step; 1 where it is a part of the gradient), the rate and the scale, which correct the moments' bias.
extern "C" __global__ void __launch_bounds__(256) adam_step(OptimiserStep s, float beta_1, float beta_2, float new_1, float new_2, float epsilon) {
    const float* rates = rates_of(s, 3);
    const float kept = rates[0], rate = rates[1], scale = rates[2];
    each_parameter(s, [&](i64 at, float p, float force) {
        const float g = decayed(force, p, s.decay);
        const float m = __fadd_rn(__fmul_rn(beta_1, s.first[at]), __fmul_rn(new_1, g));
        const float v = __fadd_rn(__fmul_rn(beta_2, s.second[at]), __fmul_rn(__fmul_rn(new_2, g), g));
        s.first[at] = m;
        s.second[at] = v;
        const float step = __fdiv_rn(__fmul_rn(rate, m), __fadd_rn(__fmul_rn(scale, __fsqrt_rn(v)), epsilon));
        s.theta[at] = __fsub_rn(__fmul_rn(kept, p), step);
    });
}
