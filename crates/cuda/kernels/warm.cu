// Warm starts: states that a solve ended in, kept for the next one of the same sample.
//
// memory [lanes][slots][n] in 16 or 32 bits, n a multiple of 4, and known [lanes][slots] says which slots hold a state. places [steps][lanes][most] says
// by *counter which slot belongs to sample i of a lane, -1 where it has none.
#include "common.cuh"

struct Warm {
    const int* counter;
    const int* places;
    u8* known;
    Cohort cohort;
    i64 n;
    int slots, most;
};

// The slot of this block's sample, counted over all lanes; -1 if it has none.
__device__ __forceinline__ i64 slot_of(const Warm& w, const Mine& mine) {
    const int place = w.places[((i64)*w.counter * gridDim.z + mine.client) * w.most + blockIdx.y];
    return place < 0 ? -1 : (i64)mine.client * w.slots + place;
}
__device__ __forceinline__ bool finite(float4 v) { return isfinite(v.x) && isfinite(v.y) && isfinite(v.z) && isfinite(v.w); }
// As it would be read again.
__device__ __forceinline__ float4 kept_as(const float*, float4 v) { return v; }
__device__ __forceinline__ float4 kept_as(const f16*, float4 v) {
    const float2 a = unpack2(pack2(v.x, v.y)), b = unpack2(pack2(v.z, v.w));
    return make_float4(a.x, a.y, b.x, b.y);
}

// Keeps z of every sample that has a slot. A state that cannot be kept as finite numbers leaves the slot as it was.
template <class T> __device__ __forceinline__ void keep(const Warm& w, const float* z, T* memory) {
    const Mine mine = my_sample(w.cohort);
    if (!mine.here) return;
    const i64 slot = slot_of(w, mine);
    if (slot < 0) return;
    bool bad = false;
    for (i64 i = threadIdx.x; i < w.n / 4; i += 1024) bad |= !finite(kept_as(memory, load4(z + mine.sample * w.n, i)));
    if (__syncthreads_or(bad)) return;
    for (i64 i = threadIdx.x; i < w.n / 4; i += 1024) store4(memory + slot * w.n, i, load4(z + mine.sample * w.n, i));
    if (threadIdx.x == 0) w.known[slot] = 1;
}

// z (and z16, which may be null) of the samples whose state is known; warm[sample] (may be null) = whether it is.
template <class T> __device__ __forceinline__ void start(const Warm& w, const T* memory, float* z, f16* z16, u8* warm) {
    const Mine mine = my_sample(w.cohort);
    if (!mine.here) return;
    const i64 slot = slot_of(w, mine);
    const bool known = slot >= 0 && w.known[slot];
    if (warm && blockIdx.x == 0 && threadIdx.x == 0) warm[mine.sample] = known;
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (!known || i >= w.n / 4) return;
    const float4 v = load4(memory + slot * w.n, i);
    store4(z + mine.sample * w.n, i, v);
    if (z16) store4(z16 + mine.sample * w.n, i, v);
}

// Grids: (1, most samples of a lane, lanes), 1024 threads, to remember; (ceil(n / 1024), most samples of a lane, lanes), 256 threads, to recall.
#define WARM(BITS, T)                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) remember_##BITS(Warm w, const float* z, T* memory) { keep(w, z, memory); }       \
    extern "C" __global__ void __launch_bounds__(256) recall_##BITS(Warm w, const T* memory, float* z, f16* z16, u8* warm) { start(w, memory, z, z16, warm); }
WARM(f16, f16)
WARM(f32, float)
