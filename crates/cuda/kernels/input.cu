// Batches from a data set that lives on the device as bytes.
#include "common.cuh"

// (byte / white - mean[channel]) / deviation[channel], for the data set's samples that `indices` names. `x` [samples][pixels][C] in 32 bits; `x16`
// [samples][pixels][padded] in 16 bits, with zeros beyond channel C, for convolutions on tensor cores. Either may be null.
// Grid: (ceil(pixels * padded / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void images(const u8* bytes, const int* indices, const float* mean, const float* deviation, float* x, f16* x16, Cohort cohort, float white, int pixels, int C, int padded) {
    const Mine mine = my_sample(cohort);
    const int e = blockIdx.x * 256 + threadIdx.x, pixel = e / padded, c = e - pixel * padded;
    if (!mine.here || pixel >= pixels) return;
    const float v = c < C ? (bytes[((i64)indices[mine.sample] * pixels + pixel) * C + c] / white - mean[c]) / deviation[c] : 0.f;
    if (x && c < C) x[(mine.sample * pixels + pixel) * C + c] = v;
    if (x16) x16[(mine.sample * pixels + pixel) * padded + c] = half_of(v);
}

// The same of pictures moved and mirrored by chance: changes[*counter][lane][i] says how the i-th sample of a lane is changed. Its bits from 16 on are 16384 plus by how many
// pixels it moves down, bits 1 to 15 the same to the right, and bit 0 whether it is mirrored, which comes after. What comes in from outside is the byte 0. Grid as above.
extern "C" __global__ void changed_images(const u8* bytes, const int* indices, const int* counter, const int* changes, const float* mean, const float* deviation, float* x, f16* x16, Cohort cohort, float white, int height, int width, int C, int padded) {
    const Mine mine = my_sample(cohort);
    const int e = blockIdx.x * 256 + threadIdx.x, pixels = height * width, pixel = e / padded, c = e - pixel * padded;
    if (!mine.here || pixel >= pixels) return;
    const int change = changes[((i64)*counter * gridDim.z + mine.client) * gridDim.y + blockIdx.y];
    const int column = pixel % width, from_row = pixel / width - ((change >> 16) - 16384);
    const int from_column = (change & 1 ? width - 1 - column : column) - ((change >> 1 & 32767) - 16384);
    const bool inside = 0 <= from_row && from_row < height && 0 <= from_column && from_column < width;
    const i64 from = ((i64)indices[mine.sample] * pixels + from_row * width + from_column) * C + c;
    const float v = c < C ? ((inside ? bytes[from] : 0) / white - mean[c]) / deviation[c] : 0.f;
    if (x && c < C) x[(mine.sample * pixels + pixel) * C + c] = v;
    if (x16) x16[(mine.sample * pixels + pixel) * padded + c] = half_of(v);
}

// x[sample][n] = numbers[index][n], the samples of a data set of plain numbers that `indices` names. Grid: (ceil(n / 256), most samples of a client, clients), 256 threads.
extern "C" __global__ void vectors(const float* numbers, const int* indices, float* x, Cohort cohort, int n) {
    const Mine mine = my_sample(cohort);
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (mine.here && i < n) x[mine.sample * n + i] = numbers[(i64)indices[mine.sample] * n + i];
}

// 32-bit numbers in 16 bits, `n` an even count a sample. Grid: (ceil(n / 512), most samples of a client, clients), 256 threads.
extern "C" __global__ void to_f16(const float* x, f16* y, Cohort cohort, float scale, int n) {
    const Mine mine = my_sample(cohort);
    const int pair = blockIdx.x * 256 + threadIdx.x;
    if (!mine.here || pair >= n / 2) return;
    const i64 at = mine.sample * (n / 2) + pair;
    const float2 v = load2(x, at);
    store2(y, at, make_float2(scale * v.x, scale * v.y));
}
