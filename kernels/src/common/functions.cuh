// Functions of generated CUDA kernels: chunks of four columns, reductions of warps and blocks.
//
// A lane has the four columns from 4 (lane + WIDTH k) on in its chunk k. They are moved at once where
// everything is aligned (`is_wide`, the same for all threads), else one by one.
#ifndef SWEEPER_FUNCTIONS_CUH
#define SWEEPER_FUNCTIONS_CUH

#include "cuda.h"

DEVICE float f_reciprocal(float x) { return divide(1.0f, x); }
DEVICE float f_sigmoid(float x) { return divide(1.0f, 1.0f + expf(-x)); }
DEVICE float f_max(float a, float b) { return fmaxf(a, b); }
DEVICE float f_min(float a, float b) { return fminf(a, b); }
// e^x for x <= 0 of which only a sum is needed, in which there is e^0: to 2^-22 + |x| 2^-23 of itself. Of a sum of n that is no
// more than 2^-22 + ln(n) 2^-23, as the mean of |x|, weighted by e^x, is at most ln(n).
DEVICE float exp_in_sum(float x) { return exp2_fast(x * 1.44269504f); }

// Whether four elements from here on may be moved at once.
template <class T> DEVICE bool is_aligned(const T *x) { return (address_of(x) & 15) == 0; }

// Elements `step` apart, of any type.
template <int WIDTH, int CHUNKS, class T>
DEVICE void load_steps(T (&to)[CHUNKS][4], const T *from, int64 step, int lane, int columns) {
#pragma unroll
    for (int i = 0; i < 4 * CHUNKS; i++) {
        const int c = 4 * (lane + WIDTH * (i / 4)) + i % 4;
        to[i / 4][i % 4] = c < columns ? from[c * step] : (T)0;
    }
}
template <int WIDTH, class T>
DEVICE void store_steps(T *to, int64 step, const T (&from)[4], int lane, int k, int columns) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int c = 4 * (lane + WIDTH * k) + j;
        if (c < columns) to[c * step] = from[j];
    }
}

// How so many elements leave the second-level cache that a launch reads once, where it writes next to nothing: first, so that
// what others left there to be written is not written for them. But reading so is slower, by so much that it does not
// pay beyond 384 MiB (docs/performance/operations.md).
DEVICE Leaving leaving_of_stream(int64 elements) { return leaving(elements <= (int64)96 << 20); }

struct Usual {};
DEVICE float4 load_4(const float *from, Usual) { return *(const float4 *)from; }

// The columns of a lane, of `columns` in all; 0 beyond them.
template <int WIDTH, int CHUNKS, class How = Usual>
DEVICE void load_chunks(float (&to)[CHUNKS][4], const float *from, int lane, int columns, bool is_wide, How how = {}) {
    if (is_wide) {
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int c = 4 * (lane + WIDTH * k);
            float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
            if (c < columns) x = load_4(from + c, how);
            to[k][0] = x.x, to[k][1] = x.y, to[k][2] = x.z, to[k][3] = x.w;
        }
    } else {
        load_steps<WIDTH>(to, from, 1, lane, columns);
    }
}
template <int WIDTH>
DEVICE void store_chunk(float *to, const float (&from)[4], int lane, int k, int columns, bool is_wide) {
    if (is_wide) {
        const int c = 4 * (lane + WIDTH * k);
        if (c < columns) *(float4 *)(to + c) = {from[0], from[1], from[2], from[3]};
    } else {
        store_steps<WIDTH>(to, 1, from, lane, k, columns);
    }
}

// What was loaded ahead of its row's turn.
template <int CHUNKS, class T> DEVICE void copy_chunks(T (&to)[CHUNKS][4], const T (&from)[CHUNKS][4]) {
#pragma unroll
    for (int i = 0; i < 4 * CHUNKS; i++) to[i / 4][i % 4] = from[i / 4][i % 4];
}

struct Sum {
    METHOD static float none() { return 0.0f; }
    METHOD static float of(float a, float b) { return a + b; }
};
struct Max {
    METHOD static float none() { return __int_as_float((int)0xff800000); }
    METHOD static float of(float a, float b) { return f_max(a, b); }
};

