// Threads of a block as fibers of one CPU thread. They run one at a time, each until it waits or returns; a fiber whose thread has returned takes the next one, so
// that kernels without barriers are a loop.
#include "block.h"

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"

#ifndef __x86_64__
#error "fibers are switched by hand, for x86-64 alone"
#endif

// Leaves what the calling convention keeps on the stack, and goes on with another stack.
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulator_switch, .-emulator_switch
)");

namespace emulator {
thread_local Here here;

namespace {
constexpr size_t STACK = 128 * 1024, PAGE = 4096;
constexpr int MOST_THREADS = 1024;
// Static shared memory and the room between what is declared, and dynamic shared memory at the end, in front of memory that must not be touched.
constexpr size_t STATIC = 256 * 1024, DYNAMIC = 256 * 1024, GAP = 64;
constexpr unsigned char CANARY = 0xA5, UNWRITTEN = 0xff;

struct Fiber {
    void* pointer = nullptr;
    char* stack = nullptr;
    void (*begin)();

    explicit Fiber(void (*begin)()) : begin(begin) {
        stack = (char*)mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stack == MAP_FAILED || mprotect(stack, PAGE, PROT_NONE)) {
            fputs("stand-in: no memory for a thread's stack\n", stderr);
            abort();
        }
        reset();
    }
    ~Fiber() { munmap(stack, STACK + PAGE); }
    Fiber(const Fiber&) = delete;
    // From the beginning. What is called finds the stack as after a call: 8 bytes beside a multiple of 16.
    void reset() {
        void** top = (void**)(stack + PAGE + STACK) - 1;
        *--top = (void*)begin;
        pointer = top - 6;
        memset(pointer, 0, 6 * sizeof(void*));
    }
};

struct Copy { unsigned to; const void* source; int bytes; int group; };

struct Thread {
    Fiber* fiber = nullptr;
    int group = 0;   // of its next copies
    std::vector<Copy> copies;
};
struct Warp {
    unsigned alive = 0, arrived = 0;
    void (*together)(void* const*, unsigned) = nullptr;
    void* of[32];
};
struct Placed { uint64_t block; char* at; };

// A CPU thread at work on a launch.
struct Worker {
    const Work* work = nullptr;
    bool busy = false;
    int count = 0;   // of the block's threads
    Thread threads[MOST_THREADS];
    Warp warps[MOST_THREADS / 32];
    uint3 index[MOST_THREADS];
    int turn[MOST_THREADS];   // the order in which they run
    std::vector<int> ready;   // the next one last
    int current = 0, alive = 0;

    int waiting = 0, votes = 0, voted = 0;
    bool waits[MOST_THREADS];
    Vote vote = Vote::NONE;

    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Fiber*> idle;
    void* host = nullptr;
    sigjmp_buf out;
    std::string why;
    bool given_up = false;

    char* arena = nullptr;
    char* dynamic = nullptr;
    size_t used = 0;   // of the static part
    uint64_t blocks = 0;
    std::vector<Placed> placed;
    std::vector<std::pair<char*, size_t>> gaps;

