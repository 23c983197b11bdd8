// The driver's functions, as many as the engine calls. Work is done at once, in the order in which it is given.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "block.h"
#include "kernel.h"
#include "memory.h"

using namespace emulator;

namespace {
enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_IMAGE = 200, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701, LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900
};
constexpr char NAME[] = "CPU stand-in for a GPU";
constexpr int MAJOR = 8, MINOR = 0;
constexpr size_t MOST_SHARED = 163 * 1024, FREE_SHARED = 48 * 1024;

// What a call that failed had to say, for whoever asks for the error's text next.
thread_local std::string said;
int failed(Result result, const std::string& why) {
    said = why;
    fprintf(stderr, "stand-in: %s\n", why.c_str());
    return result;
}

// The same for what callers ask for to find something out.
int denied(Result result, const char* why) {
    said = why;
    return result;
}

std::map<std::string, Kernel>& kernels() {
    static auto* all = new std::map<std::string, Kernel>;
    return *all;
}

using Task = std::function<int()>;
using Graph = std::vector<Task>;
struct Stream {
    std::unique_ptr<Graph> recorded;   // while recording
    int error = SUCCESS;               // of work that was given before; it stays
    std::string why;
};
Stream& default_stream() {
    static Stream stream;
    return stream;
}
Stream& stream_of(void* handle) { return handle && (uintptr_t)handle > 2 ? *(Stream*)handle : default_stream(); }

int report(Stream& stream) {
    if (stream.error) said = stream.why;
    return stream.error;
}
// Does work, or records it.
int give(void* handle, Task task) {
    Stream& stream = stream_of(handle);
    if (stream.error) return report(stream);
    if (stream.recorded) {
        stream.recorded->push_back(std::move(task));
        return SUCCESS;
    }
    // Errors of work are told when it is waited for.
    stream.error = task();
    if (stream.error) stream.why = said;
    return SUCCESS;
}
int not_recorded(void* handle, const char* what) {
    Stream& stream = stream_of(handle);
    if (stream.recorded) return failed(CAPTURE_UNSUPPORTED, std::string(what) + " while work is recorded");
    return report(stream);
}
bool device_has(uint64_t address, size_t bytes, const char* what) {
    if (memory::holds(address, bytes)) return true;
    failed(INVALID_VALUE, std::string(what) + " of " + std::to_string(bytes) + " bytes that are not in one piece of the device's memory");
    return false;
}

struct Entry { std::vector<size_t> parameters; unsigned most_threads = 1024; };
struct Module {
    uint64_t fingerprint;
    std::map<std::string, Entry> entries;
};
struct Function {
    const Kernel* kernel;
    unsigned most_threads;
    size_t shared = FREE_SHARED;
};

size_t size_of(const std::string& parameter) {
    const size_t array = parameter.find('[');
    if (array != std::string::npos) return std::stoul(parameter.substr(array + 1));
    const size_t type = parameter.find_first_of("0123456789", parameter.find(".param") + 6);
    return std::stoul(parameter.substr(type)) / 8;
}
// What a PTX text says of its kernels: their parameters and the most threads of a block.
std::map<std::string, Entry> entries_of(const std::string& text) {
    static const std::string mark = ".visible .entry ";
    std::map<std::string, Entry> entries;
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
        at += mark.size();
        const size_t open = text.find('(', at), close = text.find("\n)", open), body = text.find('{', close);
        Entry& entry = entries[text.substr(at, open - at)];
        for (size_t p = text.find(".param", open); p < close; p = text.find(".param", p + 1)) {
            const size_t end = std::min(text.find(',', p), text.find('\n', p));
            entry.parameters.push_back(size_of(text.substr(p, end - p)));
        }
        const size_t most = text.find(".maxntid", close);
        if (most < body) entry.most_threads = (unsigned)std::stoul(text.substr(most + 8));
    }
    return entries;
}
bool agree(const Entry& entry, const Kernel& kernel) {
    if (entry.parameters.size() != kernel.parameters.size()) return false;
    for (size_t i = 0; i < entry.parameters.size(); i++)
        if (entry.parameters[i] != kernel.parameters[i].size) return false;
    return true;
}
}

