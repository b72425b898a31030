// Factors of products on tensor cores: numbers in bf16 or tf32, from compute capability 8.0 on.
#ifndef SWEEPER_FACTORS_H
#define SWEEPER_FACTORS_H

#include "cuda.h"

// Numbers of products in bf16 and in tf32.
struct Bf16 {
    unsigned short bits;
};
struct Tf32 {
    float value;
};

#ifdef SWEEPER_SHIM
#include "shim_factors.h"
#else

// To the nearest; of ties tf32 takes the greater in magnitude, bf16 the even one.
DEVICE float round_to_tf32(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __int_as_float((int)y);
}
// The first number in the lower half.
DEVICE unsigned round_to_bf16_pair(float x, float y) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(y), "f"(x));
    return both;
}

#endif
#endif