    Worker() {
        arena = (char*)mmap(nullptr, STATIC + DYNAMIC + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (arena == MAP_FAILED || mprotect(arena + STATIC + DYNAMIC, PAGE, PROT_NONE)) {
            fputs("stand-in: no memory for shared memory\n", stderr);
            abort();
        }
    }
    ~Worker() { munmap(arena, STATIC + DYNAMIC + PAGE); }

    Fiber* take_fiber();
    void next(bool returned);
    void returned();
    void release();
    void complete(Warp& warp, int first, int except);
    void run_block();
    void check_shared();
    void abandon();
};

Worker& worker() {
    thread_local std::unique_ptr<Worker> mine = std::make_unique<Worker>();
    return *mine;
}
thread_local Worker* at_work __attribute__((tls_model("initial-exec"))) = nullptr;

// What fibers do.
void threads_one_by_one() {
    Worker& w = *at_work;
    for (;;) {
        w.work->run(w.work->arguments);
        w.returned();
        w.next(true);
    }
}

Fiber* Worker::take_fiber() {
    if (idle.empty()) {
        fibers.push_back(std::make_unique<Fiber>(threads_one_by_one));
        idle.push_back(fibers.back().get());
    }
    Fiber* fiber = idle.back();
    idle.pop_back();
    return fiber;
}

// The current thread waits, or has returned: whoever is ready next runs.
void Worker::next(bool returned) {
    Fiber* mine = threads[current].fiber;
    if (ready.empty()) {
        if (alive) {
            why = "threads wait for each other: " + std::to_string(waiting) + " of " + std::to_string(alive) + " at a barrier of the block, the others for their warps";
            given_up = true;
        } else idle.push_back(mine);
        emulator_switch(&mine->pointer, host);
        return;
    }
    current = ready.back();
    ready.pop_back();
    here.thread = index[current];
    Thread& thread = threads[current];
    if (!thread.fiber) {
        if (returned) {
            thread.fiber = mine;
            return;
        }
        thread.fiber = take_fiber();
    } else if (returned) idle.push_back(mine);
    if (thread.fiber != mine) emulator_switch(&mine->pointer, thread.fiber->pointer);
}

void Worker::returned() {
    alive--;
    Warp& warp = warps[current / 32];
    warp.alive &= ~(1u << current % 32);
    if (warp.arrived && warp.arrived == warp.alive) complete(warp, current / 32 * 32, -1);
    if (waiting && waiting == alive) release();
}

// All threads at the barrier go on, but for the one that runs.
void Worker::release() {
    voted = votes;
    for (int t = count - 1; t >= 0; t--)
        if (waits[turn[t]]) {
            waits[turn[t]] = false;
            ready.push_back(turn[t]);
        }
    waiting = votes = 0;
}

void Worker::complete(Warp& warp, int first, int except) {
    warp.together(warp.of, warp.arrived);
    const unsigned lanes = warp.arrived;
    warp.arrived = 0;
    const bool backwards = order().reverse;
    for (int l = 31; l >= 0; l--) {
        const int lane = backwards ? 31 - l : l;
        if (lanes >> lane & 1 && first + lane != except) ready.push_back(first + lane);
    }
}

void Worker::run_block() {
    blocks++;
    used = 0;
    gaps.clear();
    alive = count;
    waiting = votes = 0;
    ready.clear();
    for (int t = count - 1; t >= 0; t--) ready.push_back(turn[t]);
    for (int t = 0; t < count; t++) {
        threads[t].fiber = nullptr;
        threads[t].group = 0;
        threads[t].copies.clear();
        waits[t] = false;
    }
    for (int first = 0; first < count; first += 32) {
        const int lanes = count - first < 32 ? count - first : 32;
        warps[first / 32].alive = lanes == 32 ? ~0u : (1u << lanes) - 1;
        warps[first / 32].arrived = 0;
    }
    if (work->shared) memset(dynamic, UNWRITTEN, work->shared);
    current = ready.back();
    ready.pop_back();
    here.thread = index[current];
    threads[current].fiber = take_fiber();
    emulator_switch(&host, threads[current].fiber->pointer);
    check_shared();
}

// Nothing between what is declared, in front of dynamic shared memory and between its end and that of the page has been written.
void Worker::check_shared() {
    if (given_up) return;
    for (auto [at, bytes] : gaps)
        for (size_t i = 0; i < bytes; i++)
            if ((unsigned char)at[i] != CANARY) {
                why = "a write outside of what is declared in shared memory";
                given_up = true;
                return;
            }
    char* end = dynamic + work->shared;
    for (char* at = dynamic - GAP; at < arena + STATIC + DYNAMIC; at++) {
        if (at == dynamic) at = end;
        if (at >= arena + STATIC + DYNAMIC) break;
        if ((unsigned char)*at != CANARY) {
            why = "a write outside of dynamic shared memory";
            given_up = true;
            return;
        }
    }
}

// No thread of the block goes on.
void Worker::abandon() {
    idle.clear();
    for (auto& fiber : fibers) {
        fiber->reset();
        idle.push_back(fiber.get());
    }
}

// A number that looks random, from one to the next.
uint64_t scrambled(uint64_t v) {
    v += 0x9e3779b97f4a7c15ull;
    v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ v >> 27) * 0x94d049bb133111ebull;
    return v ^ v >> 31;
}

template <class T> void arrange(std::vector<T>& all, const Order& order) {
    if (order.reverse) std::reverse(all.begin(), all.end());
    if (order.natural || order.reverse) return;
    uint64_t random = order.seed;
    for (size_t i = all.size(); i > 1; i--) {
        random = scrambled(random);
        std::swap(all[i - 1], all[random % i]);
    }
}

// Whole warps in an order, and lanes forwards or backwards.
void arrange_threads(Worker& w) {
    std::vector<int> warps;
    for (int first = 0; first < w.count; first += 32) warps.push_back(first);
    arrange(warps, order());
    int at = 0;
    for (int first : warps) {
        const int lanes = w.count - first < 32 ? w.count - first : 32;
        for (int l = 0; l < lanes; l++) w.turn[at++] = first + (order().reverse ? lanes - 1 - l : l);
    }
}

std::string place_of(const Here& h) {
    auto three = [](uint3 v) { return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")"; };
    return "thread " + three(h.thread) + " of block " + three(h.block) + ", of " + three(h.blocks) + " blocks of " + three(h.threads);
}

struct sigaction before[32];
constexpr int CAUGHT[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};

void on_signal(int number, siginfo_t* info, void* context) {
    Worker* w = at_work;
    if (!w || !w->busy) {
        // Not ours.
        const struct sigaction& old = before[number];
        if (old.sa_flags & SA_SIGINFO) return old.sa_sigaction(number, info, context);
        sigaction(number, &old, nullptr);
        return;
    }
    siglongjmp(w->out, number);
}
std::string told(int number, const void* address) {
    switch (number) {
        case SIGILL: return "an access that is not aligned, or beyond an array";
        case SIGFPE: return "an integer divided by zero";
        default: return "an access to memory that is not there" + memory::told(address);
    }
}
thread_local const void* touched = nullptr;
void on_signal_noting(int number, siginfo_t* info, void* context) {
    touched = info->si_addr;
    on_signal(number, info, context);
}
}

