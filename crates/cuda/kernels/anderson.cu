// Anderson acceleration, each sample for itself, as in crates/equilibrium: with residuals r = f(z) - z, plain steps p = z + mixing r and
// their changes dr_j, dp_j, the next iterate is p - sum_j gamma_j dp_j, gamma minimising |r - sum_j gamma_j dr_j|^2 + ridge. No memory
// and mixing 1 - damping is the damped iteration.
//
// A step is four launches: the map writes f(z) into slot `step % (memory + 1)` of `plain`; anderson_look reads the residuals once for all inner
// products; anderson_decide judges, solves the small systems in 64 bits and lists who goes on; anderson_mix makes the next iterate.
// Finished samples leave the next step's cohort; nothing waits for the host, so a whole solve is one CUDA graph.
#include "progress.cuh"

constexpr int MOST = 8;   // largest memory
// Kernels whose names end in 5 are for memories of up to 5, M: everything they hold of the past is that much less, in registers, so that more of them run at a time.
template <int M> constexpr int SUMS = 2 * M + 2;   // |r|^2, |f|^2, <newest change, change of age j>, <r, change of age j>

enum Task { GO_ON = 0, FINISH = 1, RESCUE = 2 };

struct Solve {
    float* z;            // [samples][n], the iterates; n is a multiple of 4
    f16* z16;            // the same in 16 bits; may be null
    void* residuals;     // [memory + 1][samples][n], in 32 bits or, for the kernels called f16, in 16: what they weigh steps by needs no more where the map itself is computed in 16 bits
    float* plain;        // [memory + 1][samples][n]
    float* best_z;       // [samples][n], at the end: the iterate with the smallest residual
    float* best_image;   // [samples][n], and its image
    float* partial;      // [samples][blocks][SUMS<M>]
    double* gram;        // [samples][memory][memory]
    float* gamma;        // [samples][MOST], by age
    Progress* progress;  // [samples]
    Cohort cohort;       // of this step
    i64 n;
    int samples, memory;
    float mixing;
};
struct Rules {
    double relative, absolute, ridge;
    int max_steps, ridge_is_relative, delay, restart;   // restart: 0 never
};

template <class T> __device__ __forceinline__ T* slot(T* ring, const Solve& s, int step, i64 sample) { return ring + ((i64)(step % (s.memory + 1)) * s.samples + sample) * s.n; }
// As it will be read again.
__device__ __forceinline__ float4 kept_as(const float*, float4 v) { return v; }
__device__ __forceinline__ float4 kept_as(const f16*, float4 v) {
    const float2 a = unpack2(pack2(v.x, v.y)), b = unpack2(pack2(v.z, v.w));
    return make_float4(a.x, a.y, b.x, b.y);
}
__device__ __forceinline__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
__device__ __forceinline__ float4 axpy(float f, float4 a, float4 b) {
    return make_float4(fmaf(f, a.x, b.x), fmaf(f, a.y, b.y), fmaf(f, a.z, b.z), fmaf(f, a.w, b.w));
}
__device__ __forceinline__ float4 minus(float4 a, float4 b) { return axpy(-1.f, b, a); }

// The residual, and all inner products in one pass over the past ones.
template <int M, class R> __device__ __forceinline__ void look(const Solve& s, int step) {
    const int2 span = s.cohort.spans[blockIdx.z];
    if ((int)blockIdx.y >= span.y) return;
    const i64 sample = sample_at(s.cohort, span, blockIdx.y);
    const float* z = s.z + sample * s.n;
    float* plain = slot(s.plain, s, step, sample);
    R *ring = (R*)s.residuals, *newest = slot(ring, s, step, sample);
    const int have = step < s.memory ? step : s.memory;
    const R* past[M];
#pragma unroll
    for (int a = 0; a < M; a++) past[a] = slot(ring, s, a < have ? step - a - 1 : step, sample);
    float sums[SUMS<M>] = {};
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < s.n / 4; i += gridDim.x * 256) {
        const float4 here = load4(z, i), image = load4(plain, i), exact = minus(image, here), r = kept_as(ring, exact);
        float4 old[M];
#pragma unroll
        for (int a = 0; a < M; a++)
            if (a < have) old[a] = load4(past[a], i);
        store4(newest, i, r);
        if (s.mixing != 1.f) store4(plain, i, axpy(s.mixing, exact, here));
        sums[0] += dot(exact, exact);
        sums[1] += dot(image, image);
        const float4 change = minus(r, old[0]);
#pragma unroll
        for (int a = 0; a < M; a++)
            if (a < have) {
                const float4 d = a ? minus(old[a - 1], old[a]) : change;
                sums[2 + a] += dot(change, d);
                sums[2 + M + a] += dot(r, d);
            }
    }
    __shared__ float each[8][SUMS<M>];
