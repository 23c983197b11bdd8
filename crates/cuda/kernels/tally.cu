// How the solves of a cohort went, added up over its steps.
#include "progress.cuh"

struct SolveTally {
    double residual;     // relative ones, of the samples where they are finite
    u64 samples, steps;
    u64 unconverged, not_finite;
    u64 warm;            // samples that started where an earlier solve ended
};

// Adds the solves of this step to tallies[lane]: sums in the order of the samples. The cohort is the one the solve began with; `warm` [samples] may be
// null. Grid: lanes, 128 threads.
extern "C" __global__ void __launch_bounds__(128) tally_solves(const Progress* progress, const u8* warm, SolveTally* tallies, Cohort cohort) {
    const int2 span = cohort.spans[blockIdx.x];
    __shared__ float relative[128];
    __shared__ int steps[128], outcome[128];
    __shared__ u8 began_warm[128];
    SolveTally sum = tallies[blockIdx.x];
    for (int first = 0; first < span.y; first += 128) {
        const int index = first + threadIdx.x;
        if (index < span.y) {
            const int sample = sample_at(cohort, span, index);
            const Progress p = progress[sample];
            relative[threadIdx.x] = p.relative;
            steps[threadIdx.x] = p.steps;
            outcome[threadIdx.x] = p.outcome;
            began_warm[threadIdx.x] = warm ? warm[sample] : 0;
        }
        __syncthreads();
        if (threadIdx.x == 0)
            for (int k = 0; k < 128 && first + k < span.y; k++) {
                if (isfinite(relative[k])) sum.residual += relative[k];
                sum.samples++;
                sum.steps += steps[k];
                sum.unconverged += outcome[k] != CONVERGED;
                sum.not_finite += outcome[k] == NOT_FINITE;
                sum.warm += began_warm[k];
            }
        __syncthreads();
    }
    if (threadIdx.x == 0) tallies[blockIdx.x] = sum;
}
