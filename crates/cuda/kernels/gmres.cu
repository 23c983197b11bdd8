// GMRES with restarts for (I - J^T) u = b, each sample for itself, as in crates/equilibrium: `through` is what the pullback J^T made of a vector.
//
// A stretch begins with gmres_begin, gmres_start and gmres_unit(0). A step is: the pullback of the newest direction, gmres_project three times (classical
// Gram-Schmidt twice, and the norm of what is left, each one pass over the basis), gmres_decide, which rotates, judges and lists who goes on, and
// gmres_unit(step + 1). gmres_weigh and gmres_correct end the stretch for everybody who began it. Nothing waits for the host.
// Grids of passes: (blocks, most samples of a client, clients), 256 threads; of decisions: clients, 128 threads.
#include "common.cuh"

constexpr int MOST = 24;   // largest memory

enum Outcome { RUNNING, CONVERGED, STEP_LIMIT, NOT_FINITE };

struct Space {                       // of one sample; all zeros at the start
    double triangle[MOST][MOST];     // columns of the triangular factor
    double rotation[MOST][2];
    double rhs[MOST + 1];
    double scale, residual;          // |b|, and the residual so far
    float inverse;                   // of the length of what gmres_unit makes a direction
    int columns, steps, outcome;
};
struct Gmres {
    float* basis;        // [memory + 1][samples][n]
    f16* newest16;       // [samples][n], the newest direction in 16 bits; may be null
    float* image;        // [samples][n]
    float* u;            // [samples][n], the solution
    const float* b;      // [samples][n]
    float* partial;      // [3][samples][blocks][MOST]
    float* weights;      // [samples][MOST]
    Space* spaces;       // [samples]
    Cohort cohort;
    i64 n;               // a multiple of 4
    int samples, memory;
};
struct Rules { double relative, absolute; int max_steps; };

__device__ __forceinline__ float4* vector_of(const Gmres& g, int column, i64 sample) { return (float4*)(g.basis + ((i64)column * g.samples + sample) * g.n); }
__device__ __forceinline__ float* partial_of(const Gmres& g, int pass, i64 sample, int block, int blocks) { return g.partial + (((i64)pass * g.samples + sample) * blocks + block) * MOST; }
__device__ __forceinline__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ __forceinline__ float4 axpy(float f, float4 a, float4 b) { return make_float4(fmaf(f, a.x, b.x), fmaf(f, a.y, b.y), fmaf(f, a.z, b.z), fmaf(f, a.w, b.w)); }

// The blocks' sums, in their order, in 64 bits.
__device__ __forceinline__ double total_of(const Gmres& g, int pass, i64 sample, int column, int blocks) {
    double sum = 0.0;
    for (int b = 0; b < blocks; b++) sum += partial_of(g, pass, sample, b, blocks)[column];
    return sum;
}
// Writes a block's sums of the first `count` of them.
__device__ __forceinline__ void put_sums(const Gmres& g, int pass, i64 sample, const float (&sums)[MOST], int count) {
    __shared__ float each[8][MOST];
#pragma unroll
    for (int k = 0; k < MOST; k++)
        if (k < count) {
            const float sum = warp_sum(sums[k]);
            if (threadIdx.x % 32 == 0) each[threadIdx.x / 32][k] = sum;
        }
    __syncthreads();
    if ((int)threadIdx.x >= count) return;
    float sum = 0.f;
    for (int w = 0; w < 8; w++) sum += each[w][threadIdx.x];
    partial_of(g, pass, sample, blockIdx.x, gridDim.x)[threadIdx.x] = sum;
}

// image = the residual b - (u - through), or b itself with u = 0 where there is no `through` yet; and its norm.
extern "C" __global__ void __launch_bounds__(256) gmres_begin(Gmres g, const float* through) {
    const Mine mine = my_sample(g.cohort);
    if (!mine.here) return;
    const i64 first = mine.sample * (g.n / 4);
    float sums[MOST] = {};
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < g.n / 4; i += gridDim.x * 256) {
        float4 r = ((const float4*)g.b)[first + i];
        if (through) r = axpy(1.f, ((const float4*)through)[first + i], axpy(-1.f, ((const float4*)g.u)[first + i], r));
        else ((float4*)g.u)[first + i] = make_float4(0.f, 0.f, 0.f, 0.f);
        ((float4*)g.image)[first + i] = r;
        sums[0] += dot(r, r);
    }
    put_sums(g, 2, mine.sample, sums, 1);
}

