// Functions of generated CUDA kernels: four elements at a time, reductions of warps and blocks.
//
// A thread has cells in registers, four for each of its chunks. Where everything is aligned (WIDE), a
// chunk is four neighbours; else its elements are `WIDTH` apart, so that a warp's are neighbours.
#ifndef SWEEPER_FUNCTIONS_CUH
#define SWEEPER_FUNCTIONS_CUH

#include "cuda.h"

DEVICE float f_reciprocal(float x) { return divide(1.0f, x); }
DEVICE float f_sigmoid(float x) { return divide(1.0f, 1.0f + expf(-x)); }
DEVICE float f_max(float a, float b) { return fmaxf(a, b); }
DEVICE float f_min(float a, float b) { return fminf(a, b); }

// Whether all loads and stores of four elements may be made: addresses and steps are multiples of that.
template <class T> DEVICE bool is_aligned(const T *x) { return (address_of(x) & 15) == 0; }

// The column of element j of chunk k, for lane `lane` of WIDTH.
template <bool WIDE, int WIDTH> DEVICE int column_of(int lane, int k, int j) {
    return WIDE ? 4 * (lane + WIDTH * k) + j : lane + WIDTH * (4 * k + j);
}

// Elements of chunk k of `columns`, 0 beyond them.
template <bool WIDE, int WIDTH> DEVICE void load_chunk(float (&to)[4], const float *from, int lane, int k, int columns) {
    if (WIDE) {
        const int c = 4 * (lane + WIDTH * k);
        float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (c < columns) x = *(const float4 *)(from + c);
        to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int c = column_of<WIDE, WIDTH>(lane, k, j);
            to[j] = c < columns ? from[c] : 0.0f;
        }
    }
}
template <bool WIDE, int WIDTH> DEVICE void store_chunk(float *to, const float (&from)[4], int lane, int k, int columns) {
    if (WIDE) {
        const int c = 4 * (lane + WIDTH * k);
        if (c < columns) *(float4 *)(to + c) = {from[0], from[1], from[2], from[3]};
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int c = column_of<WIDE, WIDTH>(lane, k, j);
            if (c < columns) to[c] = from[j];
        }
    }
}

// The same of elements `step` apart, of any type.
template <bool WIDE, int WIDTH, class T>
DEVICE void load_steps(T (&to)[4], const T *from, int64 step, int lane, int k, int columns) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int c = column_of<WIDE, WIDTH>(lane, k, j);
        to[j] = c < columns ? from[c * step] : (T)0;
    }
}
template <bool WIDE, int WIDTH, class T>
DEVICE void store_steps(T *to, int64 step, const T (&from)[4], int lane, int k, int columns) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int c = column_of<WIDE, WIDTH>(lane, k, j);
        if (c < columns) to[c * step] = from[j];
    }
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
template <class How, int WIDTH> DEVICE float reduce_warps(const float *shared) {
    const int first = threadIdx.x / WIDTH * (WIDTH / 32);
    float x = shared[first];
#pragma unroll
    for (int i = 1; i < WIDTH / 32; i++) x = How::of(x, shared[first + i]);
    return x;
}

// Of the groups of a block, for each lane and chunk: the first group gets the result, in an order that is
// always the same. `shared` has a float for each of them all.
template <class How, int WIDTH, int GROUPS, int CHUNKS>
DEVICE void reduce_groups(float (&x)[CHUNKS][4], float *shared, int lane, int group) {
#pragma unroll
    for (int half = GROUPS / 2; half > 0; half /= 2) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; i++)
            if (group >= half && group < 2 * half) shared[((group - half) * 4 * CHUNKS + i) * WIDTH + lane] = x[i / 4][i % 4];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; i++)
            if (group < half) x[i / 4][i % 4] = How::of(x[i / 4][i % 4], shared[(group * 4 * CHUNKS + i) * WIDTH + lane]);
    }
}

#endif