#pragma unroll
    for (int k = 0; k < SUMS<M>; k++) {
        const float sum = warp_sum(sums[k]);
        if (threadIdx.x % 32 == 0) each[threadIdx.x / 32][k] = sum;
    }
    __syncthreads();
    if (threadIdx.x >= SUMS<M>) return;
    float sum = 0.f;
    for (int w = 0; w < 8; w++) sum += each[w][threadIdx.x];
    s.partial[(sample * gridDim.x + blockIdx.x) * SUMS<M> + threadIdx.x] = sum;
}
// Grid: (blocks, most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) anderson_look(Solve s, int step) { look<MOST, float>(s, step); }
extern "C" __global__ void __launch_bounds__(256) anderson_look_f16(Solve s, int step) { look<MOST, f16>(s, step); }
extern "C" __global__ void __launch_bounds__(256) anderson_look_5(Solve s, int step) { look<5, float>(s, step); }
extern "C" __global__ void __launch_bounds__(256) anderson_look_f16_5(Solve s, int step) { look<5, f16>(s, step); }

// gamma over `count` changes, oldest first; false where the system carries no information. Written for gamma_j |dr_j|, so that rounding stays
// relative to each change's own size. Loops go to M, which is known when this is compiled, so that a small system stays in registers.
template <int M> __device__ __forceinline__ bool least_squares(const double* gram, int memory, int newest, int count, const double* with_residual, const Rules& rules, double (&gamma)[M]) {
    constexpr int UNROLLED = M <= 5 ? M : 1;
    double a[M][M], inverse[M];   // divisions are slow in 64 bits: one for every norm and pivot
    auto place = [&](int i) { const int at = newest - (count - 1 - i); return at < 0 ? at + memory : at; };
    bool sound = true;
#pragma unroll(UNROLLED)
    for (int i = 0; i < M; i++)
        if (i < count) {
            const double norm = sqrt(gram[place(i) * memory + place(i)]);
            sound = sound && norm > 0.0 && !isinf(norm);
            inverse[i] = 1.0 / norm;
        }
    if (!sound) return false;
#pragma unroll(UNROLLED)
    for (int i = 0; i < M; i++)
        if (i < count) {
#pragma unroll(UNROLLED)
            for (int j = 0; j < M; j++)
                if (j <= i) a[i][j] = gram[place(i) * memory + place(j)] * inverse[i] * inverse[j];
            gamma[i] = with_residual[count - 1 - i] * inverse[i];
            if (rules.ridge_is_relative) a[i][i] += rules.ridge;
            else {   // ridge times the squares of the iterates' weights gamma_0, gamma_1 - gamma_0, ..., 1 - gamma_last
                a[i][i] += 2.0 * rules.ridge * inverse[i] * inverse[i];
                if (i) a[i][i - 1] -= rules.ridge * inverse[i] * inverse[i - 1];
                if (i + 1 == count) gamma[i] += rules.ridge * inverse[i];
            }
        }
    // Cholesky, with the reciprocals of the pivots on the diagonal.
#pragma unroll(UNROLLED)
    for (int j = 0; j < M; j++)
        if (j < count) {
#pragma unroll(UNROLLED)
            for (int k = 0; k < M; k++)
#pragma unroll(UNROLLED)
                for (int i = 0; i < M; i++)
                    if (k < j && i >= j && i < count) a[i][j] -= a[i][k] * a[j][k];
            sound = sound && a[j][j] > 2.220446049250313e-16;
            a[j][j] = 1.0 / sqrt(a[j][j]);
#pragma unroll(UNROLLED)
            for (int i = 0; i < M; i++)
                if (i > j && i < count) a[i][j] *= a[j][j];
        }
    if (!sound) return false;
#pragma unroll(UNROLLED)
    for (int i = 0; i < M; i++)
        if (i < count) {
#pragma unroll(UNROLLED)
            for (int k = 0; k < M; k++)
                if (k < i) gamma[i] -= a[i][k] * gamma[k];
            gamma[i] *= a[i][i];
        }
    double size = 0.0;
#pragma unroll(UNROLLED)
    for (int i = M - 1; i >= 0; i--)
        if (i < count) {
#pragma unroll(UNROLLED)
            for (int k = 0; k < M; k++)
                if (k > i && k < count) gamma[i] -= a[k][i] * gamma[k];
            gamma[i] *= a[i][i];
        }
#pragma unroll(UNROLLED)
    for (int i = 0; i < M; i++)
        if (i < count) { gamma[i] *= inverse[i]; size += fabs(gamma[i]); }
    return size <= 1e6;   // beyond, a combination amplifies rounding more than it extrapolates
}

