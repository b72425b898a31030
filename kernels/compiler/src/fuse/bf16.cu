// Rounds arrays to bf16. EACH_JOB is JOB(0) JOB(1) ..., one for each array: its blocks are a row of
// the grid.
#include "bf16.h"

#define THREADS 256

struct alignas(8) Four {
    unsigned short bits[4];
};

DEVICE void round_all(const float *__restrict__ x, unsigned short *__restrict__ out, int64 count) {
    const int64 step = (int64)gridDim.x * THREADS, first = blockIdx.x * (int64)THREADS + threadIdx.x;
    const bool is_aligned = address_of(x) % 16 == 0 && address_of(out) % 8 == 0;
    const int64 fours = is_aligned ? count / 4 : 0;
#pragma unroll 4
    for (int64 i = first; i < fours; i += step) {
        const float4 four = ((const float4 *)x)[i];
        ((Four *)out)[i] = {{rounded_to_bf16(four.x), rounded_to_bf16(four.y), rounded_to_bf16(four.z), rounded_to_bf16(four.w)}};
    }
    for (int64 i = 4 * fours + first; i < count; i += step) out[i] = rounded_to_bf16(x[i]);
}

#define JOB(n) const float *x##n, unsigned short *out##n, int64 count##n,
KERNEL(round_to_bf16, THREADS)(EACH_JOB unsigned) {
#undef JOB
    const float *x = x0;
    unsigned short *out = out0;
    int64 count = count0;
// One loop for all arrays: with a loop for each, compiling takes two seconds.
#define JOB(n) case n: x = x##n, out = out##n, count = count##n; break;
    switch (blockIdx.y) { EACH_JOB }
    round_all(x, out, count);
}