void emulator::add_kernel(Kernel kernel) { kernels().emplace(kernel.name, std::move(kernel)); }

#define DRIVER(NAME, ...) extern "C" __attribute__((visibility("default"))) int NAME(__VA_ARGS__)

// ---- the device --------------------------------------------------------------------------------------------------------------
DRIVER(cuInit, unsigned) {
    order();
    catch_signals();
    return SUCCESS;
}
DRIVER(cuDriverGetVersion, int* version) { *version = 12040; return SUCCESS; }
DRIVER(cuDeviceGetCount, int* count) { *count = 1; return SUCCESS; }
DRIVER(cuDeviceGet, int* device, int index) {
    *device = index;
    return index == 0 ? (int)SUCCESS : denied(INVALID_DEVICE, "there is no such device");
}
DRIVER(cuDeviceGetName, char* name, int length, int) {
    snprintf(name, length, "%s", NAME);
    return SUCCESS;
}
DRIVER(cuDeviceTotalMem_v2, size_t* bytes, int) { *bytes = memory::total(); return SUCCESS; }
DRIVER(cuDeviceGetAttribute, int* value, int which, int) {
    static const std::map<int, int> values = {
        {1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, (int)FREE_SHARED}, {10, 32},
        {16, 1},                          // multiprocessors
        {39, 2048}, {75, MAJOR}, {76, MINOR}, {81, (int)MOST_SHARED + 1024}, {97, (int)MOST_SHARED},
        {115, 1},                         // memory pools
    };
    const auto found = values.find(which);
    if (found == values.end()) return failed(INVALID_VALUE, "the stand-in knows no attribute " + std::to_string(which));
    *value = found->second;
    return SUCCESS;
}
DRIVER(cuDeviceGetDefaultMemPool, void** pool, int) { *pool = (void*)1; return SUCCESS; }
DRIVER(cuMemPoolSetAttribute, void*, int, void*) { return SUCCESS; }

// ---- contexts ----------------------------------------------------------------------------------------------------------------
static thread_local void* current_context = nullptr;
DRIVER(cuDevicePrimaryCtxRetain, void** context, int) { *context = (void*)1; return SUCCESS; }
DRIVER(cuDevicePrimaryCtxRelease_v2, int) { return SUCCESS; }
DRIVER(cuCtxGetCurrent, void** context) { *context = current_context; return SUCCESS; }
DRIVER(cuCtxSetCurrent, void* context) { current_context = context; return SUCCESS; }
DRIVER(cuCtxSynchronize) { return SUCCESS; }

// ---- streams and events --------------------------------------------------------------------------------------------------------
DRIVER(cuStreamCreate, void** stream, unsigned) { *stream = new Stream; return SUCCESS; }
DRIVER(cuStreamDestroy_v2, void* stream) { delete (Stream*)stream; return SUCCESS; }
DRIVER(cuStreamSynchronize, void* stream) { return not_recorded(stream, "a wait"); }
DRIVER(cuStreamWaitEvent, void* stream, void*, unsigned) { return report(stream_of(stream)); }
struct Event { std::chrono::steady_clock::time_point at; };
DRIVER(cuEventCreate, void** event, unsigned) { *event = new Event{}; return SUCCESS; }
DRIVER(cuEventDestroy_v2, void* event) { delete (Event*)event; return SUCCESS; }
DRIVER(cuEventRecord, void* event, void* stream) {
    return give(stream, [=] { ((Event*)event)->at = std::chrono::steady_clock::now(); return (int)SUCCESS; });
}
DRIVER(cuEventSynchronize, void*) { return SUCCESS; }
DRIVER(cuEventQuery, void*) { return SUCCESS; }
DRIVER(cuEventElapsedTime, float* milliseconds, void* begun, void* ended) {
    *milliseconds = std::chrono::duration<float, std::milli>(((Event*)ended)->at - ((Event*)begun)->at).count();
    return SUCCESS;
}

