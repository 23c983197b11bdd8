// What a kernel sees of CUDA C++: types, indices, arithmetic, barriers and operations of a warp.
//
// build puts every source behind this header into a namespace of its own, and replaces `__shared__` and `asm`.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "block.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(N) alignas(N)

// ---- types -------------------------------------------------------------------------------------------------------------------
struct alignas(8) int2 { int x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define threadIdx emulator::here.thread
#define blockIdx emulator::here.block
#define blockDim emulator::here.threads
#define gridDim emulator::here.blocks

// ---- numbers -----------------------------------------------------------------------------------------------------------------
using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;

namespace emulator {
// A value that is not joined with an addition around it: sources are compiled with contraction, as NVRTC does.
inline float rounded(float v) {
    asm("" : "+x"(v));
    return v;
}
inline double rounded(double v) {
    asm("" : "+x"(v));
    return v;
}
template <class To, class From> To bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
}
inline float __fmul_rn(float a, float b) { return emulator::rounded(a * b); }
inline float __fadd_rn(float a, float b) { return emulator::rounded(emulator::rounded(a) + emulator::rounded(b)); }
inline float __fsub_rn(float a, float b) { return emulator::rounded(emulator::rounded(a) - emulator::rounded(b)); }
inline double __dmul_rn(double a, double b) { return emulator::rounded(a * b); }
inline double __dadd_rn(double a, double b) { return emulator::rounded(emulator::rounded(a) + emulator::rounded(b)); }
inline double __dsub_rn(double a, double b) { return emulator::rounded(emulator::rounded(a) - emulator::rounded(b)); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline float __int_as_float(int v) { return emulator::bits<float>(v); }
inline float __uint_as_float(unsigned v) { return emulator::bits<float>(v); }
inline int __float_as_int(float v) { return emulator::bits<int>(v); }
inline unsigned __float_as_uint(float v) { return emulator::bits<unsigned>(v); }
inline double __longlong_as_double(long long v) { return emulator::bits<double>(v); }
inline long long __double_as_longlong(double v) { return emulator::bits<long long>(v); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return (unsigned)(((uint64_t)high << 32 | low) << (by & 31) >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }

// ---- the block ---------------------------------------------------------------------------------------------------------------
inline void __syncthreads() { emulator::barrier(emulator::Vote::NONE, 0); }
inline int __syncthreads_or(int vote) { return emulator::barrier(emulator::Vote::OR, vote != 0); }
inline int __syncthreads_and(int vote) { return !emulator::barrier(emulator::Vote::AND, vote == 0); }
[[noreturn]] inline void __trap() { emulator::fail("a thread trapped"); }

// Threads of a block run one at a time, and nobody else works on its numbers.
template <class T> T atomicAdd(T* at, T v) { const T old = *at; *at = old + v; return old; }
template <class T> T atomicMin(T* at, T v) { const T old = *at; *at = std::min(old, v); return old; }
template <class T> T atomicMax(T* at, T v) { const T old = *at; *at = std::max(old, v); return old; }

inline unsigned long long __cvta_generic_to_shared(const void* p) { return emulator::shared_address(p); }

// ---- the warp ----------------------------------------------------------------------------------------------------------------
namespace emulator {
inline int lane_id() { return (int)((here.thread.x + here.threads.x * (here.thread.y + here.threads.y * here.thread.z)) % 32); }

template <class T> struct Shuffle { T value, got; int from; };
// What a lane gets from one that is not there is not a number.
template <class T> void shuffle_together(void* const* of, unsigned lanes) {
    for (unsigned left = lanes; left; left &= left - 1) {
        auto& mine = *(Shuffle<T>*)of[__builtin_ctz(left)];
        if (lanes >> mine.from & 1) mine.got = ((Shuffle<T>*)of[mine.from])->value;
        else memset((void*)&mine.got, 0xff, sizeof(T));
    }
}
template <class T> T shuffle(unsigned mask, T value, int from) {
    whole_warp(mask);
    Shuffle<T> mine{value, value, from};
    meet(&mine, shuffle_together<T>);
    return mine.got;
}
struct Ballot { bool vote; unsigned votes; };
inline void ballot_together(void* const* of, unsigned lanes) {
    unsigned votes = 0;
    for (unsigned left = lanes; left; left &= left - 1) votes |= (unsigned)((Ballot*)of[__builtin_ctz(left)])->vote << __builtin_ctz(left);
    for (unsigned left = lanes; left; left &= left - 1) ((Ballot*)of[__builtin_ctz(left)])->votes = votes;
}
inline void nothing_together(void* const*, unsigned) {}
}
template <class T> T __shfl_sync(unsigned mask, T value, int lane) { return emulator::shuffle(mask, value, lane & 31); }
template <class T> T __shfl_xor_sync(unsigned mask, T value, int by) { return emulator::shuffle(mask, value, emulator::lane_id() ^ by); }
template <class T> T __shfl_up_sync(unsigned mask, T value, int by) {
    const int lane = emulator::lane_id();
    return emulator::shuffle(mask, value, lane < by ? lane : lane - by);
}
template <class T> T __shfl_down_sync(unsigned mask, T value, int by) {
    const int lane = emulator::lane_id();
    return emulator::shuffle(mask, value, lane + by > 31 ? lane : lane + by);
}
inline unsigned __ballot_sync(unsigned mask, int vote) {
    emulator::whole_warp(mask);
    emulator::Ballot mine{vote != 0, 0};
    emulator::meet(&mine, emulator::ballot_together);
    return mine.votes;
}
inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, !vote) == 0; }
inline void __syncwarp(unsigned mask = ~0u) {
    emulator::whole_warp(mask);
    emulator::meet(nullptr, emulator::nothing_together);
}