// One of three passes over the basis of directions 0..column: 0 makes image = newest - through and its projections on them, 1 takes those away and
// makes the projections of the rest, 2 takes these away too and makes the norm of what is left.
extern "C" __global__ void __launch_bounds__(256) gmres_project(Gmres g, const float* through, int column, int pass) {
    const Mine mine = my_sample(g.cohort);
    if (!mine.here) return;
    __shared__ float taken[MOST];
    if (pass && (int)threadIdx.x <= column) taken[threadIdx.x] = (float)-total_of(g, pass - 1, mine.sample, threadIdx.x, gridDim.x);
    __syncthreads();
    const i64 first = mine.sample * (g.n / 4);
    float sums[MOST] = {};
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < g.n / 4; i += gridDim.x * 256) {
        float4 v;
        if (pass == 0) v = axpy(-1.f, ((const float4*)through)[first + i], vector_of(g, column, mine.sample)[i]);
        else {
            v = ((const float4*)g.image)[first + i];
            for (int k = 0; k <= column; k++) v = axpy(taken[k], vector_of(g, k, mine.sample)[i], v);
        }
        ((float4*)g.image)[first + i] = v;
        if (pass == 2) sums[0] += dot(v, v);
        else
#pragma unroll
            for (int k = 0; k < MOST; k++)
                if (k <= column) sums[k] += dot(v, vector_of(g, k, mine.sample)[i]);
    }
    put_sums(g, pass, mine.sample, sums, pass == 2 ? 1 : column + 1);
}

// The new direction: image, made as long as 1; zero where there is none left.
extern "C" __global__ void __launch_bounds__(256) gmres_unit(Gmres g, int column, float scale16) {
    const Mine mine = my_sample(g.cohort);
    if (!mine.here) return;
    const float inverse = g.spaces[mine.sample].inverse;
    const float4* image = (const float4*)(g.image + mine.sample * g.n);
    float4* to = vector_of(g, column, mine.sample);
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < g.n / 4; i += gridDim.x * 256) {
        const float4 v = inverse == 0.f ? make_float4(0.f, 0.f, 0.f, 0.f) : axpy(inverse, image[i], make_float4(0.f, 0.f, 0.f, 0.f));
        to[i] = v;
        if (g.newest16) ((uint2*)(g.newest16 + mine.sample * g.n))[i] = make_uint2(pack2(scale16 * v.x, scale16 * v.y), pack2(scale16 * v.z, scale16 * v.w));
    }
}

__device__ void judge(Space& s, double residual, const Rules& rules) {
    if (isnan(residual) || isinf(residual)) { s.outcome = NOT_FINITE; return; }
    s.residual = residual;
    if (residual <= rules.absolute + rules.relative * s.scale) s.outcome = CONVERGED;
    else if (s.steps >= rules.max_steps) s.outcome = STEP_LIMIT;
}

// A new column of the Hessenberg matrix, rotated. Returns the norm of the residual with it; a column that is not finite is not taken.
__device__ double push(Space& s, const Gmres& g, i64 sample, int column, double below, int blocks) {
    double* h = s.triangle[column];
    bool finite = !isnan(below) && !isinf(below);
    for (int k = 0; k <= column; k++) {
        h[k] = total_of(g, 0, sample, k, blocks) + total_of(g, 1, sample, k, blocks);
        finite = finite && !isnan(h[k]) && !isinf(h[k]);
    }
    if (!finite) return below - below + __longlong_as_double(0x7ff8000000000000ll);
    for (int k = 0; k < column; k++) {
        const double c = s.rotation[k][0], n = s.rotation[k][1], upper = h[k], lower = h[k + 1];
        h[k] = c * upper + n * lower;
        h[k + 1] = c * lower - n * upper;
    }
    const double length = hypot(h[column], below), c = length == 0.0 ? 1.0 : h[column] / length, n = length == 0.0 ? 0.0 : below / length, carried = s.rhs[column];
    h[column] = length;
    s.rotation[column][0] = c;
    s.rotation[column][1] = n;
    s.rhs[column] = c * carried;
    s.rhs[column + 1] = -n * carried;
    s.columns = column + 1;
    return fabs(n * carried);
}

