// Functions of generated CUDA kernels: float4 loads and stores, reductions of rows and blocks.
//
// ROW_THREADS threads share a row, and `lane` is a thread's index among them. Its vector k has the
// four columns from 4 (lane + ROW_THREADS k) on. They are loaded as a float4 where everything is
// aligned (`is_vectorized`, the same for all threads), else one by one.
#ifndef SWEEPER_FUNCTIONS_CUH
#define SWEEPER_FUNCTIONS_CUH

#include "bf16.h"

DEVICE float f_reciprocal(float x) { return divide(1.0f, x); }
DEVICE float f_sigmoid(float x) { return divide(1.0f, 1.0f + expf(-x)); }
DEVICE float f_max(float a, float b) { return fmaxf(a, b); }
DEVICE float f_min(float a, float b) { return fminf(a, b); }
// e^x for x <= 0 in a sum of exponentials that contains e^0. Relative error 2^-22 + |x| 2^-23. A
// sum of n terms has at most 2^-22 + ln(n) 2^-23, as the mean of |x|, weighted by e^x, is at most
// ln(n).
DEVICE float exp_in_sum(float x) { return exp2_fast(x * 1.44269504f); }

// A float4 can be loaded from this address.
template <class T> DEVICE bool is_aligned(const T *x) { return (address_of(x) & 15) == 0; }

// Elements `step` apart, of any type.
template <int ROW_THREADS, int VECTORS, class T>
DEVICE void load_strided(T (&to)[VECTORS][4], const T *from, int64 step, int lane, int columns) {
#pragma unroll
    for (int i = 0; i < 4 * VECTORS; i++) {
        const int c = 4 * (lane + ROW_THREADS * (i / 4)) + i % 4;
        to[i / 4][i % 4] = c < columns ? from[c * step] : (T)0;
    }
}
// The same of bf16.
template <int ROW_THREADS, int VECTORS>
DEVICE void load_strided(float (&to)[VECTORS][4], const unsigned short *from, int64 step, int lane, int columns) {
#pragma unroll
    for (int i = 0; i < 4 * VECTORS; i++) {
        const int c = 4 * (lane + ROW_THREADS * (i / 4)) + i % 4;
        to[i / 4][i % 4] = c < columns ? float_of_bf16(from[c * step]) : 0.0f;
    }
}
template <int ROW_THREADS, class T>
DEVICE void store_strided(T *to, int64 step, const T (&from)[4], int lane, int k, int columns) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int c = 4 * (lane + ROW_THREADS * k) + j;
        if (c < columns) to[c * step] = from[j];
    }
}

// The same rounded to bf16.
template <int ROW_THREADS>
DEVICE void store_strided(unsigned short *to, int64 step, const float (&from)[4], int lane, int k, int columns) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int c = 4 * (lane + ROW_THREADS * k) + j;
        if (c < columns) to[c * step] = rounded_to_bf16(from[j]);
    }
}

// The eviction policy of a launch that reads `elements` elements once and writes next to nothing:
// evict first, so that dirty lines of other launches stay in L2. Such loads are slower, which does
// not pay beyond 384 MiB (docs/performance/operations.md).
DEVICE EvictionPolicy policy_of_stream(int64 elements) { return eviction_policy(elements <= (int64)96 << 20); }

struct DefaultPolicy {};
DEVICE float4 load_float4(const float *from, DefaultPolicy) { return *(const float4 *)from; }

// A thread's elements of a tile of `columns` columns; 0 beyond them.
template <int ROW_THREADS, int VECTORS, class Policy = DefaultPolicy>
DEVICE void load_vectors(float (&to)[VECTORS][4], const float *from, int lane, int columns, bool is_vectorized, Policy policy = {}) {
    if (is_vectorized) {
#pragma unroll
        for (int k = 0; k < VECTORS; k++) {
            const int c = 4 * (lane + ROW_THREADS * k);
            float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
            if (c < columns) x = load_float4(from + c, policy);
            to[k][0] = x.x, to[k][1] = x.y, to[k][2] = x.z, to[k][3] = x.w;
        }
    } else {
        load_strided<ROW_THREADS>(to, from, 1, lane, columns);
    }
}

