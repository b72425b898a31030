// Numbers in bf16 as bits: the upper halves of the bits of floats.
#ifndef SWEEPER_BF16_H
#define SWEEPER_BF16_H

#include "cuda.h"

// To the nearest, and to even.
DEVICE unsigned short rounded_to_bf16(float x) {
    const unsigned bits = (unsigned)__float_as_int(x);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    // The addend carries into the upper half from its middle on; where it is the middle, if that
    // half is odd.
    const unsigned rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (unsigned short)((is_nan ? bits | 0x400000u : rounded) >> 16);
}

// The number of these bits.
DEVICE float float_of_bf16(unsigned short bits) { return __int_as_float((int)((unsigned)bits << 16)); }

#endif
