// Hopper's barriers in shared memory, which count arrivals and end one phase after another.
#pragma once
#include "tensor_core.cuh"

__device__ __forceinline__ void barrier_init(u32 barrier, int arrivals) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory"); }
// What was initialised is seen by copies too.
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void barrier_arrive(u32 barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }
// An arrival as soon as the copies that this thread has begun are done.
__device__ __forceinline__ void barrier_arrive_after_copies(u32 barrier) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory"); }
// Until the phase of this parity is over. One that never ends is an error rather than a card that hangs.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    for (u32 tries = 0;; tries++) {
        u32 done;
        asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}" : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
        if (done) return;
        if (tries > 1u << 24) __trap();
    }
}