struct alignas(8) FourBf16 {
    unsigned short bits[4];
};
// They are half as many bytes, and are loaded as by default whatever the policy.
template <int ROW_THREADS, int VECTORS, class Policy = DefaultPolicy>
DEVICE void load_vectors(float (&to)[VECTORS][4], const unsigned short *from, int lane, int columns, bool is_vectorized, Policy = {}) {
    if (is_vectorized) {
#pragma unroll
        for (int k = 0; k < VECTORS; k++) {
            const int c = 4 * (lane + ROW_THREADS * k);
            FourBf16 x = {{0, 0, 0, 0}};
            if (c < columns) x = *(const FourBf16 *)(from + c);
#pragma unroll
            for (int j = 0; j < 4; j++) to[k][j] = float_of_bf16(x.bits[j]);
        }
    } else {
        load_strided<ROW_THREADS>(to, from, 1, lane, columns);
    }
}
// The same with the columns of each pair exchanged, of which there is an even number.
template <int ROW_THREADS, int VECTORS, class T, class Policy = DefaultPolicy>
DEVICE void load_swapped_pairs(float (&to)[VECTORS][4], const T *from, int lane, int columns, bool is_vectorized, Policy policy = {}) {
    load_vectors<ROW_THREADS>(to, from, lane, columns, is_vectorized, policy);
#pragma unroll
    for (int i = 0; i < 2 * VECTORS; i++) {
        const float first = to[i / 2][i % 2 * 2];
        to[i / 2][i % 2 * 2] = to[i / 2][i % 2 * 2 + 1];
        to[i / 2][i % 2 * 2 + 1] = first;
    }
}
template <int ROW_THREADS>
DEVICE void store_vector(float *to, const float (&from)[4], int lane, int k, int columns, bool is_vectorized) {
    if (is_vectorized) {
        const int c = 4 * (lane + ROW_THREADS * k);
        if (c < columns) *(float4 *)(to + c) = {from[0], from[1], from[2], from[3]};
    } else {
        store_strided<ROW_THREADS>(to, 1, from, lane, k, columns);
    }
}

template <int ROW_THREADS>
DEVICE void store_vector(unsigned short *to, const float (&from)[4], int lane, int k, int columns, bool is_vectorized) {
    if (is_vectorized) {
        const int c = 4 * (lane + ROW_THREADS * k);
        const FourBf16 x = {rounded_to_bf16(from[0]), rounded_to_bf16(from[1]), rounded_to_bf16(from[2]), rounded_to_bf16(from[3])};
        if (c < columns) *(FourBf16 *)(to + c) = x;
    } else {
        store_strided<ROW_THREADS>(to, 1, from, lane, k, columns);
    }
}

// Takes a prefetched row.
template <int VECTORS, class T> DEVICE void copy_vectors(T (&to)[VECTORS][4], const T (&from)[VECTORS][4]) {
#pragma unroll
    for (int i = 0; i < 4 * VECTORS; i++) to[i / 4][i % 4] = from[i / 4][i % 4];
}

struct Sum {
    METHOD static float identity() { return 0.0f; }
    METHOD static float of(float a, float b) { return a + b; }
};
struct Max {
    METHOD static float identity() { return __int_as_float((int)0xff800000); }
    METHOD static float of(float a, float b) { return f_max(a, b); }
};

