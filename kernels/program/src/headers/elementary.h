// Exponential and logarithm without branches or calls, to about one unit in the last place.
//
// Both are the classic reductions of Cephes (S. L. Moshier, expf.c and logf.c): powers of two are
// moved in and out of the exponent bits, the rest is a polynomial.
#ifndef SWEEPER_ELEMENTARY_H
#define SWEEPER_ELEMENTARY_H

#include "vector.h"

#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
// 1.5 * 2^23: adding it rounds to a whole number, and leaves that number in the low bits.
#define ROUNDER 12582912.0f
// e^x is a normal number from here to there. Below, v_exp is 0. Above, it is infinite or NaN: at
// EXP_CEILING, where larger numbers are cut off, the exponent's bits are all set.
#define EXP_LEAST -87.3f
#define EXP_MOST 88.7f
#define EXP_CEILING 88.9f

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
    return v_select(v_less(x, v_all(EXP_LEAST)), v_all(0.0f), v_exp_within(v_min(x, v_all(EXP_CEILING))));
}

// A probability from its logarithm, which is at most 0; 0 below 2e-16. Products of probabilities
// that are smaller still would be denormal, and take processors a hundred cycles each.
static inline vf v_probability(vf log) {
    return v_select(v_less(log, v_all(-36.0f)), v_all(0.0f), v_exp_within(log));
}

// e^x to f32 precision where x has more digits than an f32 holds; 0 below EXP_LEAST, infinite above
// EXP_MOST.
static inline vf v_exp_wide(Wide x) {
    const double log2e = 1.4426950408889634, ln2 = 0.6931471805599453, rounder = 6755399441055744.0;
    const Wide n = {(x.low * log2e + rounder) - rounder, (x.high * log2e + rounder) - rounder};
    const vf power = v_narrow(n);
    const vf p = v_exp_within(v_narrow((Wide){x.low - n.low * ln2, x.high - n.high * ln2}));
    const vi bits = (vi)p + (__builtin_convertvector(power, vi) << 23);
    const vf finite = v_select(v_less(power, v_all(-125.0f)), v_all(0.0f), (vf)bits);
    return v_select(v_less(v_all(127.0f), power), v_all(__builtin_inff()), finite);
}

typedef struct {
    vf exponent, mantissa;
} Log;

// ln x for normal positive x, as exponent ln 2 + mantissa.
static inline Log v_log_parts(vf x) {
    // Exponent such that the mantissa lies between the square roots of 1/2 and 2.
    const vi exponent = ((vi)x - 0x3f3504f3) >> 23;
    const vf f = (vf)((vi)x - (exponent << 23)) - 1.0f;
    const vf z = f * f;
    vf p = f * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    return (Log){__builtin_convertvector(exponent, vf), f + (p * f * z - 0.5f * z)};
}

static inline vf v_log(vf x) {
    const Log log = v_log_parts(x);
    return (log.mantissa + log.exponent * LN2_LOW) + log.exponent * LN2_HIGH;
}

// ln x + by, where the sum has more digits than an f32 holds and is small.
static inline vf v_log_plus(vf x, Wide by) {
    const double ln2 = 0.6931471805599453;
    const Log log = v_log_parts(x);
    const Wide e = v_widen(log.exponent), m = v_widen(log.mantissa);
    return v_narrow((Wide){e.low * ln2 + (m.low + by.low), e.high * ln2 + (m.high + by.high)});
}

// One number by the same arithmetic, for the rare paths.
static inline float exp_one(float x) { return v_exp(v_all(x))[0]; }
static inline float log_one(float x) { return v_log(v_all(x))[0]; }

#endif
