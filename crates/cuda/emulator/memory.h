// The device's memory. What is asked for ends in front of memory that must not be touched, is not a number until it is written, and is gone when it is given back.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulator::memory {
// Bytes there are, 8 GiB or `EMULATOR_MEMORY` megabytes of 1e6 bytes, and those nobody has.
size_t total();
size_t free_bytes();

// Zero where there is not enough.
uint64_t take(size_t bytes);
enum class Given { BACK, UNKNOWN, WRITTEN_AROUND };
Given give_back(uint64_t address);

// Whether all of these bytes are in one piece that was asked for.
bool holds(uint64_t address, size_t bytes);
// Where an address lies, in words that follow others.
std::string told(const void* address);
}
