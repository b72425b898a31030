// out = x rounded to bf16, to the nearest and to even: the upper halves of the bits of floats. A
// thread an element.
#include "cuda.h"

KERNEL(round_to_bf16, 256)
(const unsigned *__restrict__ x, unsigned short *__restrict__ out, int64 count) {
    const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
    if (i >= count) return;
    const unsigned bits = x[i];
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    // What is added carries into the upper half from its middle on; where it is the middle, if that
    // half is odd.
    const unsigned rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    out[i] = (unsigned short)((is_nan ? bits | 0x400000u : rounded) >> 16);
}
