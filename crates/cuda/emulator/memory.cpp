#include "memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <sys/mman.h>

namespace emulator::memory {
namespace {
constexpr size_t PAGE = 4096, ALIGNMENT = 16, FORBIDDEN = size_t(1) << 20;   // the latter on both sides
constexpr unsigned char CANARY = 0xA5, UNWRITTEN = 0xff;

struct Piece {
    char* pages;
    size_t mapped;   // without what is forbidden
    size_t bytes;
};
std::mutex guard;
std::map<uint64_t, Piece>& pieces() {
    static auto* all = new std::map<uint64_t, Piece>;   // programs end while others still use it
    return *all;
}
size_t taken = 0;

bool untouched(const char* from, const char* to) {
    for (; from < to; from++)
        if ((unsigned char)*from != CANARY) return false;
    return true;
}
// The piece that begins at or before an address.
std::map<uint64_t, Piece>::iterator before(uint64_t address) {
    auto after = pieces().upper_bound(address);
    return after == pieces().begin() ? pieces().end() : --after;
}
}

size_t total() {
    static const size_t all = [] {
        const char* text = getenv("EMULATOR_MEMORY");
        if (!text || !*text) return size_t(8) << 30;
        char* end = nullptr;
        const size_t megabytes = strtoull(text, &end, 10);
        if (*end || !megabytes) {
            fprintf(stderr, "error: `EMULATOR_MEMORY` is `%s`\nhint: give a number of megabytes\n", text);
            exit(2);
        }
        return megabytes * 1000000;
    }();
    return all;
}

size_t free_bytes() {
    std::lock_guard lock(guard);
    return total() - taken;
}

uint64_t take(size_t bytes) {
    std::lock_guard lock(guard);
    if (bytes > total() - taken) return 0;
    const size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, mapped = (padded + PAGE - 1) / PAGE * PAGE;
    char* all = (char*)mmap(nullptr, mapped + 2 * FORBIDDEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return 0;
    char* pages = all + FORBIDDEN;
    if (mprotect(pages, mapped, PROT_READ | PROT_WRITE)) return 0;
    char* at = pages + mapped - padded;
    memset(pages, CANARY, at - pages);
    memset(at, UNWRITTEN, bytes);
    memset(at + bytes, CANARY, padded - bytes);
    pieces()[(uint64_t)at] = {pages, mapped, bytes};
    taken += bytes;
    return (uint64_t)at;
}

Given give_back(uint64_t address) {
    std::lock_guard lock(guard);
    auto found = pieces().find(address);
    if (found == pieces().end()) return Given::UNKNOWN;
    const auto [pages, mapped, bytes] = found->second;
    const char* at = (const char*)address;
    const bool fine = untouched(pages, at) && untouched(at + bytes, pages + mapped);
    munmap(pages - FORBIDDEN, mapped + 2 * FORBIDDEN);
    pieces().erase(found);
    taken -= bytes;
    return fine ? Given::BACK : Given::WRITTEN_AROUND;
}

bool holds(uint64_t address, size_t bytes) {
    std::lock_guard lock(guard);
    const auto found = before(address);
    return found != pieces().end() && address - found->first + bytes <= found->second.bytes;
}

std::string told(const void* address) {
    char text[160];
    const uint64_t at = (uint64_t)address;
    std::lock_guard lock(guard);
    const auto found = before(at);
    if (found == pieces().end() || at - found->first > found->second.mapped + FORBIDDEN) snprintf(text, sizeof text, ", at %#llx", (unsigned long long)at);
    else snprintf(text, sizeof text, ", %llu bytes behind the beginning of %zu bytes", (unsigned long long)(at - found->first), found->second.bytes);
    return text;
}
}
