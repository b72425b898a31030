// What CUDA kernels need, on a CPU: the counterpart of kernels/program/src/headers/cuda.h.
//
// Each thread of a block is a fiber, and blocks run one after the other. Fibers change only where a
// thread waits for others; then a warp goes on as far as it can, and which one is next is random:
// what is right in one order alone shows. Copies that a kernel starts ahead of time happen when it
// waits for them and not before, and shared memory begins as NaN: what a kernel forgets to wait for
// shows.
#ifndef SWEEPER_SHIM_H
#define SWEEPER_SHIM_H

// What kernels are made of is little: the standard library's headers would take two thirds of the
// time of compiling it.
#include <stdint.h>
#include <string.h>

extern "C" {
float cosf(float) noexcept, erff(float) noexcept, exp2f(float) noexcept, expf(float) noexcept, fabsf(float) noexcept;
float log2f(float) noexcept, logf(float) noexcept, rintf(float) noexcept, sinf(float) noexcept, sqrtf(float) noexcept;
float tanhf(float) noexcept, fmaxf(float, float) noexcept, fminf(float, float) noexcept;
float fmaf(float, float, float) noexcept;
double cos(double) noexcept, erf(double) noexcept, exp(double) noexcept, fabs(double) noexcept, log(double) noexcept;
double rint(double) noexcept, sin(double) noexcept, sqrt(double) noexcept, tanh(double) noexcept;
}

#define __global__
#define __device__
#define __constant__
#define DEVICE static inline
#define DEVICE_APART static
#define METHOD inline
#ifdef SHIM_LIST
#define KERNEL(name, ...) shim_kernel name
#else
#define KERNEL(name, ...) static void name
#endif
#define SHARED(name) float *name = shim::shared
#define SHARED_ARRAY(name, count) alignas(16) static float name[count]

typedef long long int64;

struct dim3 {
    unsigned x, y, z;
};
struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

namespace shim {
extern float *shared;
extern dim3 thread, block, block_size, grid_size;

[[noreturn]] void fail(const char *what);
// A barrier that `threads` threads wait at; warps have barriers of their own.
void wait(int barrier, int threads);
// The same of a thread that does not wait.
void pass(int barrier, int threads);
// Every lane of the warp gives eight bytes and gets those of all lanes.
const uint64_t *exchange(uint64_t mine);
int lane();
// Lets other threads of the block go on; if all of them wait as well, puts the block off until all
// others of its launch are done.
void wait_for_others();
// Whether a look at memory comes before what another block has written: at random.
bool is_early();
void copy_later(void *to, const void *from, int bytes, int zeros);
void commit();
void wait_copies(int groups);

// A barrier in shared memory that bulk copies arrive at: what they copy is there when a thread has
// waited for it, and not before.
void arrivals_init(void *barrier, int count);
void arrive(void *barrier, int bytes);
void copy_bulk(void *barrier, void *to, const void *from, int bytes);
void wait_arrivals(void *barrier, unsigned parity);

// A product that a warpgroup begins: it happens when it is waited for.
struct Operand {
    const char *at;
    int leading, stride;
};
struct Product {
    void (*run)(const Product &);
    float *sums;
    Operand a, b;
    const unsigned *factors;
    bool adds;
};
void multiply_later(const Product &product);
void commit_products();
void wait_products(int groups);

using Cells = const uint64_t *;
void enter(const char *name, void (*call)(Cells));

template <class T> T cell_as(uint64_t cell) {
    T value;
    memcpy(&value, &cell, sizeof value);
    return value;
}
template <int... I> struct Numbers {};
template <int N, int... I> struct Below : Below<N - 1, N - 1, I...> {};
template <int... I> struct Below<0, I...> {
    using All = Numbers<I...>;
};
template <class... A, int... I> void call(void (*kernel)(A...), Cells cells, Numbers<I...>) {
    kernel(cell_as<A>(cells[I])...);
}
template <class... A> void call(void (*kernel)(A...), Cells cells) {
    call(kernel, cells, typename Below<sizeof...(A)>::All());
}
struct Entry {
    Entry(const char *name, void (*call)(Cells)) { enter(name, call); }
};
void enter_variable(const char *name, void *address, uint64_t bytes);
struct Variable {
    Variable(const char *name, void *address, uint64_t bytes) { enter_variable(name, address, bytes); }
};
}  // namespace shim

