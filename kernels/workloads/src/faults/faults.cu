// out = x, unless FAULT says what goes wrong.

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

__device__ int has_run = 0;

extern "C" __global__ void faulty(const float *__restrict__ x, float *__restrict__ out, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
#if FAULT == ILLEGAL_ACCESS
    *(volatile float *)((char *)out + (1ull << 46)) = 1.0f;
#elif FAULT == TRAP
    __trap();
#elif FAULT == ENDLESS
    volatile float *first = out;
    do *first = 1.0f;
    while (*first != 2.0f);
#endif
    if (FAULT != SILENT && i < n) out[i] = x[i];
#if FAULT == WRONG
    if (i == n - 1) out[i] = x[i] + 1.0f;
#elif FAULT == FICKLE
    if (i == n - 1) {
        out[i] = x[i] + (has_run ? 1.0f : 0.0f);
        has_run = 1;
    }
#endif
}