// Reduces over the threads of a row, at most a warp of them. Every lane gets the result.
template <class Operator, int ROW_THREADS> DEVICE float reduce_lanes(float x) {
#pragma unroll
    for (int apart = (ROW_THREADS < 32 ? ROW_THREADS : 32) / 2; apart > 0; apart /= 2)
        x = Operator::of(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}
// The maximum, if no lane has NaN: of a whole warp by one integer instruction, in whose order
// floats are when the bits of negative ones are flipped.
template <int ROW_THREADS> DEVICE float max_of_lanes(float x) {
    if (ROW_THREADS != 32) return reduce_lanes<Max, ROW_THREADS>(x);
    const int bits = __float_as_int(x);
    const int max = warp_max(bits ^ ((bits >> 31) & 0x7fffffff));
    return __int_as_float(max ^ ((max >> 31) & 0x7fffffff));
}
// The same for several rows, whose shuffles overlap.
template <class Operator, int ROW_THREADS, int ROWS> DEVICE void reduce_lanes(float (&x)[ROWS]) {
#pragma unroll
    for (int apart = (ROW_THREADS < 32 ? ROW_THREADS : 32) / 2; apart > 0; apart /= 2) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) x[i] = Operator::of(x[i], __shfl_xor_sync(0xffffffffu, x[i], apart));
    }
}
template <class Operator, int COUNT> DEVICE float reduce_partials(const float *partials) {
    float x = partials[0];
#pragma unroll
    for (int i = 1; i < COUNT; i++) x = Operator::of(x, partials[i]);
    return x;
}
template <class Operator, int ROW_THREADS> DEVICE float reduce_warps(const float *shared) {
    constexpr int WARPS = ROW_THREADS / 32;
    return reduce_partials<Operator, WARPS>(shared + threadIdx.x / ROW_THREADS * WARPS);
}

// The lowest finite number: the initial maximum of a warp whose exponents are relative to it, so
// that they are not NaN where all columns are minus infinity.
#define LOWEST __int_as_float((int)0xff7fffff)

// Online softmax: merges the maxima and sums of e^(x - max) of WARPS warps, each relative to its
// own maximum.
template <int WARPS>
DEVICE void merge_exp_sums(float &max, float &sum, const float *maxima, const float *sums) {
    max = reduce_partials<Max, WARPS>(maxima);
    sum = sums[0];
    if (WARPS == 1) return;
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum += sums[i] * exp_in_sum(maxima[i] - max);
    // All columns are minus infinity: so is the maximum, and the sum is NaN.
    if (sum == 0.0f) max = Max::identity(), sum = max - max;
}

// A block's partial for the finalizer block of its launch: one word with a mark that it is there,
// so that there are no fences and no counters.
struct Partial {
    unsigned long long word;
    METHOD void operator=(float x) { store_word(&word, 1ull << 32 | (unsigned)__float_as_int(x)); }
};

// In the finalizer block: combines the partials of `blocks` blocks once they are there. Each of
// THREADS threads takes every THREADS-th one from its own on, in this order, and clears it. The
// other blocks wait for nothing: they complete if the GPU has room for one of them beside this one.
template <class Operator, int THREADS> DEVICE float combine_partials(Partial *partials, unsigned blocks) {
    constexpr int AT_ONCE = 4;
    constexpr unsigned long long NONE = 1ull << 32;
    float x = Operator::identity();
    for (unsigned first = threadIdx.x; first < blocks; first += AT_ONCE * THREADS) {
        unsigned long long words[AT_ONCE];
        bool are_there;
        do {
            are_there = true;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const unsigned at = first + i * THREADS;
                words[i] = at < blocks ? load_word(&partials[at].word) : NONE;
                are_there = are_there && words[i] >= NONE;
            }
        } while (!are_there);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const unsigned at = first + i * THREADS;
            if (at >= blocks) continue;
            partials[at].word = 0;
            x = Operator::of(x, __int_as_float((int)(unsigned)words[i]));
        }
    }
    return x;
}

// Reduces the vectors of a block's row groups into those of the first one, in a fixed order.
// `shared` has a float4 for each vector of half of the threads.
template <class Operator, int ROW_THREADS, int ROW_GROUPS, int VECTORS>
DEVICE void reduce_groups(float (&x)[VECTORS][4], float *shared, int lane, int group) {
    float4 *slots = (float4 *)shared;
#pragma unroll 1
    for (int half = ROW_GROUPS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (group >= half && group < 2 * half) {
#pragma unroll
            for (int k = 0; k < VECTORS; k++) slots[((group - half) * VECTORS + k) * ROW_THREADS + lane] = {x[k][0], x[k][1], x[k][2], x[k][3]};
        }
        __syncthreads();
        if (group < half) {
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
                const float4 y = slots[(group * VECTORS + k) * ROW_THREADS + lane];
                x[k][0] = Operator::of(x[k][0], y.x), x[k][1] = Operator::of(x[k][1], y.y);
                x[k][2] = Operator::of(x[k][2], y.z), x[k][3] = Operator::of(x[k][3], y.w);
            }
        }
    }
}

#endif
