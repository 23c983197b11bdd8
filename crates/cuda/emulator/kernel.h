// Kernels by name, with what the driver must know of their parameters.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace emulator {
struct Parameter { size_t offset, size; };
struct Kernel {
    const char* name;
    uint64_t ptx;   // what the file it belongs to is known by
    void (*run)(const char* arguments);
    std::vector<Parameter> parameters;
    size_t bytes;   // of all arguments
};
void add_kernel(Kernel kernel);

// What a text is known by.
constexpr uint64_t fingerprint(const char* text) {
    uint64_t v = 0xcbf29ce484222325ull;
    for (; *text; text++) v = (v ^ (unsigned char)*text) * 0x100000001b3ull;
    return v;
}

// Arguments lie behind each other, aligned, as in a structure.
template <class... A> constexpr size_t offset_of(size_t which) {
    size_t sizes[] = {sizeof(A)..., 0}, aligns[] = {alignof(A)..., 1}, at = 0;
    for (size_t i = 0;; i++) {
        at = (at + aligns[i] - 1) / aligns[i] * aligns[i];
        if (i == which) return at;
        at += sizes[i];
    }
}
template <auto F> struct Call;
template <class... A, void (*F)(A...)> struct Call<F> {
    static void run(const char* arguments) { with(arguments, std::index_sequence_for<A...>()); }
    template <size_t... I> static void with(const char* arguments, std::index_sequence<I...>) { F(*(const A*)(arguments + offset_of<A...>(I))...); }
    template <size_t... I> static std::vector<Parameter> parameters(std::index_sequence<I...>) { return {{offset_of<A...>(I), sizeof(A)}...}; }
    static Kernel of(const char* name, uint64_t ptx) {
        return {name, ptx, run, parameters(std::index_sequence_for<A...>()), offset_of<A...>(sizeof...(A))};
    }
};
struct Added {
    explicit Added(Kernel kernel) { add_kernel(std::move(kernel)); }
};
}
