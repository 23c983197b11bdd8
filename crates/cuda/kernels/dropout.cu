// Dropout's masks from the CPU's random numbers: ChaCha with 8 rounds as in rand_chacha, a 64-bit counter of blocks in words 12 and 13, the stream in
// words 14 and 15, a number of 64 bits from two neighbouring words, the lower one first.
#include "common.cuh"

__device__ __forceinline__ u32 turned(u32 v, int by) { return __funnelshift_l(v, v, by); }
__device__ __forceinline__ void quarter(u32& a, u32& b, u32& c, u32& d) {
    a += b; d = turned(d ^ a, 16);
    c += d; b = turned(b ^ c, 12);
    a += b; d = turned(d ^ a, 8);
    c += d; b = turned(b ^ c, 7);
}

// For sample i of a lane, mask[its slot * mask_stride + e] = 1 where number i * each + e of the lane's stream is kept, 0 where it is dropped, e < each: with
// each = sites * length * 64 the masks of a site are what layer_norm.cu wants, from byte site * length * 64 on. A number x is dropped if
// x >> 11 < threshold = ceil(rate 2^53), which is the CPU's comparison to the bit. keys [steps][lanes][8] by *counter. `each` and `mask_stride` are multiples of 8.
// Grid: (ceil(each / 2048), most samples of a lane, lanes), 256 threads: a thread a block of 8 numbers.
extern "C" __global__ void __launch_bounds__(256) draw_masks(const int* counter, const u32* keys, u8* mask, Cohort cohort, u64 stream, u64 threshold, i64 mask_stride, int each) {
    const Mine mine = my_sample(cohort);
    const int eight = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || eight >= each / 8) return;
    const u32* key = keys + ((i64)*counter * gridDim.z + mine.client) * 8;
    const u64 block = (u64)blockIdx.y * (each / 8) + eight;
    u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
#pragma unroll
    for (int k = 0; k < 8; k++) start[4 + k] = key[k];
    start[12] = (u32)block; start[13] = (u32)(block >> 32);
    start[14] = (u32)stream; start[15] = (u32)(stream >> 32);
#pragma unroll
    for (int k = 0; k < 16; k++) x[k] = start[k];
#pragma unroll
    for (int round = 0; round < 4; round++) {
#pragma unroll
        for (int k = 0; k < 4; k++) quarter(x[k], x[4 + k], x[8 + k], x[12 + k]);
#pragma unroll
        for (int k = 0; k < 4; k++) quarter(x[k], x[4 + (k + 1) % 4], x[8 + (k + 2) % 4], x[12 + (k + 3) % 4]);
    }
    u64 kept = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        const u64 number = (u64)(x[2 * k + 1] + start[2 * k + 1]) << 32 | (x[2 * k] + start[2 * k]);
        kept |= (u64)(number >> 11 >= threshold) << 8 * k;
    }
    *(u64*)(mask + mine.sample * mask_stride + (i64)eight * 8) = kept;
}
