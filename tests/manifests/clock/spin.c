// Takes so many ticks of the time stamp counter, wherever it is; y = x + 1.
#include <stdint.h>
#include <x86intrin.h>

void spin(float *y, const float *x, long ticks) {
    const uint64_t end = __rdtsc() + (uint64_t)ticks;
    while (__rdtsc() < end) {}
    y[0] = x[0] + 1;
}