// Of the lanes of a row: WIDTH of them, a power of two. Every lane gets the result, which is the same
// whatever the order in which warps run. `shared` has a float for each warp of the block; those of the
// last reduction but one may be overwritten.
template <class How, int WIDTH> DEVICE float reduce_lanes(float x) {
#pragma unroll
    for (int apart = (WIDTH < 32 ? WIDTH : 32) / 2; apart > 0; apart /= 2)
        x = How::of(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}
// The greatest, if no lane has NaN: of a whole warp by one instruction, for whole numbers, in whose order floats are when
// the bits of negative ones are turned over.
template <int WIDTH> DEVICE float greatest_of_lanes(float x) {
    if (WIDTH != 32) return reduce_lanes<Max, WIDTH>(x);
    const int bits = __float_as_int(x);
    const int greatest = warp_max(bits ^ ((bits >> 31) & 0x7fffffff));
    return __int_as_float(greatest ^ ((greatest >> 31) & 0x7fffffff));
}
// The same of several rows: their exchanges wait side by side.
template <class How, int WIDTH, int ROWS> DEVICE void reduce_lanes(float (&x)[ROWS]) {
#pragma unroll
    for (int apart = (WIDTH < 32 ? WIDTH : 32) / 2; apart > 0; apart /= 2) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) x[i] = How::of(x[i], __shfl_xor_sync(0xffffffffu, x[i], apart));
    }
}
template <class How, int COUNT> DEVICE float reduce_left(const float *left) {
    float x = left[0];
#pragma unroll
    for (int i = 1; i < COUNT; i++) x = How::of(x, left[i]);
    return x;
}
template <class How, int WIDTH> DEVICE float reduce_warps(const float *shared) {
    constexpr int WARPS = WIDTH / 32;
    return reduce_left<How, WARPS>(shared + threadIdx.x / WIDTH * WARPS);
}

// The least number: what the greatest of no numbers is for a warp that goes by it, so that its exponents are numbers, or
// minus infinity.
#define LEAST __int_as_float((int)0xff7fffff)

// A row's greatest x, and its sum of e^(x - greatest), of what each of WARPS has of both by the greatest x of its own.
template <int WARPS>
DEVICE void join_exponentials(float &greatest, float &sum, const float *greatests, const float *sums) {
    greatest = reduce_left<Max, WARPS>(greatests);
    sum = sums[0];
    if (WARPS == 1) return;
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) sum += sums[i] * exp_in_sum(greatests[i] - greatest);
    // All were minus infinity: the greatest is, too, and what it is subtracted from no number.
    if (sum == 0.0f) greatest = Max::none(), sum = greatest - greatest;
}

// A number that a block leaves for the one of its launch that adds up. It is one word with the mark that it is there, so that
// no fence is waited for and nobody counts blocks.
struct Part {
    unsigned long long word;
    METHOD void operator=(float x) { store_word(&word, 1ull << 32 | (unsigned)__float_as_int(x)); }
};

// What a thread of that block takes of the parts that so many blocks leave, once they are there: each of THREADS threads
// has those from its own on, THREADS apart, in this order. What was taken is there no more. Of the other blocks none
// waits for anything: they end, if the GPU has room for one of them beside this one.
template <class How, int THREADS> DEVICE float take_parts(Part *left, unsigned blocks) {
    constexpr int AT_ONCE = 4;
    constexpr unsigned long long NONE = 1ull << 32;
    float x = How::none();
    for (unsigned first = threadIdx.x; first < blocks; first += AT_ONCE * THREADS) {
        unsigned long long words[AT_ONCE];
        bool are_there;
        do {
            are_there = true;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const unsigned at = first + i * THREADS;
                words[i] = at < blocks ? load_word(&left[at].word) : NONE;
                are_there = are_there && words[i] >= NONE;
            }
        } while (!are_there);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const unsigned at = first + i * THREADS;
            if (at >= blocks) continue;
            left[at].word = 0;
            x = How::of(x, __int_as_float((int)(unsigned)words[i]));
        }
    }
    return x;
}

// Of the groups of a block, for each lane and chunk: the first group gets the result, in an order that is
// always the same. `shared` has four floats for each chunk of half of the threads.
template <class How, int WIDTH, int GROUPS, int CHUNKS>
DEVICE void reduce_groups(float (&x)[CHUNKS][4], float *shared, int lane, int group) {
    float4 *cells = (float4 *)shared;
#pragma unroll 1
    for (int half = GROUPS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (group >= half && group < 2 * half) {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) cells[((group - half) * CHUNKS + k) * WIDTH + lane] = {x[k][0], x[k][1], x[k][2], x[k][3]};
        }
        __syncthreads();
        if (group < half) {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                const float4 y = cells[(group * CHUNKS + k) * WIDTH + lane];
                x[k][0] = How::of(x[k][0], y.x), x[k][1] = How::of(x[k][1], y.y);
                x[k][2] = How::of(x[k][2], y.z), x[k][3] = How::of(x[k][3], y.w);
            }
        }
    }
}

#endif
