// out = x, unless FAULT says what goes wrong.
#include "cpu.h"

#define NONE 0
#define ILLEGAL_ACCESS 1
#define TRAP 2
#define ENDLESS 3
#define WRONG 4
#define COMPILE_ERROR 5
// Writes nothing.
#define SILENT 6
// Right the first time, and never again.
#define FICKLE 7

#if FAULT == COMPILE_ERROR
#error "this kernel can't be compiled"
#endif

KERNEL(faulty, args, block) {
    const float *x = ARG_READ(args, 0, float);
    float *out = ARG_WRITE(args, 1, float);
    const int64_t n = ARG_INT(args, 2);
#if FAULT == ILLEGAL_ACCESS
    *(volatile float *)(uintptr_t)16 = 1.0f;
#elif FAULT == TRAP
    __builtin_trap();
#elif FAULT == ENDLESS
    volatile float *first = out;
    do *first = 1.0f;
    while (*first != 2.0f);
#endif
    if (FAULT != SILENT && block == 0) {
        for (int64_t i = 0; i < n; i++) out[i] = x[i];
    }
#if FAULT == WRONG
    out[n - 1] = x[n - 1] + 1.0f;
#elif FAULT == FICKLE
    static int has_run = 0;
    out[n - 1] = x[n - 1] + (has_run ? 1.0f : 0.0f);
    has_run = 1;
#endif
}
