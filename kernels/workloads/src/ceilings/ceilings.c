// How fast a processor can multiply and add: ten chains, enough for two units with a latency of
// four cycles each, in the widest vectors it has.
#include "cpu.h"

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

KERNEL(fma_f32, args, block) {
    float *out = ARG_WRITE(args, 0, float);
    const vector factor = ARG_FLOAT(args, 1) - (vector){};
    // Operations of one float are wanted, whatever the width is.
    const int64_t rounds = ARG_INT(args, 2) / (VECTOR_BYTES / 4);
    const vector one = 1.0f - (vector){};
    vector a0 = one, a1 = a0 + one, a2 = a1 + one, a3 = a2 + one, a4 = a3 + one;
    vector a5 = a4 + one, a6 = a5 + one, a7 = a6 + one, a8 = a7 + one, a9 = a8 + one;
    for (int64_t r = 0; r < rounds; r++) {
        a0 = a0 * factor + one;
        a1 = a1 * factor + one;
        a2 = a2 * factor + one;
        a3 = a3 * factor + one;
        a4 = a4 * factor + one;
        a5 = a5 * factor + one;
        a6 = a6 * factor + one;
        a7 = a7 * factor + one;
        a8 = a8 * factor + one;
        a9 = a9 * factor + one;
    }
    const vector sum = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9;
    // Never true; keeps the compiler from leaving the work out.
    if (sum[0] == 1234567.0f) out[block] = sum[0];
}
