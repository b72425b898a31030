// Runs kernels that include shim.h: reads a program and its buffers, writes the buffers it is asked for.
//
//     shim PROGRAM RESULTS
//
// Both are sequences of 64-bit words, as `shim.rs` beside this writes and reads them. Where SHIM_BLOCKS is Descending, the
// blocks of a launch run in that order, one after the other; one of them may wait for what others leave, and goes on after them.
// SHIM_SEED chooses the order of threads.
#include "shim.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace shim {
float *shared;
dim3 thread, block, block_size, grid_size;

[[noreturn]] void fail(const char *what) {
    std::fprintf(stderr, "shim: %s\n", what);
    std::exit(1);
}

static std::map<std::string, void (*)(Cells)> &entries() {
    static std::map<std::string, void (*)(Cells)> all;
    return all;
}
void enter(const char *name, void (*call)(Cells)) { entries()[name] = call; }

using Place = std::pair<void *, uint64_t>;
static std::map<std::string, Place> &variables() {
    static std::map<std::string, Place> all;
    return all;
}
void enter_variable(const char *name, void *address, uint64_t bytes) { variables()[name] = {address, bytes}; }

constexpr size_t STACK_BYTES = 256 << 10;
constexpr int MOST_THREADS = 1024, BARRIERS = 16, WARPS = MOST_THREADS / 32;

struct Copy {
    void *to;
    const void *from;
    int bytes, zeros;
};

// A stack, and what is needed to go on with it.
struct Fiber {
    char *stack = nullptr;
#if defined(__x86_64__)
    void *place = nullptr;
#else
    ucontext_t place;
#endif
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
    std::vector<Product> open_products;
    std::deque<std::vector<Product>> product_groups;
    unsigned collectives = 0;
    // It waits for what another block leaves, or another thread of its own.
    bool looks_again = false;
};

struct Barrier {
    std::vector<int> waiting;
    // Threads that arrived and did not wait.
    int passed = 0;
};
// A barrier in shared memory: arrivals and bytes that its phase still waits for.
struct Arrivals {
    int count = 0, missing = 0, missing_bytes = 0;
    unsigned parity = 0;
    std::vector<Copy> copies;
    std::vector<int> waiting;
};
struct Warp {
    uint64_t cells[2][32];
    Barrier barrier;
};

// The state of a generator of random numbers (xorshift, Marsaglia 2003).
static uint32_t random_state = 1;

static uint32_t random_below(size_t count) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % count;
}

// Threads that may go on, by warps.
struct Ready {
    std::vector<int> of_warp[WARPS], warps;

    void clear() {
        for (std::vector<int> &threads : of_warp) threads.clear();
        warps.clear();
    }
    void add(int thread) {
        if (of_warp[thread / 32].empty()) warps.push_back(thread / 32);
        of_warp[thread / 32].push_back(thread);
    }
    // Any thread, of that warp if it has one.
    int take(int warp) {
        if (warp < 0 || of_warp[warp].empty()) warp = warps[random_below(warps.size())];
        std::vector<int> &threads = of_warp[warp];
        std::swap(threads[random_below(threads.size())], threads.back());
        const int thread = threads.back();
        threads.pop_back();
        if (threads.empty()) warps.erase(std::find(warps.begin(), warps.end(), warp));
        return thread;
    }
};

// A block that has begun.
struct Running {
    Fiber fibers[MOST_THREADS];
    Barrier barriers[BARRIERS];
    std::map<const void *, Arrivals> arrivals;
    Warp warps[WARPS];
    Ready ready;
    int current, alive;
    dim3 block;
    float *shared;
};

// The block that runs, and one that goes on when all others of its launch are done.
static Running blocks[2], *running = &blocks[0], *put_off = nullptr;
static Fiber host;
static int threads;
static void (*kernel)(Cells);
static Cells arguments;

