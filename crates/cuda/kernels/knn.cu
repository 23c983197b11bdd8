// Predictions mixed with the vote of a client's nearest training samples, by distance of embeddings.
#include "product.cuh"
#include "score.cuh"

// distances[query][pitch]: squared, to the entries of the query's client in their order. Embeddings have `width` numbers.
// Grid: (ceil(most entries of a client / 64), ceil(most queries of a client / 64), clients), 256 threads.
extern "C" __global__ void __launch_bounds__(256) knn_distances(const float* queries, const float* entries, float* distances, Cohort asking, Cohort answering, int width, int pitch) {
    const int2 ask = asking.spans[blockIdx.z], answer = answering.spans[blockIdx.z];
    const int m0 = blockIdx.y * 64, n0 = blockIdx.x * 64;
    if (m0 >= ask.y || n0 >= answer.y) return;
    product<64, 64, ALONG_INNER, ALONG_INNER, DISTANCE>(
        m0, n0, ask.y, answer.y, 0, width,
        [&](int m, int k) { return queries[(i64)sample_at(asking, ask, m) * width + k]; },
        [&](int k, int n) { return entries[(i64)sample_at(answering, answer, n) * width + k]; },
        [&](int m, int n, float sum) { distances[(i64)sample_at(asking, ask, m) * pitch + n] = sum; });
}

// mixed[query][classes] = mixing * vote + (1 - mixing) * softmax(logits), the `count` nearest entries voting with exp(-distance); the first among
// equals is nearer. Without entries there is no vote. entry_classes [entries], query_classes [queries]; a query whose class is negative does not count.
// Losses and `right` are by query, for sum_scores. Grid: (1, most queries of a client, clients), 128 threads. Dynamic shared memory: classes * 4 bytes.
extern "C" __global__ void __launch_bounds__(128) knn_vote(const float* distances, const float* logits, const int* entry_classes, const int* query_classes, float* mixed, float* losses, u8* right,
                                                           Cohort asking, Cohort answering, float mixing, int count, int classes, int pitch) {
    const Mine mine = my_sample(asking);
    if (!mine.here) return;
    extern __shared__ float votes[];
    __shared__ float nearest[4];
    __shared__ int places[4];
    const int2 answer = answering.spans[blockIdx.z];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float* d = distances + mine.sample * pitch;
    const float* x = logits + mine.sample * classes;
    float* y = mixed + mine.sample * classes;
    for (int c = threadIdx.x; c < classes; c += 128) votes[c] = 0.f;
    float last = -1.f, closest = 0.f, total = 0.f;   // the neighbour before, the first one's distance
    int last_at = -1;
    for (int k = 0; k < count && k < answer.y; k++) {
        float best = __int_as_float(0x7f800000);
        int at = 0x7fffffff;
        for (int e = threadIdx.x; e < answer.y; e += 128) {
            const float v = d[e];
            if ((v > last || (v == last && e > last_at)) && (v < best || (v == best && e < at))) { best = v; at = e; }
        }
        for (int s = 16; s; s >>= 1) {
            const float other = __shfl_xor_sync(~0u, best, s);
            const int where = __shfl_xor_sync(~0u, at, s);
            if (other < best || (other == best && where < at)) { best = other; at = where; }
        }
        __syncthreads();
        if (lane == 0) { nearest[warp] = best; places[warp] = at; }
        __syncthreads();
        for (int w = 0; w < 4; w++)
            if (nearest[w] < best || (nearest[w] == best && places[w] < at)) { best = nearest[w]; at = places[w]; }
        if (at == 0x7fffffff) break;   // only what is not a number is left
        last = best;
        last_at = at;
        const float distance = sqrtf(best);
        if (k == 0) closest = distance;
        const float weight = expf(closest - distance);
        total += weight;
        if (threadIdx.x == 0) votes[entry_classes[sample_at(answering, answer, at)]] += weight;
    }
    __syncthreads();
    if (warp) return;
    const Largest most = largest_of(x, classes);
    const float sum = exponentials(x, most.value, classes), share = total > 0.f ? mixing : 0.f;
    for (int c = lane; c < classes; c += 32) y[c] = (share > 0.f ? share * (votes[c] / total) : 0.f) + (1.f - share) * (expf(x[c] - most.value) / sum);
    __syncwarp();
    const Largest chosen = largest_of(y, classes);
    const int label = query_classes[mine.sample];
    if (lane) return;
    losses[mine.sample] = label < 0 ? 0.f : -logf(fmaxf(y[label], 1.17549435e-38f));
    right[mine.sample] = label >= 0 && chosen.at == label;
}
