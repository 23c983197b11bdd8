// Where a network ends: softmax and cross-entropy of classes, of symbols and of numbers, and activations on their own.
#include "score.cuh"
#include "text.cuh"

// dlogits (may be null) is the gradient of the client's mean loss. Labels are the data set's; `indices` says which sample of it is which.
// Grid: clients, 128 threads: a warp a sample, lanes over classes; the client's losses are added in order.
extern "C" __global__ void __launch_bounds__(128) cross_entropy(const float* logits, const int* labels, const int* indices, float* losses, float* dlogits, Score* scores, Cohort cohort, int classes) {
    const int2 span = cohort.spans[blockIdx.x];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    __shared__ int right[4];
    int correct = 0;
    for (int index = warp; index < span.y; index += 4) {
        const int sample = sample_at(cohort, span, index), label = labels[indices[sample]];
        const float* x = logits + (i64)sample * classes;
        const Largest most = largest_of(x, classes);
        const float total = exponentials(x, most.value, classes);
        if (lane == 0) losses[sample] = logf(total) + (most.value - x[label]);
        correct += most.at == label;
        if (dlogits)
            for (int c = lane; c < classes; c += 32) dlogits[(i64)sample * classes + c] = (expf(x[c] - most.value) / total - (c == label)) / span.y;
    }
    if (lane == 0) right[warp] = correct;
    __syncthreads();
    if (threadIdx.x) return;
    double sum = 0.0;
    for (int index = 0; index < span.y; index++) sum += losses[sample_at(cohort, span, index)];
    scores[blockIdx.x] = {span.y ? sum / span.y : 0.0, right[0] + right[1] + right[2] + right[3], span.y};
}

// counts[client] = how many positions of its texts are not padding. Grid: clients, 256 threads.
extern "C" __global__ void __launch_bounds__(256) count_symbols(Text text, int* counts, Cohort cohort) {
    const int2 span = cohort.spans[blockIdx.x];
    int count = 0;
    for (int row = threadIdx.x; row < span.y * text.length; row += 256) count += text_of(text, sample_at(cohort, span, row / text.length))[row % text.length] != 0;
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicAdd(&total, count);   // of integers: the order does not matter
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// Cross-entropy of the symbol at every position; positions whose input is padding do not count. logits [samples][length][pitch] have `classes` columns;
// dlogits and dlogits16 (`scale` times that, in 16 bits), laid out alike, may be null and get zeros in columns and positions that do not count.
// Losses and `right` are [samples][length]; sum_scores adds them. Grid: (ceil(length / 8), most samples of a client, clients), 256 threads: a warp a position.
extern "C" __global__ void __launch_bounds__(256) symbol_cross_entropy(const float* logits, const int* labels, Text text, const int* counts, float* losses, u8* right, float* dlogits, f16* dlogits16, Cohort cohort, float scale, int classes, int pitch) {
    const Mine mine = my_sample(cohort);
    const int t = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (!mine.here || t >= text.length) return;
    const i64 row = mine.sample * text.length + t;
    const bool counts_here = text_of(text, mine.sample)[t] != 0;
    const int label = labels[(i64)text.indices[mine.sample] * text.length + t];
    const float* x = logits + row * pitch;
    const Largest most = largest_of(x, classes);
    const float total = exponentials(x, most.value, classes);
    if (lane == 0) {
        losses[row] = counts_here ? logf(total) + (most.value - x[label]) : 0.f;
        right[row] = counts_here && most.at == label;
    }
    if (!dlogits && !dlogits16) return;
    const float share = 1.f / counts[mine.client];   // infinite where nothing counts, and then not used
    for (int c = lane; c < pitch; c += 32) {
        const float d = counts_here && c < classes ? (expf(x[c] - most.value) / total - (c == label)) * share : 0.f;
        if (dlogits) dlogits[row * pitch + c] = d;
        if (dlogits16) dlogits16[row * pitch + c] = half_of(scale * d);
    }
}

// scores[client] from losses and `right` [samples][per]; the mean is over counts[client] predictions, or over all where `counts` is null.
// Grid: clients, 256 threads.
extern "C" __global__ void __launch_bounds__(256) sum_scores(const float* losses, const u8* right, const int* counts, Score* scores, Cohort cohort, int per) {
    const int2 span = cohort.spans[blockIdx.x];
    double loss = 0.0;
    int correct = 0;
    for (int row = threadIdx.x; row < span.y * per; row += 256) {
        const i64 at = (i64)sample_at(cohort, span, row / per) * per + row % per;
        loss += losses[at];
        correct += right[at];
    }
    __shared__ double each[256];
    __shared__ int rights[256];
    each[threadIdx.x] = loss;
    rights[threadIdx.x] = correct;
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if ((int)threadIdx.x < half) { each[threadIdx.x] += each[threadIdx.x + half]; rights[threadIdx.x] += rights[threadIdx.x + half]; }
    }
    if (threadIdx.x) return;
    const int count = counts ? counts[blockIdx.x] : span.y * per;
    scores[blockIdx.x] = {count ? each[0] / count : 0.0, rights[0], count};
}

// Squared error of one number a sample: its loss, and (may be null) the gradient of the client's mean loss. Grid: (ceil(most samples of a client / 128), clients), 128 threads.
extern "C" __global__ void squared_error(const float* y, const float* wanted, const int* indices, float* losses, float* dy, Cohort cohort) {
    const int2 span = cohort.spans[blockIdx.y];
    const int index = blockIdx.x * 128 + threadIdx.x;
    if (index >= span.y) return;
    const int sample = sample_at(cohort, span, index);
    const float d = y[sample] - wanted[indices[sample]];
    losses[sample] = d * d;
    if (dy) dy[sample] = 2.f * d / span.y;
}

// y = phi(x), y16 the same in 16 bits; either may be null, and y may be x. Grid: (ceil(n / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void activation(const float* x, float* y, f16* y16, Cohort cohort, int n, int phi) {
    const Mine mine = my_sample(cohort);
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || i >= n) return;
    const i64 at = mine.sample * n + i;
    const float v = phi_of(phi, x[at]);
    if (y) y[at] = v;
    if (y16) y16[at] = half_of(v);
}

// dx = phi'(x) dy from y = phi(x); dx may be dy. Grid: (ceil(n / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void activation_backward(const float* y, const float* dy, float* dx, Cohort cohort, int n, int phi) {
    const Mine mine = my_sample(cohort);
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || i >= n) return;
    const i64 at = mine.sample * n + i;
    dx[at] = slope_of(phi, y[at]) * dy[at];
}