// Whether a sample with these sums is done; keeps the best.
__device__ void judge(Progress& p, double residual, double scale, int step, const Rules& rules) {
    p.steps++;
    if (isnan(residual) || isinf(residual) || isnan(scale) || isinf(scale)) { p.outcome = NOT_FINITE; return; }
    if (step == 0 || residual < p.smallest) {
        p.smallest = residual;
        p.relative = residual == 0.0 ? 0.f : (float)(residual / scale);
        p.best = step;
        p.saved = 0;
    }
    if (residual <= rules.absolute + rules.relative * scale) p.outcome = CONVERGED;
    else if (p.steps >= rules.max_steps) p.outcome = STEP_LIMIT;
}

// The coefficients of the next iterate, by age; zeros make a plain step.
template <int M> __device__ __forceinline__ void extrapolate(Progress& p, const double* sums, double* gram, float* by_age, int step, int memory, const Rules& rules) {
    for (int a = 0; a < M; a++) by_age[a] = 0.f;
    if (step == 0 || memory == 0) return;
    const int newest = (step - 1) % memory, have = step < memory ? step : memory;
    for (int a = 0; a < have; a++) {
        const int other = (newest + memory - a) % memory;
        gram[newest * memory + other] = gram[other * memory + newest] = sums[2 + a];
    }
    p.usable = p.usable < memory ? p.usable + 1 : memory;
    if (rules.restart && step % rules.restart == 0) p.usable = 0;
    if (step + 1 <= rules.delay) return;
    double gamma[M];
    if (!least_squares<M>(gram, memory, newest, p.usable, sums + 2 + M, rules, gamma)) { p.usable = 0; return; }
#pragma unroll
    for (int i = 0; i < M; i++)
        if (i < p.usable) by_age[p.usable - 1 - i] = (float)gamma[i];
}

// Judges every sample and lists those that go on, in their order, in `spans` and `rows`, which are not this step's cohort. What a thread decides about its
// sample by, all threads fetch together: one after the other these numbers would take longer than the decision.
// Grid: clients, 128 threads. `blocks` is that of anderson_look.
constexpr int ROOM = 3584;   // for inner products in shared memory
template <int M> __device__ __forceinline__ void decide(const Solve& s, const Rules& rules, int step, int blocks, int2* spans, int* rows) {
    constexpr int EACH = SUMS<M>;
    const int2 span = s.cohort.spans[blockIdx.x];
    __shared__ double grams[ROOM], sums[128][EACH];
    __shared__ int going[4], who[128];   // a warp each; samples
    const int each = s.memory * s.memory, most = each * 128 > ROOM ? ROOM / each : 128;
    int listed = 0;
    for (int first = 0; first < span.y; first += most) {
        const int here = span.y - first < most ? span.y - first : most, mine = threadIdx.x;
        if (mine < here) who[mine] = sample_at(s.cohort, span, first + mine);
        __syncthreads();
        for (int e = mine; e < here * EACH; e += 128) {
            const int index = e / EACH, k = e - index * EACH;
            double sum = 0.0;
            for (int b = 0; b < blocks; b++) sum += s.partial[((i64)who[index] * blocks + b) * EACH + k];
            sums[index][k] = sum;
        }
        for (int e = mine; e < here * each; e += 128) grams[e] = s.gram[(i64)who[e / each] * each + e % each];
        __syncthreads();
        int goes_on = 0;
        if (mine < here) {
            const int sample = who[mine];
            Progress p = s.progress[sample];
            judge(p, sqrt(sums[mine][0]), sqrt(sums[mine][1]), step, rules);
            goes_on = p.outcome == RUNNING;
            p.task = goes_on ? GO_ON : FINISH;
            if (goes_on) {
                extrapolate<M>(p, sums[mine], grams + mine * each, s.gamma + (i64)sample * MOST, step, s.memory, rules);
                if (!p.saved && p.best == step - s.memory) { p.task = RESCUE; p.saved = 1; }   // its slot is the next to be overwritten
            }
            s.progress[sample] = p;
        }
        const u32 on = __ballot_sync(~0u, goes_on);
        if (mine % 32 == 0) going[mine / 32] = __popc(on);
        __syncthreads();
        int before = __popc(on & ((1u << mine % 32) - 1)), all = 0;
        for (int w = 0; w < 4; w++) { before += w < mine / 32 ? going[w] : 0; all += going[w]; }
        if (goes_on) rows[span.x + listed + before] = who[mine];
        for (int e = mine; e < here * each; e += 128) s.gram[(i64)who[e / each] * each + e % each] = grams[e];
        listed += all;
        __syncthreads();
    }
    if (threadIdx.x == 0) spans[blockIdx.x] = make_int2(span.x, listed);
}
extern "C" __global__ void __launch_bounds__(128) anderson_decide(Solve s, Rules rules, int step, int blocks, int2* spans, int* rows) { decide<MOST>(s, rules, step, blocks, spans, rows); }
extern "C" __global__ void __launch_bounds__(128) anderson_decide_5(Solve s, Rules rules, int step, int blocks, int2* spans, int* rows) { decide<5>(s, rules, step, blocks, spans, rows); }

