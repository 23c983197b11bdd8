// Images with one column and one row of zeros behind them, all of a client in one line of positions: every tap of a 3x3 window is then a fixed distance
// from its position, and the pixels of a block, read once, serve all nine taps. Between two images or rows the zeros are shared.
//
// In shared memory a position's 64 channels lie in eight planes of 16 bytes a position: a matrix instruction may begin at any position.
// A plane's size is 16 bytes beyond a multiple of 128, so that copies to the eight planes of a position meet in no bank.
#pragma once
#include "common.cuh"

struct Line {
    int2 span;
    int W, pitch, each;   // positions from row to row, and of an image
    __device__ __forceinline__ Line(const Cohort& cohort, int client, int H, int W) : span(cohort.spans[client]), W(W), pitch(W + 1), each((H + 1) * (W + 1)) {}
    __device__ __forceinline__ int length() const { return span.y * each; }
    // Where a position is: a sample, or -1 where there is none, and a pixel of it. Two numbers, so that nothing has to wait for the sample.
    __device__ __forceinline__ int2 place_of(const Cohort& cohort, int position, int H) const {
        if (position < 0 || position >= length()) return make_int2(-1, 0);
        const int index = position / each, rest = position - index * each, y = rest / pitch, x = rest - y * pitch;
        return x == W || y == H ? make_int2(-1, 0) : make_int2(sample_at(cohort, span, index), y * W + x);
    }
    __device__ __forceinline__ int pixel_of(int2 place, int H) const { return place.x < 0 ? -1 : place.x * H * W + place.y; }
    // The pixel at a position, -1 where there is none.
    __device__ __forceinline__ int pixel_at(const Cohort& cohort, int position, int H) const {
        if (position < 0 || position >= length()) return -1;
        const int index = position / each, rest = position - index * each, y = rest / pitch, x = rest - y * pitch;
        return x == W || y == H ? -1 : (sample_at(cohort, span, index) * H + y) * W + x;
    }
};
__device__ __forceinline__ int plane_bytes(int positions) { return ((positions + 7) / 8 * 8 + 1) * 16; }