// Judges every sample of the cohort by `f` and lists those that go on, in their order.
template <class F> __device__ __forceinline__ void decide(const Gmres& g, int2* spans, int* rows, F f) {
    const int2 span = g.cohort.spans[blockIdx.x];
    __shared__ int going[4];   // a warp each
    int listed = 0;
    for (int first = 0; first < span.y; first += 128) {
        const int index = first + threadIdx.x;
        int sample = 0, goes_on = 0;
        if (index < span.y) {
            sample = sample_at(g.cohort, span, index);
            Space& s = g.spaces[sample];
            const double length = f(s, sample);   // of what becomes the next direction
            goes_on = s.outcome == RUNNING;
            s.inverse = length == 0.0 ? 0.f : (float)(1.0 / length);
        }
        const u32 here = __ballot_sync(~0u, goes_on);
        if (threadIdx.x % 32 == 0) going[threadIdx.x / 32] = __popc(here);
        __syncthreads();
        int before = __popc(here & ((1u << threadIdx.x % 32) - 1)), all = 0;
        for (int w = 0; w < 4; w++) { before += w < (int)threadIdx.x / 32 ? going[w] : 0; all += going[w]; }
        if (goes_on) rows[span.x + listed + before] = sample;
        listed += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) spans[blockIdx.x] = make_int2(span.x, listed);
}

// After gmres_begin: a new stretch; `fresh` for the first of a solve. `spans` and `rows` are not this step's cohort.
extern "C" __global__ void __launch_bounds__(128) gmres_start(Gmres g, Rules rules, int fresh, int blocks, int2* spans, int* rows) {
    decide(g, spans, rows, [&](Space& s, int sample) {
        const double norm = sqrt(total_of(g, 2, sample, 0, blocks));
        s.columns = 0;
        s.rhs[0] = norm;
        if (fresh) { s.scale = s.residual = norm; s.steps = 0; s.outcome = RUNNING; judge(s, norm, rules); }
        return norm;
    });
}
// After the three passes of step `column` of a stretch.
extern "C" __global__ void __launch_bounds__(128) gmres_decide(Gmres g, Rules rules, int column, int blocks, int2* spans, int* rows) {
    decide(g, spans, rows, [&](Space& s, int sample) {
        const double norm = sqrt(total_of(g, 2, sample, 0, blocks));
        s.steps++;
        judge(s, push(s, g, sample, column, norm, blocks), rules);
        return norm;
    });
}

// The combination of directions with the smallest residual, for everybody who began the stretch.
extern "C" __global__ void __launch_bounds__(128) gmres_weigh(Gmres g) {
    const int2 span = g.cohort.spans[blockIdx.x];
    for (int index = threadIdx.x; index < span.y; index += 128) {
        const int sample = sample_at(g.cohort, span, index);
        const Space& s = g.spaces[sample];
        double y[MOST];
        for (int k = 0; k < s.columns; k++) y[k] = s.rhs[k];
        for (int j = s.columns - 1; j >= 0; j--) {
            y[j] = s.triangle[j][j] == 0.0 ? 0.0 : y[j] / s.triangle[j][j];
            for (int i = 0; i < j; i++) y[i] -= s.triangle[j][i] * y[j];
        }
        for (int k = 0; k < MOST; k++) g.weights[(i64)sample * MOST + k] = k < s.columns ? (float)y[k] : 0.f;
    }
}
// u += what the stretch adds to it. u16 (may be null): `scale16` u in 16 bits.
extern "C" __global__ void __launch_bounds__(256) gmres_correct(Gmres g, f16* u16, float scale16) {
    const Mine mine = my_sample(g.cohort);
    if (!mine.here) return;
    const int columns = g.spaces[mine.sample].columns;
    float4* u = (float4*)(g.u + mine.sample * g.n);
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < g.n / 4; i += gridDim.x * 256) {
        float4 v = u[i];
        for (int k = 0; k < columns; k++) v = axpy(g.weights[mine.sample * MOST + k], vector_of(g, k, mine.sample)[i], v);
        u[i] = v;
        if (u16) ((uint2*)(u16 + mine.sample * g.n))[i] = make_uint2(pack2(scale16 * v.x, scale16 * v.y), pack2(scale16 * v.z, scale16 * v.w));
    }
}
