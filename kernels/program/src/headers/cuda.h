// What every CUDA kernel needs and the compiler does not know by itself, without any header.
//
// Kernels also run on a CPU, in tests: there a file of the tests defines the same names, and
// SWEEPER_SHIM. No other file may ask for it.
#ifndef SWEEPER_CUDA_H
#define SWEEPER_CUDA_H

#ifdef SWEEPER_SHIM
#include "shim.h"
#else

#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
// For what is rare: keeps registers and instructions of the common path to itself.
#define DEVICE_APART static __device__ __noinline__
// After the name: most threads of a block, and where occupancy is worth registers, least blocks at
// a time.
#define KERNEL(name, ...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name
#define SHARED(name) extern __shared__ __align__(16) float name[]
// The same of a size that is known, beside the launch's.
#define SHARED_ARRAY(name, count) __shared__ __align__(16) float name[count]

typedef long long int64;

// 2^x, 2 units in the last place; less than the least normal number is 0.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// log2(x), to 2^-22.
DEVICE float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// a / b, the square root of x and its reciprocal: 2 units in the last place.
DEVICE float divide(float a, float b) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEVICE float sqrt_fast(float x) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float rsqrt_fast(float x) {
    float y;
    asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Programmatic dependent launch: lets the next launch start, and waits until the launches before
// are complete and their memory is visible. Kernels whose launches overlap call it before any
// access. They must not read results of other launches through `const __restrict__` pointers: these
// promise that nobody writes while the kernel runs, and the compiler may load before the wait.
DEVICE void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Words that blocks of a launch exchange: 64-bit accesses are not torn, and become visible to other
// blocks eventually.
DEVICE void store_word(unsigned long long *to, unsigned long long word) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
DEVICE unsigned long long load_word(const unsigned long long *from) {
    unsigned long long word;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
}

// What a thread saw and wrote before comes before what it sees and writes after, for all blocks.
DEVICE void memory_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// The number of tickets that were taken before, from a count that begins as zero.
DEVICE unsigned long long take_ticket(unsigned long long *count) { return atomicAdd(count, 1ull); }
// Of memory that other blocks write meanwhile: past this multiprocessor's cache.
DEVICE float load_past_l1(const float *from) {
    float x;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}
DEVICE float4 load_float4_past_l1(const float *from) {
    float4 x;
    asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(from)
                 : "memory");
    return x;
}

template <class T> DEVICE unsigned long long address_of(const T *x) { return (unsigned long long)x; }

// An L2 cache eviction policy.
struct EvictionPolicy {
    unsigned long long policy;
};
// Evict first, or the default.
DEVICE EvictionPolicy eviction_policy(bool is_first) {
    EvictionPolicy first, usual;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first.policy));
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(usual.policy));
    return is_first ? first : usual;
}
// Volatile: it must not move before a wait for the launch that writes there.
DEVICE float4 load_float4(const float *from, EvictionPolicy eviction) {
    float4 x;
    asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "l"(from), "l"(eviction.policy));
    return x;
}

// Hides where a value came from: it is kept, not made again.
DEVICE void keep_in_register(int &x) { asm volatile("" : "+r"(x)); }
template <class T> DEVICE void keep_in_register(T *&x) { asm volatile("" : "+l"(x)); }
// The same for an address in shared memory, which stays known to be one.
template <class T> DEVICE void keep_shared_in_register(T *&x) {
    unsigned at = (unsigned)__cvta_generic_to_shared(x);
    asm volatile("" : "+r"(at));
    x = (T *)__cvta_shared_to_generic(at);
}

DEVICE int warp_max(int x) { return __reduce_max_sync(0xffffffffu, x); }

DEVICE bool warp_any(bool x) { return __any_sync(0xffffffffu, x); }

// A barrier of `threads` threads of the block; barrier 0 is __syncthreads.
DEVICE void named_barrier_sync(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// The same without waiting: others wait for what this thread has stored.
DEVICE void named_barrier_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Copies 16 bytes, some time before `copies_wait`. In part: so many of them, and zeros.
DEVICE void copy_16(float *shared, const float *global) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
DEVICE void copy_16_part(float *shared, const float *global, int bytes) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes) : "memory");
}
DEVICE void copy_4(float *shared, const float *global) {
    const unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
// Copies so far are a group; all but the last GROUPS groups of this thread have arrived.
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int GROUPS> DEVICE void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

#endif
#endif
