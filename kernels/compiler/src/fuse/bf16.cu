// Copies arrays of f32, rounded to bf16; or with WIDENS=1 arrays of bf16 to f32. EACH_JOB is JOB(0)
// JOB(1) ..., one for each array: its blocks are a row of the grid.
#include "bf16.h"

#define THREADS 256

#if WIDENS
#define COPY widen_from_bf16
typedef unsigned short From;
typedef float To;
DEVICE To converted(From x) { return float_of_bf16(x); }
#else
#define COPY round_to_bf16
typedef float From;
typedef unsigned short To;
DEVICE To converted(From x) { return rounded_to_bf16(x); }
#endif

template <typename Element> struct alignas(4 * sizeof(Element)) Four {
    Element at[4];
};

DEVICE void copy(const From *__restrict__ x, To *__restrict__ out, int64 count) {
    const int64 step = (int64)gridDim.x * THREADS, first = blockIdx.x * (int64)THREADS + threadIdx.x;
    const bool is_aligned = address_of(x) % sizeof(Four<From>) == 0 && address_of(out) % sizeof(Four<To>) == 0;
    const int64 fours = is_aligned ? count / 4 : 0;
#pragma unroll 4
    for (int64 i = first; i < fours; i += step) {
        const Four<From> four = ((const Four<From> *)x)[i];
        ((Four<To> *)out)[i] = {{converted(four.at[0]), converted(four.at[1]), converted(four.at[2]), converted(four.at[3])}};
    }
    for (int64 i = 4 * fours + first; i < count; i += step) out[i] = converted(x[i]);
}

#define JOB(n) const From *x##n, To *out##n, int64 count##n,
KERNEL(COPY, THREADS)(EACH_JOB unsigned) {
#undef JOB
    const From *x = x0;
    To *out = out0;
    int64 count = count0;
// One loop for all arrays: with a loop for each, compiling takes two seconds.
#define JOB(n) case n: x = x##n, out = out##n, count = count##n; break;
    switch (blockIdx.y) { EACH_JOB }
    copy(x, out, count);
}
