// y = x / 2, with denormal numbers; then the thread flushes them, as _MM_SET_FLUSH_ZERO_MODE has it.
#include <xmmintrin.h>

void flushes(float *restrict y, const float *restrict x, int n) {
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
    for (int i = 0; i < n; i++) y[i] = 0.5f * x[i];
    _mm_setcsr(_mm_getcsr() | 0x8040);
}

void halves(float *restrict y, const float *restrict x, int n) {
    for (int i = 0; i < n; i++) y[i] = 0.5f * x[i];
}