// ---- recorded work -------------------------------------------------------------------------------------------------------------
DRIVER(cuStreamBeginCapture_v2, void* stream, int) {
    if (const int error = not_recorded(stream, "a second recording")) return error;
    stream_of(stream).recorded = std::make_unique<Graph>();
    return SUCCESS;
}
DRIVER(cuStreamIsCapturing, void* stream, int* status) { *status = stream_of(stream).recorded ? 1 : 0; return SUCCESS; }
DRIVER(cuStreamEndCapture, void* stream, void** graph) {
    Stream& of = stream_of(stream);
    if (!of.recorded) return failed(INVALID_VALUE, "the end of a recording that was not begun");
    *graph = of.recorded.release();
    return SUCCESS;
}
DRIVER(cuGraphInstantiateWithFlags, void** executable, void* graph, unsigned long long) { *executable = new Graph(*(Graph*)graph); return SUCCESS; }
DRIVER(cuGraphDestroy, void* graph) { delete (Graph*)graph; return SUCCESS; }
DRIVER(cuGraphExecDestroy, void* graph) { delete (Graph*)graph; return SUCCESS; }
DRIVER(cuGraphUpload, void*, void*) { return SUCCESS; }
DRIVER(cuGraphLaunch, void* graph, void* stream) {
    for (const Task& task : *(Graph*)graph)
        if (const int error = give(stream, task)) return error;
    return SUCCESS;
}

// ---- memory --------------------------------------------------------------------------------------------------------------------
DRIVER(cuMemGetInfo_v2, size_t* free, size_t* total) {
    *free = memory::free_bytes();
    *total = memory::total();
    return SUCCESS;
}
DRIVER(cuMemAllocAsync, uint64_t* address, size_t bytes, void* stream) {
    if (const int error = not_recorded(stream, "memory is asked for")) return error;
    if (!bytes) return denied(INVALID_VALUE, "no bytes are asked for");
    *address = memory::take(bytes);
    return *address ? (int)SUCCESS : denied(OUT_OF_MEMORY, "out of memory");
}
DRIVER(cuMemAlloc_v2, uint64_t* address, size_t bytes) { return cuMemAllocAsync(address, bytes, nullptr); }
DRIVER(cuMemFree_v2, uint64_t address) {
    switch (memory::give_back(address)) {
        case memory::Given::BACK: return SUCCESS;
        case memory::Given::UNKNOWN: return failed(INVALID_VALUE, "memory is given back that was not asked for");
        default: break;
    }
    // Whoever gives memory back in passing does not look at errors; nothing after this can be trusted.
    failed(ILLEGAL_ADDRESS, "memory around a piece of the device's memory was written");
    abort();
}
// Work that has been recorded may still name it, and is then told by name.
DRIVER(cuMemFreeAsync, uint64_t address, void*) { return cuMemFree_v2(address); }

DRIVER(cuMemcpyHtoDAsync_v2, uint64_t to, const void* from, size_t bytes, void* stream) {
    if (const int error = not_recorded(stream, "a copy from the host")) return error;
    if (!device_has(to, bytes, "a copy to")) return INVALID_VALUE;
    return give(stream, [=] { memcpy((void*)to, from, bytes); return (int)SUCCESS; });
}
DRIVER(cuMemcpyDtoHAsync_v2, void* to, uint64_t from, size_t bytes, void* stream) {
    if (const int error = not_recorded(stream, "a copy to the host")) return error;
    if (!device_has(from, bytes, "a copy")) return INVALID_VALUE;
    return give(stream, [=] { memcpy(to, (const void*)from, bytes); return (int)SUCCESS; });
}
DRIVER(cuMemcpyDtoDAsync_v2, uint64_t to, uint64_t from, size_t bytes, void* stream) {
    if (!device_has(from, bytes, "a copy") || !device_has(to, bytes, "a copy to")) return INVALID_VALUE;
    return give(stream, [=] {
        if (!device_has(from, bytes, "a recorded copy") || !device_has(to, bytes, "a recorded copy to")) return (int)ILLEGAL_ADDRESS;
        if (from < to + bytes && to < from + bytes) return failed(INVALID_VALUE, "a copy onto part of itself");
        memcpy((void*)to, (const void*)from, bytes);
        return (int)SUCCESS;
    });
}
DRIVER(cuMemsetD8Async, uint64_t at, unsigned char byte, size_t bytes, void* stream) {
    if (!device_has(at, bytes, "a filling")) return INVALID_VALUE;
    return give(stream, [=] {
        if (!device_has(at, bytes, "a recorded filling")) return (int)ILLEGAL_ADDRESS;
        memset((void*)at, byte, bytes);
        return (int)SUCCESS;
    });
}

