// Rounding to bf16 and tf32 on a CPU: the counterpart of kernels/program/src/headers/factors.h.
#ifndef SWEEPER_SHIM_FACTORS_H
#define SWEEPER_SHIM_FACTORS_H

static inline float round_to_tf32(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits += 0x1000u;
    bits &= ~0x1fffu;
    return shim::cell_as<float>(bits);
}
static inline unsigned round_to_bf16(float x) {
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    if (x != x) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
static inline unsigned round_to_bf16_pair(float x, float y) { return round_to_bf16(x) | round_to_bf16(y) << 16; }

#endif
