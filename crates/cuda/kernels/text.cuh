// Texts: symbols of a data set that lives on the device. 0 is padding.
#pragma once
#include "common.cuh"

struct Text {
    const int* symbols;   // [data set][length]
    const int* indices;   // [samples], which text of the data set a sample is
    int length;
};
__device__ __forceinline__ const int* text_of(const Text& text, i64 sample) { return text.symbols + (i64)text.indices[sample] * text.length; }
