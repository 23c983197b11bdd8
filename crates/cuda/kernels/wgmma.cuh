// Hopper's asynchronous matrix instruction (compute capability 9.0a), both factors in shared memory.
#pragma once
#include "tensor_core.cuh"

// Rows of 128 bytes in the order of conv_tiles.cuh, eight rows every 1024 bytes; the tile begins at a multiple of 1024.
__device__ __forceinline__ u64 descriptor_of(u32 tile) { return (u64)(tile >> 4 & 0x3fff) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62; }

// Rows along the inner dimension instead: 64 columns a row, further columns `apart` bytes away.
__device__ __forceinline__ u64 transposed_descriptor_of(u32 tile, u32 apart) { return (u64)(tile >> 4 & 0x3fff) | (u64)(apart >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62; }

// Planes of 8 inner numbers, 16 bytes a row, in no other order: the tile may begin at any row.
__device__ __forceinline__ u64 plane_descriptor_of(u32 tile, u32 plane) { return (u64)(tile >> 4 & 0x3fff) | (u64)(plane >> 4) << 16 | (u64)(128 >> 4) << 32; }

// The same where rows are the inner dimension and planes the outer one.
__device__ __forceinline__ u64 transposed_plane_descriptor_of(u32 tile, u32 plane) { return (u64)(tile >> 4 & 0x3fff) | (u64)(128 >> 4) << 16 | (u64)(plane >> 4) << 32; }

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
// What ordinary copies wrote becomes visible to the matrix units.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
// d[64 x 128] += a[64 x 16] b[16 x 128]; both factors have rows along the inner dimension if TRANSPOSED.
template <int TRANSPOSED> __device__ __forceinline__ void wgmma(float (&d)[64], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
                 "}, %64, %65, 1, 1, 1, %66, %66;"
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
                 : "l"(a), "l"(b), "n"(TRANSPOSED));
}
// d[64 x 64] += a[64 x 16] b[16 x 64], likewise.
template <int TRANSPOSED> __device__ __forceinline__ void wgmma(float (&d)[32], u64 a, u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, 1, 1, 1, %34, %34;"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "l"(a), "l"(b), "n"(TRANSPOSED));
}
// d[64 x 64] += a[64 x 16] b[16 x 64], a from registers (a fragment of mma.sync a warp), b with rows along the inner dimension.
__device__ __forceinline__ void wgmma(float (&d)[32], const u32 (&a)[4], u64 b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef D8