#if defined(__x86_64__)
__attribute__((naked, noinline)) static void change(void **, void *) {
    asm volatile(
        "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}
static void change(Fiber &from, Fiber &to) { change(&from.place, to.place); }
#else
static void change(Fiber &from, Fiber &to) { swapcontext(&from.place, &to.place); }
#endif

static void go_to(int next) {
    running->current = next;
    thread = {next % block_size.x, next / block_size.x % block_size.y, next / (block_size.x * block_size.y)};
}

// Leaves the current fiber for one that is ready: of a warp, so that it gets as far ahead of others as it can.
static void leave(int warp) {
    if (running->ready.warps.empty()) fail("all threads wait: a barrier that some do not reach");
    Fiber &from = running->fibers[running->current];
    const int next = running->ready.take(warp);
    if (next == running->current) return;
    go_to(next);
    change(from, running->fibers[next]);
}

// True if that was the last thread that the barrier waited for: the others may go on.
static bool ends(Barrier &barrier, int count) {
    if ((int)barrier.waiting.size() + barrier.passed + 1 < count) return false;
    for (int waiting : barrier.waiting) running->ready.add(waiting);
    barrier.waiting.clear();
    barrier.passed = 0;
    return true;
}

static void arrive(Barrier &barrier, int count) {
    if (ends(barrier, count)) return;
    barrier.waiting.push_back(running->current);
    leave(running->current / 32);
}

void wait(int barrier, int count) { arrive(running->barriers[barrier], count); }
void pass(int barrier, int count) {
    if (!ends(running->barriers[barrier], count)) running->barriers[barrier].passed++;
}

int lane() { return running->current % 32; }

const uint64_t *exchange(uint64_t mine) {
    Warp &warp = running->warps[running->current / 32];
    uint64_t *cells = warp.cells[running->fibers[running->current].collectives++ % 2];
    const int first = running->current / 32 * 32, lanes = threads - first < 32 ? threads - first : 32;
    cells[running->current % 32] = mine;
    arrive(warp.barrier, lanes);
    return cells;
}

void copy_later(void *to, const void *from, int bytes, int zeros) {
    if ((uintptr_t)to % (bytes + zeros) != 0 || (uintptr_t)from % (bytes + zeros) != 0)
        fail("a copy that is not aligned");
    running->fibers[running->current].open.push_back({to, from, bytes, zeros});
}
void commit() {
    Fiber &fiber = running->fibers[running->current];
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
}
static void run(const Copy &copy) {
    // By hand, so that a sanitizer sees each access.
    for (int i = 0; i < copy.bytes; i++) ((volatile char *)copy.to)[i] = ((const char *)copy.from)[i];
    for (int i = 0; i < copy.zeros; i++) ((volatile char *)copy.to)[copy.bytes + i] = 0;
}
void wait_copies(int groups) {
    Fiber &fiber = running->fibers[running->current];
    while ((int)fiber.groups.size() > groups) {
        for (const Copy &copy : fiber.groups.front()) run(copy);
        fiber.groups.pop_front();
    }
}

static Arrivals &arrivals_at(const void *barrier) {
    const auto found = running->arrivals.find(barrier);
    if (found == running->arrivals.end()) fail("a barrier that was not initialized");
    return found->second;
}
void arrivals_init(void *barrier, int count) {
    Arrivals &own = running->arrivals[barrier];
    own.count = own.missing = count;
}
// Ends the phase if nothing is missing.
static bool end_phase(Arrivals &own) {
    if (own.missing > 0 || own.missing_bytes > 0) return false;
    for (const Copy &copy : own.copies) run(copy);
    for (int waiting : own.waiting) running->ready.add(waiting);
    own.copies.clear();
    own.waiting.clear();
    own.missing = own.count;
    own.parity ^= 1;
    return true;
}
void arrive(void *barrier, int bytes) {
    Arrivals &own = arrivals_at(barrier);
    // A phase that nobody has waited for yet.
    end_phase(own);
    own.missing_bytes += bytes;
    own.missing--;
    if (!own.waiting.empty()) end_phase(own);
}
void copy_bulk(void *barrier, void *to, const void *from, int bytes) {
    if ((uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0 || bytes % 16 != 0) fail("a bulk copy that is not aligned");
    Arrivals &own = arrivals_at(barrier);
    own.missing_bytes -= bytes;
    own.copies.push_back({to, from, bytes, 0});
    if (!own.waiting.empty()) end_phase(own);
}
void wait_arrivals(void *barrier, unsigned parity) {
    Arrivals &own = arrivals_at(barrier);
    if (own.parity != parity || end_phase(own)) return;
    own.waiting.push_back(running->current);
    leave(running->current / 32);
}

void multiply_later(const Product &product) {
    running->fibers[running->current].open_products.push_back(product);
}
void commit_products() {
    Fiber &fiber = running->fibers[running->current];
    fiber.product_groups.push_back(std::move(fiber.open_products));
    fiber.open_products.clear();
}
void wait_products(int groups) {
    Fiber &fiber = running->fibers[running->current];
    while ((int)fiber.product_groups.size() > groups) {
        for (const Product &product : fiber.product_groups.front()) product.run(product);
        fiber.product_groups.pop_front();
    }
}

static void body() {
    kernel(arguments);
    running->alive--;
    if (running->alive == 0) {
        change(running->fibers[running->current], host);
    } else {
        leave(running->current / 32);
    }
    std::abort();
}

static void prepare(Fiber &fiber) {
    if (fiber.stack == nullptr) {
        void *memory = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) fail("no memory for stacks");
        fiber.stack = (char *)memory;
    }
#ifdef __SANITIZE_ADDRESS__
    // The frames of the block before were never left.
    __asan_unpoison_memory_region(fiber.stack, STACK_BYTES);
#endif
    fiber.open.clear();
    fiber.groups.clear();
    fiber.open_products.clear();
    fiber.product_groups.clear();
    fiber.collectives = 0;
    fiber.looks_again = false;
#if defined(__x86_64__)
    void **top = (void **)(fiber.stack + STACK_BYTES - 64);
    *--top = nullptr;
    *--top = (void *)body;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.place = top;
#else
    getcontext(&fiber.place);
    fiber.place.uc_stack.ss_sp = fiber.stack;
    fiber.place.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber.place, body, 0);
#endif
}

// Whether a thread of the block may do something else than to look again.
static bool others_go_on() {
    for (int warp : running->ready.warps)
        for (int other : running->ready.of_warp[warp])
            if (!running->fibers[other].looks_again) return true;
    return false;
}

void wait_for_others() {
    Fiber &own = running->fibers[running->current];
    if (others_go_on()) {
        // What it waits for may be of its own block.
        own.looks_again = true;
        running->ready.add(running->current);
        leave(-1);
        own.looks_again = false;
        return;
    }
    if (put_off != nullptr) fail("a block waits for one that has not run");
    put_off = running;
    put_off->block = block;
    put_off->shared = shared;
    change(running->fibers[running->current], host);
}

bool is_early() { return random_below(2) == 0; }

// Has the block's threads go on from this one.
static void go_on(int from) {
    go_to(from);
    change(host, running->fibers[from]);
}

static void end_block() {
    std::free(shared);
    for (Barrier &barrier : running->barriers)
        if (!barrier.waiting.empty()) fail("threads wait at a barrier when the block is done");
    running->arrivals.clear();
}

static void run_block(size_t shared_bytes) {
    // Exactly as much as was asked for: a sanitizer finds what is beyond. Aligned to a swizzle of tiles.
    void *memory = nullptr;
    if (posix_memalign(&memory, 1024, shared_bytes) != 0) fail("no shared memory");
    shared = (float *)memory;
    if (shared_bytes > 0) std::memset(shared, 0xff, shared_bytes);
    running->ready.clear();
    for (int i = 0; i < threads; i++) {
        prepare(running->fibers[i]);
        if (i > 0) running->ready.add(i);
    }
    running->alive = threads;
    go_on(0);
    if (put_off != running) return end_block();
    running = running == &blocks[0] ? &blocks[1] : &blocks[0];
}

// Ends the block that waits for all others.
static void run_put_off() {
    running = put_off;
    block = running->block;
    shared = running->shared;
    go_on(running->current);
    end_block();
    put_off = nullptr;
}

struct Input {
    std::FILE *file;

    uint64_t word() {
        uint64_t value;
        bytes(&value, sizeof value);
        return value;
    }
    void bytes(void *to, size_t count) {
        if (count > 0 && std::fread(to, 1, count, file) != count) fail("the program ends early");
    }
};

struct Buffer {
    char *memory;
    uint64_t bytes, is_result;
};

static char *view(const std::vector<Buffer> &buffers, Input &in) {
    const uint64_t buffer = in.word();
    return buffers[buffer].memory + in.word();
}

static void launch(const std::vector<Buffer> &buffers, Input &in) {
    std::string name(in.word(), ' ');
    in.bytes(&name[0], name.size());
    uint64_t sizes[7];
    for (uint64_t &size : sizes) size = in.word();
    std::vector<uint64_t> cells(in.word());
    for (uint64_t &cell : cells) cell = in.word() == 0 ? in.word() : (uint64_t)view(buffers, in);
    const auto entry = entries().find(name);
    if (entry == entries().end()) fail("no such kernel");
    kernel = entry->second;
    arguments = cells.data();
    grid_size = {(unsigned)sizes[0], (unsigned)sizes[1], (unsigned)sizes[2]};
    block_size = {(unsigned)sizes[3], (unsigned)sizes[4], (unsigned)sizes[5]};
    threads = (int)(sizes[3] * sizes[4] * sizes[5]);
    if (threads > MOST_THREADS || sizes[6] > 227 << 10) fail("no device has such large blocks");
    const char *order = std::getenv("SHIM_BLOCKS");
    const bool descends = order != nullptr && std::strcmp(order, "Descending") == 0;
    const uint64_t count = sizes[0] * sizes[1] * sizes[2];
    for (uint64_t turn = 0; turn < count; turn++) {
        const uint64_t at = descends ? count - 1 - turn : turn;
        block = {(unsigned)(at % sizes[0]), (unsigned)(at / sizes[0] % sizes[1]), (unsigned)(at / sizes[0] / sizes[1])};
        run_block(sizes[6]);
    }
    if (put_off != nullptr) run_put_off();
}

static float activate(uint64_t activation, double x) {
    if (activation == 1) return x > 0 ? x : 0;
    if (activation == 2) return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}

// A library may leave anything in its scratch memory.
static void spoil_scratch(const std::vector<Buffer> &buffers, Input &in) {
    const uint64_t elements = in.word();
    if (elements > 0) std::memset(view(buffers, in), 0xFF, elements * sizeof(float));
}

// A factor of a product, f32 or bf16 by the bytes of its elements.
struct Factor {
    const char *elements;
    uint64_t bytes;

    double operator[](uint64_t at) const {
        uint32_t bits = 0;
        std::memcpy((char *)&bits + 4 - bytes, elements + at * bytes, bytes);
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
};

// Stores a number as f32 or, by the bytes, rounded to bf16: to the nearest, and to even.
static void store(char *to, uint64_t bytes, float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (bytes == 2) bits += 0x7fff + (bits >> 16 & 1);
    std::memcpy(to, (const char *)&bits + 4 - bytes, bytes);
}

// What a library computes, term by term: products of matrices that lie as their steps say.
static void matmul(const std::vector<Buffer> &buffers, Input &in) {
    uint64_t sizes[4], steps[9];
    for (uint64_t &size : sizes) size = in.word();
    for (uint64_t &step : steps) step = in.word();
    const uint64_t has_bias = in.word(), activation = in.word();
    const uint32_t scale_bits = (uint32_t)in.word();
    float scale;
    std::memcpy(&scale, &scale_bits, sizeof scale);
    const uint64_t bytes = in.word(), bytes_out = in.word();
    const Factor a{(const char *)view(buffers, in), bytes}, b{(const char *)view(buffers, in), bytes};
    const float *bias = has_bias ? (const float *)view(buffers, in) : nullptr;
    char *out = view(buffers, in);
    spoil_scratch(buffers, in);
    for (uint64_t batch = 0; batch < sizes[0]; batch++)
        for (uint64_t row = 0; row < sizes[1]; row++)
            for (uint64_t column = 0; column < sizes[2]; column++) {
                double sum = 0;
                for (uint64_t i = 0; i < sizes[3]; i++)
                    sum += a[batch * steps[2] + row * steps[0] + i * steps[1]] *
                           b[batch * steps[5] + i * steps[3] + column * steps[4]];
                sum = scale * sum + (bias ? bias[column] : 0);
                const uint64_t at = batch * steps[8] + row * steps[6] + column * steps[7];
                store(out + at * bytes_out, bytes_out, activate(activation, sum));
            }
}

// A convolution, or one of its gradients: each term goes where its pass says.
static void conv2d(const std::vector<Buffer> &buffers, Input &in) {
    uint64_t sizes[12];
    for (uint64_t &size : sizes) size = in.word();
    const uint64_t has_bias = in.word(), activation = in.word();
    const uint64_t pass = sizes[0], batch = sizes[1], channels = sizes[2], outs = sizes[3];
    const uint64_t height = sizes[4], width = sizes[5], rows = sizes[6], columns = sizes[7];
    const uint64_t stride = sizes[8], padding = sizes[9], high = sizes[10], wide = sizes[11];
    const float *one = (const float *)view(buffers, in), *other = (const float *)view(buffers, in);
    const float *bias = has_bias ? (const float *)view(buffers, in) : nullptr;
    float *out = (float *)view(buffers, in);
    spoil_scratch(buffers, in);
    const uint64_t counts[3] = {batch * outs * high * wide, batch * channels * height * width,
                                outs * channels * rows * columns};
    std::vector<double> sums(counts[pass]);
    for (uint64_t b = 0; b < batch; b++)
        for (uint64_t o = 0; o < outs; o++)
            for (uint64_t c = 0; c < channels; c++)
                for (uint64_t y = 0; y < high; y++)
                    for (uint64_t x = 0; x < wide; x++)
                        for (uint64_t r = 0; r < rows; r++)
                            for (uint64_t s = 0; s < columns; s++) {
                                const uint64_t i = y * stride + r - padding, j = x * stride + s - padding;
                                if (i >= height || j >= width) continue;
                                const uint64_t from = ((b * channels + c) * height + i) * width + j;
                                const uint64_t by = ((o * channels + c) * rows + r) * columns + s;
                                const uint64_t to = ((b * outs + o) * high + y) * wide + x;
                                if (pass == 0) sums[to] += (double)one[from] * other[by];
                                if (pass == 1) sums[from] += (double)one[to] * other[by];
                                if (pass == 2) sums[by] += (double)one[to] * other[from];
                            }
    for (uint64_t i = 0; i < counts[pass]; i++)
        out[i] = activate(activation, sums[i] + (bias ? bias[i / (high * wide) % outs] : 0));
}

#include "shim_attention.h"

static void step(const std::vector<Buffer> &buffers, Input &in) {
    const uint64_t kind = in.word();
    if (kind == 0) return launch(buffers, in);
    if (kind == 3) return matmul(buffers, in);
    if (kind == 4) return conv2d(buffers, in);
    if (kind == 5) return attention(buffers, in);
    char *to = view(buffers, in);
    if (kind == 1) {
        const char *from = view(buffers, in);
        std::memcpy(to, from, in.word());
        return;
    }
    const uint64_t count = in.word(), element_bytes = in.word(), value = in.word();
    for (uint64_t i = 0; i < count; i++) std::memcpy(to + i * element_bytes, &value, element_bytes);
}

// Buffers that lie one after another: a list of them, and memory for all.
static void bring_together(std::vector<Buffer> &buffers, Input &in) {
    std::vector<uint64_t> together(in.word());
    uint64_t bytes = 0;
    for (uint64_t &buffer : together) bytes += buffers[buffer = in.word()].bytes;
    char *memory = (char *)std::aligned_alloc(256, bytes);
    for (uint64_t buffer : together) {
        std::memcpy(memory, buffers[buffer].memory, buffers[buffer].bytes);
        buffers[buffer].memory = memory;
        memory += buffers[buffer].bytes;
    }
}

static int run(const char *program, const char *results) {
    Input in = {std::fopen(program, "rb")};
    if (in.file == nullptr) fail("no program");
    std::vector<Buffer> buffers(in.word());
    for (Buffer &buffer : buffers) {
        buffer.bytes = in.word();
        buffer.is_result = in.word();
        buffer.memory = (char *)std::aligned_alloc(256, (buffer.bytes + 255) / 256 * 256);
#ifdef __SANITIZE_ADDRESS__
        std::free(buffer.memory);
        buffer.memory = (char *)std::malloc(buffer.bytes);  // its end is the end of what is allowed
#endif
        std::memset(buffer.memory, 0xff, buffer.bytes);
        const uint64_t kind = in.word();
        if (kind == 1) in.bytes(buffer.memory, buffer.bytes);
        if (kind == 2) {
            std::string name(in.word(), ' ');
            in.bytes(&name[0], name.size());
            const auto found = variables().find(name);
            if (found == variables().end()) fail("no such variable");
            if (found->second.second < buffer.bytes) fail("a variable is smaller than its tensor");
            buffer.memory = (char *)found->second.first;
        }
    }
    for (uint64_t lists = in.word(); lists > 0; lists--) bring_together(buffers, in);
    for (uint64_t steps = in.word(); steps > 0; steps--) step(buffers, in);
    std::FILE *out = std::fopen(results, "wb");
    if (out == nullptr) fail("no place for results");
    for (const Buffer &buffer : buffers)
        if (buffer.is_result) std::fwrite(buffer.memory, 1, buffer.bytes, out);
    return std::fclose(out);
}
}  // namespace shim

int main(int, char **arguments) {
    // A generator stays at 0 for ever.
    if (const char *seed = std::getenv("SHIM_SEED")) shim::random_state = (uint32_t)std::strtoul(seed, nullptr, 10) | 1;
    return shim::run(arguments[1], arguments[2]);
}