// A kernel by a name that no kernel of another source or of other macros has.
#define SHIM_ENTRY(name, unique) static shim::Entry entry_##name(unique, [](shim::Cells cells) { shim::call(name, cells); })

// The same for a C++ name expression of a user's source, such as `add<float, 256>`.
#define SHIM_NAMED(number, unique, ...) static shim::Entry named_##number(unique, [](shim::Cells cells) { shim::call(__VA_ARGS__, cells); })

// A variable of a user's source that a program writes, by the expression of its address.
#define SHIM_VARIABLE(number, unique, address) static shim::Variable variable_##number(unique, (void *)(address), sizeof *(address));

#define threadIdx shim::thread
#define blockIdx shim::block
#define blockDim shim::block_size
#define gridDim shim::grid_size

static inline void __syncthreads() { shim::wait(0, (int)(blockDim.x * blockDim.y * blockDim.z)); }
static inline void __syncwarp() { shim::exchange(0); }
// Blocks run one after the other: what one wrote, the next one sees. A block may wait for others,
// and goes on after them. A look at a word may come too early, even so: then it sees zeros, as all
// words begin.
static inline void store_word(unsigned long long *to, unsigned long long word) { *to = word; }
static inline unsigned long long load_word(const unsigned long long *from) {
    if (*from == 0) shim::wait_for_others();
    return shim::is_early() ? 0 : *from;
}
static inline void memory_fence() {}
static inline unsigned long long take_ticket(unsigned long long *count) { return (*count)++; }
static inline float load_past_l1(const float *from) { return *from; }
static inline float4 load_float4_past_l1(const float *from) { return *(const float4 *)from; }
static inline void named_barrier_sync(int barrier, int threads) { shim::wait(barrier, threads); }
static inline void named_barrier_arrive(int barrier, int threads) { shim::pass(barrier, threads); }

template <class T> T __shfl_xor_sync(unsigned, T x, int lanes) {
    uint64_t cell = 0;
    memcpy(&cell, &x, sizeof x);
    return shim::cell_as<T>(shim::exchange(cell)[shim::lane() ^ lanes]);
}
static inline int warp_max(int x) {
    const uint64_t *all = shim::exchange((uint64_t)(int64_t)x);
    int most = x;
    for (int i = 0; i < 32; i++) most = (int)all[i] > most ? (int)all[i] : most;
    return most;
}

template <class T> void keep_in_register(T &) {}
template <class T> void keep_shared_in_register(T *&) {}
static inline bool warp_any(bool x) { return warp_max(x) != 0; }

static inline float __int_as_float(int x) { return shim::cell_as<float>((uint32_t)x); }
static inline int __float_as_int(float x) {
    int bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? 0.0f : x; }
struct EvictionPolicy {};
static inline EvictionPolicy eviction_policy(bool) { return {}; }
static inline float4 load_float4(const float *from, EvictionPolicy) { return *(const float4 *)from; }
static inline void grid_dependency_wait() {}
static inline float exp2_fast(float x) { return flushed(::exp2f(x)); }
static inline float log2_fast(float x) { return ::log2f(flushed(x)); }
static inline float divide(float a, float b) { return a / b; }
static inline float sqrt_fast(float x) { return ::sqrtf(x); }
static inline float rsqrt_fast(float x) { return 1.0f / ::sqrtf(x); }
template <class T> unsigned long long address_of(const T *x) { return (unsigned long long)(uintptr_t)x; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline int64 min(int64 a, int64 b) { return a < b ? a : b; }
static inline int64 max(int64 a, int64 b) { return a > b ? a : b; }

static inline void copy_16(float *shared, const float *global) { shim::copy_later(shared, global, 16, 0); }
static inline void copy_16_part(float *shared, const float *global, int bytes) {
    shim::copy_later(shared, global, bytes, 16 - bytes);
}
static inline void copy_4(float *shared, const float *global) { shim::copy_later(shared, global, 4, 0); }
static inline void copies_commit() { shim::commit(); }
template <int GROUPS> void copies_wait() { shim::wait_copies(GROUPS); }

#endif
