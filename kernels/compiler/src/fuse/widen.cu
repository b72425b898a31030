// Copies arrays from bf16 to f32. EACH_JOB is JOB(0) JOB(1) ..., one for each array: its blocks are
// a row of the grid.
#include "bf16.h"

#define THREADS 256

struct alignas(8) Four {
    unsigned short bits[4];
};

DEVICE void widen_all(const unsigned short *__restrict__ x, float *__restrict__ out, int64 count) {
    const int64 step = (int64)gridDim.x * THREADS, first = blockIdx.x * (int64)THREADS + threadIdx.x;
    const bool is_aligned = address_of(x) % 8 == 0 && address_of(out) % 16 == 0;
    const int64 fours = is_aligned ? count / 4 : 0;
#pragma unroll 4
    for (int64 i = first; i < fours; i += step) {
        const Four four = ((const Four *)x)[i];
        ((float4 *)out)[i] = {float_of_bf16(four.bits[0]), float_of_bf16(four.bits[1]), float_of_bf16(four.bits[2]), float_of_bf16(four.bits[3])};
    }
    for (int64 i = 4 * fours + first; i < count; i += step) out[i] = float_of_bf16(x[i]);
}

#define JOB(n) const unsigned short *x##n, float *out##n, int64 count##n,
KERNEL(widen_from_bf16, THREADS)(EACH_JOB unsigned) {
#undef JOB
    const unsigned short *x = x0;
    float *out = out0;
    int64 count = count0;
// One loop for all arrays: with a loop for each, compiling takes two seconds.
#define JOB(n) case n: x = x##n, out = out##n, count = count##n; break;
    switch (blockIdx.y) { EACH_JOB }
    widen_all(x, out, count);
}