// Copies the best evaluation so far out of the rings: z = p - mixing r, f(z) = z + r.
template <class R> __device__ void save_best(const Solve& s, const Progress& p, i64 sample, int step) {
    float *to_z = s.best_z + sample * s.n, *to_image = s.best_image + sample * s.n;
    const float *z = s.z + sample * s.n, *plain = slot(s.plain, s, p.best, sample);
    const R* r = slot((R*)s.residuals, s, p.best, sample);
    const bool nothing = p.outcome == NOT_FINITE && step == 0;   // not even the start has a finite image
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < s.n / 4; i += gridDim.x * 256) {
        const float4 at = p.best == step || nothing ? load4(z, i) : axpy(-s.mixing, load4(r, i), load4(plain, i));
        store4(to_z, i, at);
        store4(to_image, i, nothing ? at : s.mixing == 1.f ? load4(plain, i) : axpy(1.f, load4(r, i), at));
    }
}

// The next iterate in one pass over the past steps.
template <int M, class R> __device__ __forceinline__ void mix(const Solve& s, int step) {
    const int2 span = s.cohort.spans[blockIdx.z];
    if ((int)blockIdx.y >= span.y) return;
    const i64 sample = sample_at(s.cohort, span, blockIdx.y);
    const Progress p = s.progress[sample];
    if (p.task == RESCUE || (p.task == FINISH && !p.saved)) save_best<R>(s, p, sample, step);
    if (p.task == FINISH) return;
    const int have = step < s.memory ? step : s.memory;
    float gamma[M];
    const float* past[M];
#pragma unroll
    for (int a = 0; a < M; a++) {
        gamma[a] = a < have ? s.gamma[sample * MOST + a] : 0.f;
        past[a] = slot(s.plain, s, a < have ? step - a - 1 : step, sample);
    }
    const float* plain = slot(s.plain, s, step, sample);
    for (i64 i = blockIdx.x * 256 + threadIdx.x; i < s.n / 4; i += gridDim.x * 256) {
        float4 newer = load4(plain, i), next = newer, old[M];
#pragma unroll
        for (int a = 0; a < M; a++)
            if (a < have) old[a] = load4(past[a], i);
#pragma unroll
        for (int a = 0; a < M; a++)
            if (a < have) {
                next = axpy(-gamma[a], minus(newer, old[a]), next);
                newer = old[a];
            }
        store4(s.z + sample * s.n, i, next);
        if (s.z16) store4(s.z16 + sample * s.n, i, next);
    }
}
// Grid: (any number of blocks, most samples of a client, clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) anderson_mix(Solve s, int step) { mix<MOST, float>(s, step); }
extern "C" __global__ void __launch_bounds__(256) anderson_mix_f16(Solve s, int step) { mix<MOST, f16>(s, step); }
extern "C" __global__ void __launch_bounds__(256) anderson_mix_5(Solve s, int step) { mix<5, float>(s, step); }
extern "C" __global__ void __launch_bounds__(256) anderson_mix_f16_5(Solve s, int step) { mix<5, f16>(s, step); }