const Order& order() {
    static const Order chosen = [] {
        const char* text = getenv("EMULATOR_ORDER");
        const std::string wanted = text ? text : "";
        Order order{wanted.empty() || wanted == "natural", wanted == "reverse", false, 0};
        if (!order.natural && !order.reverse) {
            char* end = nullptr;
            order.seed = strtoull(wanted.c_str(), &end, 10);
            if (*end) {
                fprintf(stderr, "error: `EMULATOR_ORDER` is `%s`\nhint: give `natural`, `reverse` or a number\n", text);
                exit(2);
            }
        }
        order.early_copies = !order.natural;
        return order;
    }();
    return chosen;
}

void catch_signals() {
    static const bool once = [] {
        for (int number : CAUGHT) {
            struct sigaction action = {};
            action.sa_sigaction = on_signal_noting;
            action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
            sigaction(number, &action, &before[number]);
        }
        return true;
    }();
    (void)once;
}

// The handler must not run on the stack of a fiber.
static void ensure_signal_stack() {
    thread_local bool done = false;
    if (done) return;
    stack_t now;
    if (sigaltstack(nullptr, &now) == 0 && now.ss_flags & SS_DISABLE) {
        const size_t size = 64 * 1024;
        stack_t mine = {};
        mine.ss_sp = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mine.ss_size = size;
        sigaltstack(&mine, nullptr);
    }
    done = true;
}

bool run(const Work& work, std::string& why) {
    Worker& w = worker();
    ensure_signal_stack();
    at_work = &w;
    w.work = &work;
    w.given_up = false;
    w.count = (int)(work.threads.x * work.threads.y * work.threads.z);
    for (int t = 0; t < w.count; t++) w.index[t] = {t % work.threads.x, t / work.threads.x % work.threads.y, t / work.threads.x / work.threads.y};
    arrange_threads(w);
    here = {{}, {}, {work.threads.x, work.threads.y, work.threads.z}, {work.grid.x, work.grid.y, work.grid.z}};
    // As near to the end as an alignment of 1024 bytes allows.
    char* end = w.arena + STATIC + DYNAMIC;
    w.dynamic = end - (work.shared + 1023) / 1024 * 1024;
    memset(w.dynamic - GAP, CANARY, GAP);
    memset(w.dynamic + work.shared, CANARY, end - w.dynamic - work.shared);

    const uint64_t blocks = (uint64_t)work.grid.x * work.grid.y * work.grid.z;
    static thread_local std::vector<uint64_t> arranged;
    arranged.clear();
    if (!order().natural) {
        for (uint64_t b = 0; b < blocks; b++) arranged.push_back(b);
        arrange(arranged, order());
    }
    touched = nullptr;
    const int number = sigsetjmp(w.out, 0);
    if (number == 0) {
        w.busy = true;
        for (uint64_t i = 0; i < blocks && !w.given_up; i++) {
            const uint64_t b = arranged.empty() ? i : arranged[i];
            here.block = {(unsigned)(b % work.grid.x), (unsigned)(b / work.grid.x % work.grid.y), (unsigned)(b / work.grid.x / work.grid.y)};
            w.run_block();
        }
    } else {
        w.why = told(number, touched);
        w.given_up = true;
    }
    w.busy = false;
    at_work = nullptr;
    if (!w.given_up) return true;
    w.abandon();
    why = std::string("kernel `") + work.name + "`, " + place_of(here) + ": " + w.why;
    return false;
}

