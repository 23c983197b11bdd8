// The gradient by weights with mma.sync: four warps of OUT / 2 x 64.
#include "conv_weights.cuh"

template <int OUT> __device__ __forceinline__ void gradient(const WeightGradient& p, const Cohort& cohort, int index, int client) {
    constexpr int MT = OUT / 32;
    extern __shared__ __align__(1024) char shared[];
    Walk<OUT> walk(p, cohort, (int4*)(shared + Walk<OUT>::RING), shared_address(shared), index, client);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wa = (warp & 1) * (OUT / 2), side_b = warp >> 1;
    float acc[MT][8][4] = {};
    // Rows of shared memory are pixels, the inner dimension: both fragments are read transposed.
    const u32 ka = (lane & 7) + ((lane >> 4) << 3), kb = lane & 15, ca = ((lane >> 3) & 1) + wa % 64 / 8, cb = lane >> 4;
    for (int k = 0; k < walk.steps; k++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        u32 a[2][MT][4], b[2][4][4];
        auto fetch = [&](int ks) {
#pragma unroll
            for (int i = 0; i < MT; i++) fragment_transposed(a[ks & 1][i], walk.tile + wa / 64 * QUARTER + (ks * 16 + ka) * 128 + (((ca + 2 * i) ^ (ka & 7)) << 4));
#pragma unroll
            for (int j = 0; j < 4; j++) fragment_transposed(b[ks & 1][j], walk.tile + walk.OF_X + side_b * QUARTER + (ks * 16 + kb) * 128 + (((cb + 2 * j) ^ (kb & 7)) << 4));
        };
        fetch(0);
        walk.load_next(k);
        walk.look_up(k + STAGES);
        copies_commit();
#pragma unroll
        for (int ks = 0; ks < 4; ks++) {
            if (ks < 3) fetch(ks + 1);
#pragma unroll
            for (int i = 0; i < MT; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) multiply(acc[i][j], a[ks & 1][i], b[ks & 1][j / 2][(j & 1) * 2], b[ks & 1][j / 2][(j & 1) * 2 + 1]);
        }
        walk.turn();
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int h = 0; h < 2; h++) walk.put(p, client, wa + i * 16 + (lane >> 2) + h * 8, side_b * 64 + j * 8 + 2 * (lane & 3), acc[i][j][2 * h], acc[i][j][2 * h + 1]);
}
CONV_WEIGHTS(conv_weights, 128)
CONV_WEIGHTS(conv_weights_64, 64)

// dw[client][n] = the parts' sum, in their order; clients `stride` numbers apart in dw and `w_stride` in the parts. Grid: (ceil(n / 1024), clients), 256 threads.
extern "C" __global__ void sum_parts(const float* partial, float* dw, i64 stride, i64 w_stride, i64 part_stride, i64 n, int parts) {
    for (int k = 0; k < 4; k++) {
        const i64 i = ((i64)blockIdx.x * 4 + k) * 256 + threadIdx.x;
        if (i >= n) return;
        float sum = 0.f;
        for (int part = 0; part < parts; part++) sum += partial[part * part_stride + blockIdx.y * w_stride + i];
        dw[blockIdx.y * stride + i] = sum;
    }
}
