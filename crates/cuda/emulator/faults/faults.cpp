// Whether the stand-in sees what README.md says that it does.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "../block.h"
#include "../kernel.h"
#include "../memory.h"
#include "../ptx.h"

using namespace emulator;

static std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}
void emulator::add_kernel(Kernel kernel) { kernels().emplace(kernel.name, kernel); }

static int wrong = 0;
static void check(bool fine, const std::string& what) {
    if (!fine) printf("WRONG %s\n", what.c_str());
    wrong += !fine;
}

// What is said of a launch; nothing if it went well.
template <class... A> static std::string launch(const char* name, unsigned blocks, unsigned threads, size_t shared, A... arguments) {
    const Kernel& kernel = kernels().at(name);
    alignas(16) char packed[256];
    size_t index = 0;
    ((memcpy(packed + kernel.parameters.at(index).offset, &arguments, sizeof arguments), index++), ...);
    std::string why;
    run({name, kernel.run, packed, {blocks, 1, 1}, {threads, 1, 1}, shared}, why);
    return why;
}
static void refused(const std::string& why, const char* as) { check(why.find(as) != std::string::npos, std::string("wanted `") + as + "`, got `" + why + "`"); }
static float* numbers(size_t count) { return (float*)memory::take(4 * count); }

static void halves_are_rounded_to_the_nearest() {
    for (unsigned h = 0; h < 0x7c00; h++) {
        const float here = half_value(h), next = half_value(h + 1);
        check(half_bits(here) == h && half_bits(-here) == (h | 0x8000), "a half as it is");
        if (h + 1 == 0x7c00) break;
        const float middle = here + (next - here) / 2;
        check(half_bits(middle) == h + (h & 1), "half way goes to the even one");
        check(half_bits(nextafterf(middle, 0.f)) == h && half_bits(nextafterf(middle, INFINITY)) == h + 1, "beside it to the nearer one");
    }
    check(half_bits(65519.f) == 0x7bff && half_bits(65520.f) == 0x7c00 && half_bits(INFINITY) == 0x7c00, "the largest ones");
    check(std::isnan(half_value(half_bits(NAN))), "not a number");
}

int main() {
    catch_signals();
    float *x = numbers(128), *y = numbers(64);
    check(std::isnan(x[0]) && std::isnan(x[127]), "new memory is not a number");
    for (int i = 0; i < 128; i++) x[i] = (float)i;
    check(launch("right", 2, 64, 0, x, y, 100).empty(), "a kernel that is right");
    check(y[0] == 1520.f && y[1] == 496.f && y[2] == 390.f && y[3] == 2544.f, "its sums");

    refused(launch("reads", 1, 1, 0, x, y, (long long)128), "512 bytes behind the beginning of 512 bytes");
    refused(launch("writes", 1, 1, 0, y, (long long)64), "256 bytes behind the beginning of 256 bytes");
    refused(launch("writes", 1, 1, 0, y, (long long)-100000), "memory that is not there");
    refused(launch("unaligned", 1, 1, 0, x, y), "not aligned");
    refused(launch("beyond_an_array", 1, 1, 0, y, 4), "beyond an array");
    refused(launch("beside_an_array", 1, 1, 0, y, 4), "outside of what is declared");
    refused(launch("beyond_dynamic", 1, 1, 64, 16), "outside of dynamic shared memory");
    refused(launch("beyond_dynamic", 1, 1, 64, -1), "outside of dynamic shared memory");
    refused(launch("for_ever", 1, 32, 0), "wait for each other");
    refused(launch("at_other_barriers", 1, 64, 0), "different kinds of barriers");
    check(launch("without_barrier", 1, 64, 0, y).empty() && (std::isnan(y[0]) || std::isnan(y[63])), "a missing barrier is felt");
    if (!order().early_copies) check(launch("too_early", 1, 1, 16, x, y).empty() && std::isnan(y[0]) && y[1] == 0.f, "a copy that is not waited for");
    int last = -1;
    memcpy(y, &last, 4);
    check(launch("by_the_last", 8, 1, 0, y).empty(), "blocks that all write the same");
    memcpy(&last, y, 4);
    check((last == 7) == order().natural, "the last block is another one in another order");

    check(memory::holds((uint64_t)x, 512) && !memory::holds((uint64_t)x, 513) && !memory::holds((uint64_t)x - 1, 1), "what there is");
    check(memory::give_back((uint64_t)x) == memory::Given::BACK && memory::give_back((uint64_t)x) == memory::Given::UNKNOWN, "given back once");
    refused(launch("reads", 1, 1, 0, x, y, (long long)0), "memory that is not there");
    launch("writes", 1, 1, 0, y, (long long)-1);
    check(memory::give_back((uint64_t)y) == memory::Given::WRITTEN_AROUND, "a write in front");
    halves_are_rounded_to_the_nearest();
    printf("the stand-in sees what it should: %s\n", wrong ? "NO" : "yes");
    return wrong ? 1 : 0;
}
