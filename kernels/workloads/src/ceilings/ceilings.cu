// How fast a GPU can multiply and add: chains of operations that wait for nothing but themselves.

#define CHAINS 8

// Never true; keeps the compiler from leaving the work out.
#define KEEP(sum)                                   \
    do {                                            \
        if ((sum) == 1234567.0f) out[0] = (sum);    \
    } while (0)

extern "C" __global__ void fma_f32(float *out, float factor, long long rounds) {
    float a[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; c++) a[c] = threadIdx.x + c;
    for (long long r = 0; r < rounds; r++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++) a[c] = fmaf(a[c], factor, 1.0f);
    }
    float sum = 0;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) sum += a[c];
    KEEP(sum);
}

#if TENSOR
// Operands of about one, with bits that differ: products of zeros take less power and run faster.
static __device__ unsigned operand(int position) {
    const unsigned bits = (threadIdx.x * 2654435761u + position * 40503u) & 0x007f007fu;
    return 0x3f803f80u | bits;
}

// d += a b, by a warp.
#define MULTIPLY(d, a, b, kind)                                                                           \
    asm volatile("mma.sync.aligned." kind " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <bool IS_BF16> static __device__ void products(float *out, float factor, long long rounds) {
    float d[CHAINS][4] = {};
    unsigned a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = operand(i);
#pragma unroll
    for (int i = 0; i < 2; i++) b[i] = operand(4 + i);
    for (long long r = 0; r < rounds; r++) {
#pragma unroll
        for (int c = 0; c < CHAINS; c++) {
            if (IS_BF16) MULTIPLY(d[c], a, b, "m16n8k16.row.col.f32.bf16.bf16.f32");
            else MULTIPLY(d[c], a, b, "m16n8k8.row.col.f32.tf32.tf32.f32");
        }
    }
    float sum = factor;
#pragma unroll
    for (int c = 0; c < CHAINS; c++) sum += d[c][0] + d[c][1] + d[c][2] + d[c][3];
    KEEP(sum);
}

extern "C" __global__ void mma_bf16(float *out, float factor, long long rounds) { products<true>(out, factor, rounds); }
extern "C" __global__ void mma_tf32(float *out, float factor, long long rounds) { products<false>(out, factor, rounds); }
#endif
