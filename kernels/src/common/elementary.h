// Exponential and logarithm without branches or calls, to about one unit in the last place.
//
// Both are the classic reductions of Cephes (S. L. Moshier, expf.c and logf.c): powers of two are moved
// in and out of the exponent bits, the rest is a polynomial.
#ifndef SWEEPER_ELEMENTARY_H
#define SWEEPER_ELEMENTARY_H

#include "vector.h"

#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
// 1.5 * 2^23: adding it rounds to a whole number, and leaves that number in the low bits.
#define ROUNDER 12582912.0f
// e^x is a normal number from here to there. Below, v_exp is 0; above, it stays.
#define EXP_LEAST -87.3f
#define EXP_MOST 88.0f

// e^x for x from EXP_LEAST to EXP_MOST.
static inline vf v_exp_within(vf x) {
    const vf shifted = x * 1.44269504088896341f + ROUNDER;
    const vf n = shifted - ROUNDER;
    const vf r = (x - n * LN2_HIGH) - n * LN2_LOW;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (vf)((vi)p + ((vi)shifted << 23));
}

static inline vf v_exp(vf x) {
    return v_select(x < EXP_LEAST, v_all(0.0f), v_exp_within(v_min(x, v_all(EXP_MOST))));
}

// e^x for x that is at most 0.
static inline vf v_exp_not_above_1(vf x) {
    return v_select(x < EXP_LEAST, v_all(0.0f), v_exp_within(x));
}

// ln x for normal positive x.
static inline vf v_log(vf x) {
    // Exponent such that the mantissa lies between the square roots of 1/2 and 2.
    const vi exponent = ((vi)x - 0x3f3504f3) >> 23;
    const vf f = (vf)((vi)x - (exponent << 23)) - 1.0f;
    const vf e = __builtin_convertvector(exponent, vf);
    const vf z = f * f;
    vf p = f * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    const vf y = p * f * z + e * LN2_LOW - 0.5f * z;
    return f + y + e * LN2_HIGH;
}

// One number by the same arithmetic, for the rare paths.
static inline float exp_one(float x) { return v_exp(v_all(x))[0]; }
static inline float log_one(float x) { return v_log(v_all(x))[0]; }

#endif
