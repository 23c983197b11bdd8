// What all kernels share. No CUDA header is included, so that NVRTC needs nothing but itself.
//
// LAYOUT. Everything is channels last: a state is [sample][row][column][channel], a weight [client][out][row][column][in], a dense weight
// [client][in][out]. 16-bit numbers are IEEE halves and travel as `f16`. Pixels of 16-bit tensors have a multiple of 8 channels.
//
// COHORT. One launch serves all clients. The samples of client k are rows[first .. first + count] with {first, count} = spans[k]: `rows` says
// where in the buffers a sample lives. Samples that are finished leave by a shorter `count`, without the host hearing of it; blocks beyond
// the count return at once. What a sample gets never depends on who else is there, and no sum depends on the order in which blocks run.
#pragma once
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct f16 { unsigned short bits; };

struct Cohort {
    const int2* spans;   // [clients] {first, count}
    const int* rows;     // positions to samples
};

__device__ __forceinline__ int sample_at(const Cohort& cohort, int2 span, int index) { return cohort.rows[span.x + index]; }

// The sample of a block in grids of (anything, most samples of a client, clients); not `here` beyond the client's last.
struct Mine { int client, count; i64 sample; bool here; };

__device__ __forceinline__ Mine my_sample(const Cohort& cohort) {
    const int2 span = cohort.spans[blockIdx.z];
    const bool here = (int)blockIdx.y < span.y;
    return {(int)blockIdx.z, span.y, here ? sample_at(cohort, span, blockIdx.y) : 0, here};
}

// ---- numbers -----------------------------------------------------------------------------------------------------------------
__device__ __forceinline__ u32 pack2(float low, float high) {
    u32 d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
__device__ __forceinline__ float2 unpack2(u32 v) {
    float2 f;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(f.x), "=f"(f.y) : "r"(v));
    return f;
}
__device__ __forceinline__ f16 half_of(float x) {
    f16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x));
    return h;
}

// Two neighbouring channels of either type.
__device__ __forceinline__ float2 load2(const float* p, i64 pair) { return ((const float2*)p)[pair]; }
__device__ __forceinline__ float2 load2(const f16* p, i64 pair) { return unpack2(((const u32*)p)[pair]); }
__device__ __forceinline__ void store2(float* p, i64 pair, float2 v) { ((float2*)p)[pair] = v; }
__device__ __forceinline__ void store2(f16* p, i64 pair, float2 v) { ((u32*)p)[pair] = pack2(v.x, v.y); }

// Four of them.
__device__ __forceinline__ float4 load4(const float* p, i64 quad) { return ((const float4*)p)[quad]; }
__device__ __forceinline__ float4 load4(const f16* p, i64 quad) {
    const uint2 v = ((const uint2*)p)[quad];
    const float2 a = unpack2(v.x), b = unpack2(v.y);
    return make_float4(a.x, a.y, b.x, b.y);
}
__device__ __forceinline__ void store4(float* p, i64 quad, float4 v) { ((float4*)p)[quad] = v; }
__device__ __forceinline__ void store4(f16* p, i64 quad, float4 v) { ((uint2*)p)[quad] = make_uint2(pack2(v.x, v.y), pack2(v.z, v.w)); }
__device__ __forceinline__ float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ __forceinline__ float4 operator-(float4 a, float4 b) { return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w); }
__device__ __forceinline__ float4 operator*(float4 a, float4 b) { return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }
__device__ __forceinline__ float4 operator*(float f, float4 a) { return make_float4(f * a.x, f * a.y, f * a.z, f * a.w); }

// ---- activations -------------------------------------------------------------------------------------------------------------
// SOFTPLUS takes two special-function instructions and is exact to 1e-7 absolutely, plenty beside 16-bit factors; SOFTPLUS_EXACT also
// keeps the digits of small values.
enum Phi { IDENTITY, RELU, SOFTPLUS, SOFTPLUS_EXACT };

__device__ __forceinline__ float softplus_fast(float x) {
    float e, l;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-1.4426950408889634f * fabsf(x)));
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(l) : "f"(1.f + e));
    return (x > 0.f ? x : 0.f * x) + 0.6931471805599453f * l;   // 0 * x keeps what is not a number
}
__device__ __forceinline__ float softplus_exact(float x) { return (x > 0.f ? x : 0.f * x) + log1pf(expf(-fabsf(x))); }

template <int PHI> __device__ __forceinline__ float phi(float x) {
    if (PHI == RELU) return x < 0.f ? 0.f : x;   // not a maximum, which would hide what is not a number
    if (PHI == SOFTPLUS) return softplus_fast(x);
    if (PHI == SOFTPLUS_EXACT) return softplus_exact(x);
    return x;
}
// phi'(x) from the value y = phi(x): nobody needs to keep x. For softplus it is 1 - e^-y.
template <int PHI> __device__ __forceinline__ float slope(float y) {
    if (PHI == RELU) return y > 0.f ? 1.f : 0.f;
    if (PHI == SOFTPLUS_EXACT) return -expm1f(-y);
    if (PHI == SOFTPLUS) {
        float e;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-1.4426950408889634f * y));
        return 1.f - e;
    }
    return 1.f;
}

// The same where the activation is a setting, in kernels bound by memory. What is longer than a comparison is a call: unrolled loops would repeat it.
static __device__ __noinline__ float4 smooth_phi(int which, float4 x) {
    return which == SOFTPLUS ? make_float4(phi<SOFTPLUS>(x.x), phi<SOFTPLUS>(x.y), phi<SOFTPLUS>(x.z), phi<SOFTPLUS>(x.w))
                             : make_float4(phi<SOFTPLUS_EXACT>(x.x), phi<SOFTPLUS_EXACT>(x.y), phi<SOFTPLUS_EXACT>(x.z), phi<SOFTPLUS_EXACT>(x.w));
}
static __device__ __noinline__ float4 smooth_slope(int which, float4 y) {
    return which == SOFTPLUS ? make_float4(slope<SOFTPLUS>(y.x), slope<SOFTPLUS>(y.y), slope<SOFTPLUS>(y.z), slope<SOFTPLUS>(y.w))
                             : make_float4(slope<SOFTPLUS_EXACT>(y.x), slope<SOFTPLUS_EXACT>(y.y), slope<SOFTPLUS_EXACT>(y.z), slope<SOFTPLUS_EXACT>(y.w));
}
__device__ __forceinline__ float4 phi_of(int which, float4 x) {
    return which == IDENTITY ? x : which == RELU ? make_float4(phi<RELU>(x.x), phi<RELU>(x.y), phi<RELU>(x.z), phi<RELU>(x.w)) : smooth_phi(which, x);
}
__device__ __forceinline__ float4 slope_of(int which, float4 y) {
    return which == IDENTITY ? make_float4(1.f, 1.f, 1.f, 1.f) : which == RELU ? make_float4(slope<RELU>(y.x), slope<RELU>(y.y), slope<RELU>(y.z), slope<RELU>(y.w)) : smooth_slope(which, y);
}
__device__ __forceinline__ float phi_of(int which, float x) { return which == RELU ? phi<RELU>(x) : which == SOFTPLUS ? phi<SOFTPLUS>(x) : which == SOFTPLUS_EXACT ? phi<SOFTPLUS_EXACT>(x) : x; }
__device__ __forceinline__ float slope_of(int which, float y) { return which == RELU ? slope<RELU>(y) : which == SOFTPLUS ? slope<SOFTPLUS>(y) : which == SOFTPLUS_EXACT ? slope<SOFTPLUS_EXACT>(y) : 1.f; }

// ---- sums --------------------------------------------------------------------------------------------------------------------
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    return v;
}