void fail(const std::string& why) {
    Worker& w = *at_work;
    w.why = why;
    w.given_up = true;
    void* nowhere;
    emulator_switch(&nowhere, w.host);
    abort();
}

int barrier(Vote kind, int vote) {
    Worker& w = *at_work;
    if (w.waiting && w.vote != kind) fail("threads of a block wait at different kinds of barriers");
    w.vote = kind;
    w.votes |= vote;
    w.waiting++;
    if (w.waiting == w.alive) {
        w.release();
        return w.voted;
    }
    w.waits[w.current] = true;
    w.next(false);
    return w.voted;
}

void meet(void* mine, void (*together)(void* const*, unsigned)) {
    Worker& w = *at_work;
    Warp& warp = w.warps[w.current / 32];
    const int lane = w.current % 32;
    if (warp.arrived && warp.together != together) fail("lanes of a warp wait at different operations");
    warp.together = together;
    warp.of[lane] = mine;
    warp.arrived |= 1u << lane;
    if (warp.arrived == warp.alive) w.complete(warp, w.current - lane, w.current);
    else w.next(false);
}

void* place(Slot& slot, size_t bytes, size_t align) {
    static std::atomic<int> slots{0};
    Worker& w = *at_work;
    int number = slot.number.load(std::memory_order_relaxed);
    if (!number) {
        int none = 0;
        number = ++slots;
        if (!slot.number.compare_exchange_strong(none, number)) number = none;
    }
    if ((size_t)number >= w.placed.size()) w.placed.resize(number + 1);
    Placed& placed = w.placed[number];
    if (placed.block != w.blocks) {
        const size_t first = (w.used + GAP + align - 1) / align * align;
        if (first + bytes + GAP > STATIC) fail("more shared memory is declared than there is");
        memset(w.arena + w.used, CANARY, first - w.used);
        memset(w.arena + first, UNWRITTEN, bytes);
        memset(w.arena + first + bytes, CANARY, GAP);
        w.gaps.push_back({w.arena + w.used, first - w.used});
        w.gaps.push_back({w.arena + first + bytes, GAP});
        w.used = first + bytes;
        placed = {w.blocks, w.arena + first};
    }
    return placed.at;
}

void* dynamic_shared() { return at_work->dynamic; }

unsigned shared_address(const void* p) {
    const ptrdiff_t at = (const char*)p - at_work->arena;
    if (at < 0 || at > (ptrdiff_t)(STATIC + DYNAMIC)) fail("an address that is not in shared memory is used as one that is");
    return (unsigned)at;
}

void* at_shared(unsigned address, size_t bytes) {
    if (address + bytes > STATIC + DYNAMIC) fail("an access beyond the end of shared memory");
    if (address % bytes) fail("an access to shared memory that is not aligned");
    return at_work->arena + address;
}

static void arrive(const Copy& copy) {
    char* to = (char*)at_shared(copy.to, 16);
    if (copy.bytes) memcpy(to, copy.source, copy.bytes);
    memset(to + copy.bytes, 0, 16 - copy.bytes);
}

void copy_async(unsigned to, const void* source, int bytes) {
    Thread& thread = at_work->threads[at_work->current];
    if ((uintptr_t)source % 16) fail("an asynchronous copy from where is not aligned");
    const Copy copy{to, source, bytes, thread.group};
    if (order().early_copies) arrive(copy);
    else thread.copies.push_back(copy);
}

void commit_copies() { at_work->threads[at_work->current].group++; }

void wait_copies(int groups) {
    Thread& thread = at_work->threads[at_work->current];
    size_t done = 0;
    while (done < thread.copies.size() && thread.copies[done].group < thread.group - groups) arrive(thread.copies[done++]);
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + done);
}
}
