// A loss on what a network makes of samples, their embeddings: near to those by one model, far from those by another.
#include "score.cuh"
#include "text.cuh"

struct Contrast {
    const float* z;             // [samples][length][width]: the embeddings of the batch
    const float *near, *far;    // [lanes][places][length][width]: what the two other models make of all samples of the lanes
    const int* at;              // [steps][lanes][most], by *counter: the places of the samples of a batch
    const int* counter;
    const int* counts;          // [lanes]: how many rows count
    float* gradient;            // as z
    double* losses;             // [samples][length]
    Cohort cohort;
    Text text;                  // without symbols where samples are no texts: then the length is 1
    double weight, temperature;
    i64 places;
    int width;
};

constexpr int THREADS = 128;

// The sum over a block's threads of `count` numbers of each, always in the same order, for all of them.
template <int COUNT> __device__ __forceinline__ void sums_of_block(double (&sums)[COUNT]) {
    __shared__ double each[COUNT][THREADS];
#pragma unroll
    for (int k = 0; k < COUNT; k++) each[k][threadIdx.x] = sums[k];
    for (int half = THREADS / 2; half; half >>= 1) {
        __syncthreads();
        if ((int)threadIdx.x < half)
#pragma unroll
            for (int k = 0; k < COUNT; k++) each[k][threadIdx.x] += each[k][threadIdx.x + half];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < COUNT; k++) sums[k] = each[k][0];
}

// The cosine between two vectors, 0 where one of them is: its value, 1 / |z|^2 and 1 / (|z| |other|).
struct Cosine { double value, own, both; };
__device__ __forceinline__ Cosine cosine(double zz, double others, double product) {
    if (zz == 0.0 || others == 0.0) return {0.0, 0.0, 0.0};
    const double both = 1.0 / sqrt(zz * others);
    return {product * both, 1.0 / zz, both};
}
// How it grows with a number of z.
__device__ __forceinline__ double slope_of(const Cosine& c, float z, float other) { return c.both * other - c.own * c.value * z; }

// losses = weight / counts[lane] times -log (exp(s / t) / (exp(s / t) + exp(r / t))) of every row, where s and r are the cosines of its z with near and with far, and its gradient;
// zeros for rows that do not count. Grid: (length, most samples of a lane, lanes), 128 threads: a block a row.
extern "C" __global__ void __launch_bounds__(128) contrast(Contrast c) {
    const Mine mine = my_sample(c.cohort);
    if (!mine.here) return;
    const i64 row = mine.sample * c.text.length + blockIdx.x;
    const float* z = c.z + row * c.width;
    float* gradient = c.gradient + row * c.width;
    if (c.text.symbols && text_of(c.text, mine.sample)[blockIdx.x] == 0) {
        for (int i = threadIdx.x; i < c.width; i += THREADS) gradient[i] = 0.f;
        if (threadIdx.x == 0) c.losses[row] = 0.0;
        return;
    }
    const int place = c.at[((i64)*c.counter * gridDim.z + mine.client) * gridDim.y + blockIdx.y];
    const i64 other = ((mine.client * c.places + place) * c.text.length + blockIdx.x) * c.width;
    const float *near = c.near + other, *far = c.far + other;
    double sums[5] = {0.0, 0.0, 0.0, 0.0, 0.0};
    for (int i = threadIdx.x; i < c.width; i += THREADS) {
        const double own = z[i], n = near[i], f = far[i];
        sums[0] += own * own;
        sums[1] += n * n;
        sums[2] += f * f;
        sums[3] += own * n;
        sums[4] += own * f;
    }
    sums_of_block(sums);
    const Cosine s = cosine(sums[0], sums[1], sums[3]), r = cosine(sums[0], sums[2], sums[4]);
    const double share = c.weight / c.counts[mine.client], difference = (r.value - s.value) / c.temperature;
    if (threadIdx.x == 0) c.losses[row] = share * ((difference > 0.0 ? difference : 0.0 * difference) + log1p(exp(-fabs(difference))));   // 0 * keeps what is not a number
    const double slope = share / c.temperature / (1.0 + exp(-difference));
    for (int i = threadIdx.x; i < c.width; i += THREADS) gradient[i] = (float)(slope * (slope_of(r, z[i], far[i]) - slope_of(s, z[i], near[i])));
}

// scores[lane].loss += the losses of its rows, `per` a sample, always in the same order. Grid: lanes, 128 threads.
extern "C" __global__ void __launch_bounds__(128) add_losses(const double* losses, Score* scores, Cohort cohort, int per) {
    const int2 span = cohort.spans[blockIdx.x];
    double sum[1] = {0.0};
    for (int row = threadIdx.x; row < span.y * per; row += THREADS) sum[0] += losses[(i64)sample_at(cohort, span, row / per) * per + row % per];
    sums_of_block(sum);
    if (threadIdx.x == 0) scores[blockIdx.x].loss += sum[0];
}
