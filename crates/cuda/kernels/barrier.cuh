// Hopper's barriers in shared memory, which count arrivals and bytes, and what a pair of neighbouring blocks needs to work together.
#pragma once
#include "tensor_core.cuh"

__device__ __forceinline__ void barrier_init(u32 barrier, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// What was initialised is seen by the other block and by copies.
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// One arrival, and so many bytes are yet to come.
__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory"); }
// An arrival at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive_at(u32 barrier, int rank) {
    asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];}" ::"r"(barrier), "r"(rank) : "memory");
}
// Until the phase of this parity is over; a fresh barrier counts as having ended the phase of parity 1. One that never ends is an error rather than a card that hangs.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    for (u32 tries = 0;; tries++) {
        u32 done;
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
        if (done) return;
        if (tries > 1u << 24) __trap();
    }
}
__device__ __forceinline__ int cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}
__device__ __forceinline__ void cluster_sync() { asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// `bytes` of memory to the same place in the shared memory of both blocks of a pair, and so many bytes to the barrier of each.
__device__ __forceinline__ void copy_to_both(u32 to, const void* source, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(source), "r"(bytes), "r"(barrier), "h"((unsigned short)3) : "memory");
}
// An arrival as soon as the copies that this thread has begun are done.
__device__ __forceinline__ void barrier_arrive_after_copies(u32 barrier) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory"); }

// A place in a ring and the parity of its turn.
struct Turn {
    int at;
    u32 parity;
    __device__ __forceinline__ void next(int stages) {
        if (++at == stages) { at = 0; parity ^= 1; }
    }
};