// ---- kernels -------------------------------------------------------------------------------------------------------------------
DRIVER(cuModuleLoadData, void** module, const void* image) {
    const char* text = (const char*)image;
    *module = new Module{fingerprint(text), entries_of(text)};
    return SUCCESS;
}
DRIVER(cuModuleUnload, void* module) { delete (Module*)module; return SUCCESS; }
DRIVER(cuModuleGetFunction, void** function, void* module, const char* name) {
    const Module& of = *(Module*)module;
    const auto entry = of.entries.find(name);
    const auto kernel = kernels().find(name);
    if (entry == of.entries.end() || kernel == kernels().end()) return failed(NOT_FOUND, std::string("no kernel `") + name + "`");
    if (kernel->second.ptx != of.fingerprint || !agree(entry->second, kernel->second))
        return failed(INVALID_IMAGE, std::string("kernel `") + name + "` is not of the PTX that the program carries; build the stand-in again");
    *function = new Function{&kernel->second, entry->second.most_threads};   // as long as the program, like a module's
    return SUCCESS;
}
DRIVER(cuFuncGetParamInfo, void* function, size_t index, size_t* offset, size_t* size) {
    const auto& parameters = ((Function*)function)->kernel->parameters;
    if (index >= parameters.size()) return denied(INVALID_VALUE, "there are no more parameters");
    *offset = parameters[index].offset;
    *size = parameters[index].size;
    return SUCCESS;
}
DRIVER(cuFuncSetAttribute, void* function, int which, int value) {
    constexpr int DYNAMIC_SHARED = 8;
    if (which != DYNAMIC_SHARED || value < 0 || (size_t)value > MOST_SHARED) return failed(INVALID_VALUE, "a kernel wants " + std::to_string(value) + " bytes of shared memory");
    ((Function*)function)->shared = value;
    return SUCCESS;
}
DRIVER(cuLaunchKernel, void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned tx, unsigned ty, unsigned tz, unsigned shared, void* stream, void** arguments, void**) {
    const Function& function = *(Function*)handle;
    const Kernel& kernel = *function.kernel;
    const uint64_t threads = (uint64_t)tx * ty * tz;
    if (!gx || !gy || !gz || !threads || gx > 2147483647u || gy > 65535 || gz > 65535 || tz > 64 || shared > function.shared)
        return failed(INVALID_VALUE, std::string("kernel `") + kernel.name + "` cannot be launched like this");
    if (threads > function.most_threads)
        return failed(OUT_OF_RESOURCES, std::string("kernel `") + kernel.name + "` is launched with " + std::to_string(threads) + " threads a block, more than its " + std::to_string(function.most_threads));
    std::string packed(kernel.bytes, '\0');
    for (size_t i = 0; i < kernel.parameters.size(); i++) memcpy(&packed[kernel.parameters[i].offset], arguments[i], kernel.parameters[i].size);
    return give(stream, [=, &kernel] {
        alignas(16) char of[4096];
        memcpy(of, packed.data(), packed.size());
        std::string why;
        const bool fine = run({kernel.name, kernel.run, of, {gx, gy, gz}, {tx, ty, tz}, shared}, why);
        return fine ? (int)SUCCESS : failed(ILLEGAL_ADDRESS, why);
    });
}

// ---- errors ----------------------------------------------------------------------------------------------------------------------
DRIVER(cuGetErrorName, int error, const char** name) {
    static const std::map<int, const char*> names = {
        {SUCCESS, "CUDA_SUCCESS"}, {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}, {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
    };
    const auto found = names.find(error);
    if (found == names.end()) return INVALID_VALUE;
    *name = found->second;
    return SUCCESS;
}
DRIVER(cuGetErrorString, int error, const char** text) {
    if (error && !said.empty()) {
        *text = said.c_str();
        return SUCCESS;
    }
    return cuGetErrorName(error, text);
}
