// The instructions that kernels name themselves. A line `// asm:` says of which assembler text the function below it is the meaning; operands come in the
// text's order.
#pragma once
#include "device.h"

namespace emulator {
// ---- halves ------------------------------------------------------------------------------------------------------------------
// To the nearest, ties to even.
inline uint16_t half_bits(float x) {
    const uint32_t v = bits<uint32_t>(x), sign = v >> 16 & 0x8000, size = v & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);                                  // 65520 and beyond
    if (size < 0x38800000) return (uint16_t)(sign | (bits<uint32_t>(bits<float>(size) + 0.5f) - 0x3f000000));   // below 2^-14: the addition rounds
    return (uint16_t)(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}
extern const float* const halves;   // by their bits
inline float half_value(uint16_t h) { return halves[h]; }

// asm: cvt.rn.f16x2.f32 %0, %1, %2;
inline void to_halves(uint32_t& d, float high, float low) { d = (uint32_t)half_bits(high) << 16 | half_bits(low); }
// asm: {.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}
inline void from_halves(float& low, float& high, uint32_t v) {
    low = half_value((uint16_t)v);
    high = half_value((uint16_t)(v >> 16));
}
// asm: cvt.rn.f16.f32 %0, %1;
inline void to_half(uint16_t& d, float x) { d = half_bits(x); }

// ---- special functions, small numbers being zero -------------------------------------------------------------------------------
inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.f, x) : x; }
// asm: ex2.approx.ftz.f32 %0, %1;
inline void exponential(float& d, float x) { d = flushed(exp2f(flushed(x))); }
// asm: lg2.approx.ftz.f32 %0, %1;
inline void logarithm(float& d, float x) { d = flushed(log2f(flushed(x))); }

// ---- shared memory -------------------------------------------------------------------------------------------------------------
// asm: st.shared.u32 [%0], %1;
inline void store_shared(uint32_t at, uint32_t v) { *(uint32_t*)at_shared(at, 4) = v; }
// asm: st.shared.v2.f32 [%0], {%1, %2};
inline void store_shared(uint32_t at, float first, float second) { *(float2*)at_shared(at, 8) = {first, second}; }
// asm: cp.async.cg.shared.global [%0], [%1], 16, %2;
inline void copy_16(uint32_t to, const void* source, int bytes) { copy_async(to, source, bytes); }
// asm: cp.async.commit_group;
inline void commit() { commit_copies(); }
// asm: cp.async.wait_group %0;
inline void wait(int groups) { wait_copies(groups); }

// ---- matrices of a warp --------------------------------------------------------------------------------------------------------
struct Fragment { uint32_t at, r[4]; };
template <bool TRANSPOSED> void fragments_together(void* const* of, unsigned lanes) {
    if (lanes != ~0u) fail("a matrix instruction of a warp that is not complete");
    const uint16_t* rows[32];
    for (int l = 0; l < 32; l++) rows[l] = (const uint16_t*)at_shared(((Fragment*)of[l])->at, 16);
    for (int l = 0; l < 32; l++)
        for (int m = 0; m < 4; m++) {
            const uint16_t* const* matrix = rows + 8 * m;
            const int row = TRANSPOSED ? l % 4 * 2 : l / 4, column = TRANSPOSED ? l / 4 : l % 4 * 2;
            const uint16_t first = matrix[row][column], second = TRANSPOSED ? matrix[row + 1][column] : matrix[row][column + 1];
            ((Fragment*)of[l])->r[m] = (uint32_t)second << 16 | first;
        }
}
// asm: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];
inline void load_fragment(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t at) {
    Fragment mine{at, {}};
    meet(&mine, fragments_together<false>);
    a = mine.r[0]; b = mine.r[1]; c = mine.r[2]; d = mine.r[3];
}
// asm: ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];
inline void load_fragment_transposed(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t at) {
    Fragment mine{at, {}};
    meet(&mine, fragments_together<true>);
    a = mine.r[0]; b = mine.r[1]; c = mine.r[2]; d = mine.r[3];
}
struct Product { float d[4]; uint32_t a[4], b[2]; };
void product_together(void* const* of, unsigned lanes);
// asm: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};
inline void multiply_matrices(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    Product mine{{d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}};
    meet(&mine, product_together);
    d0 = mine.d[0]; d1 = mine.d[1]; d2 = mine.d[2]; d3 = mine.d[3];
}
}
