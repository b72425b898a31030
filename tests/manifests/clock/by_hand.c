// The least time of a call of `spin`, of a library, in nanoseconds: hot in batches, and cold behind
// a flush.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void (*Spin)(float *, const float *, long);

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int count, char **words) {
    float *x = aligned_alloc(64, 64), *y = aligned_alloc(64, 64);
    x[0] = 1;
    const volatile Spin call = (Spin)dlsym(dlopen("./spin.so", RTLD_NOW), "spin");
    const size_t n = (16 << 20) / 8;
    uint64_t *memory = malloc(n * 8);
    for (size_t i = 0; i < n; i++) memory[i] = i;
    for (int w = 1; w < count; w++) {
        const long ticks = atol(words[w]), batch = ticks < 60000 ? 60000 / ticks + 1 : 1;
        double hot = 1e18, cold = 1e18;
        for (int i = 0; i < 300; i++) {
            const int64_t start = now();
            for (long j = 0; j < batch; j++) call(y, x, ticks);
            const double each = (double)(now() - start) / batch;
            if (each < hot) hot = each;
        }
        for (int i = 0; i < 60; i++) {
            for (size_t j = 0; j < n; j++) memory[j] = memory[j] * 6364136223846793005ULL + 1;
            __asm__ volatile("" ::"r"(memory) : "memory");
            const int64_t start = now();
            call(y, x, ticks);
            const double each = now() - start;
            if (each < cold) cold = each;
        }
        printf("%.1f %.1f\n", hot, cold);
    }
}
