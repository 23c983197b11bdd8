// Training steps whose samples are told by tables on the device, so that one captured graph can be launched for all of them: `counter` is the number of
// the step, and everything else of a step is looked up by it.
#include "score.cuh"

// Who is in this step: counts [steps][lanes], samples [steps][lanes][most] as indices into the data set. The samples of lane l take the slots
// l * most .. l * most + count. Grid: lanes, 128 threads.
extern "C" __global__ void begin_step(const int* counter, const int* counts, const int* samples, int2* spans, int* rows, int* indices, int lanes, int most) {
    const int lane = blockIdx.x;
    const i64 at = (i64)*counter * lanes + lane;
    const int count = counts[at];
    if (threadIdx.x == 0) spans[lane] = make_int2(lane * most, count);
    for (int i = threadIdx.x; i < count; i += 128) {
        rows[lane * most + i] = lane * most + i;
        indices[lane * most + i] = samples[at * most + i];
    }
}

// counts[lane] = how many samples it has, where every sample is one prediction. Grid: ceil(lanes / 128), 128 threads.
extern "C" __global__ void count_samples(Cohort cohort, int* counts, int lanes) {
    const int lane = blockIdx.x * 128 + threadIdx.x;
    if (lane < lanes) counts[lane] = cohort.spans[lane].y;
}

// table[step][lane] = scores[lane], and on to the next step. Grid: 1, 128 threads.
extern "C" __global__ void end_step(int* counter, const Score* scores, Score* table, int lanes) {
    const int step = *counter;
    for (int lane = threadIdx.x; lane < lanes; lane += 128) table[(i64)step * lanes + lane] = scores[lane];
    __syncthreads();
    if (threadIdx.x == 0) *counter = step + 1;
}
