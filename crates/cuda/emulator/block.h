// A block of threads on one thread of the CPU, as kernels and the driver see it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

struct uint3 { unsigned x, y, z; };

namespace emulator {
// ---- for kernels -------------------------------------------------------------------------------------------------------------
// threadIdx, blockIdx, blockDim and gridDim of the thread that runs.
struct Here { uint3 thread, block, threads, blocks; };
extern thread_local Here here __attribute__((tls_model("initial-exec")));

// Gives the launch up, with a reason.
[[noreturn]] void fail(const std::string& why);

enum class Vote { NONE, OR, AND };
// Waits for all threads of the block that have not returned; whether one of them voted.
int barrier(Vote kind, int vote);

// Waits for all lanes of the warp that have not returned. The last to come does `together` with what every lane brought.
void meet(void* mine, void (*together)(void* const* of, unsigned lanes));
// Operations of a part of a warp are not known.
inline void whole_warp(unsigned mask) {
    if (mask != ~0u) fail("an operation of a part of a warp, which the stand-in does not know");
}

// Shared memory. What is declared in a function has a Slot; it is not a number when a block begins.
struct Slot { std::atomic<int> number; };
void* place(Slot& slot, size_t bytes, size_t align);
template <class T> T& shared(Slot& slot, size_t align = alignof(T)) { return *(T*)place(slot, sizeof(T), align > alignof(T) ? align : alignof(T)); }
void* dynamic_shared();
// Where in shared memory an address lies, and back.
unsigned shared_address(const void* p);
void* at_shared(unsigned address, size_t bytes);

// 16 bytes on their way to shared memory; they come when they are waited for, or at once (Order::early_copies).
void copy_async(unsigned to, const void* source, int bytes);
void commit_copies();
void wait_copies(int groups);

// ---- for the driver ----------------------------------------------------------------------------------------------------------
struct Size3 { unsigned x, y, z; };
// A kernel with its packed arguments.
struct Work {
    const char* name;
    void (*run)(const char* arguments);
    const char* arguments;
    Size3 grid, threads;
    size_t shared;
};
// Runs all blocks of a launch; false with a reason if it was given up.
bool run(const Work& work, std::string& why);
// Signals of a thread that runs a kernel end its launch.
void catch_signals();

// In which order blocks, warps and lanes run.
struct Order {
    bool natural, reverse, early_copies;
    uint64_t seed;
};
const Order& order();
}
