// Gradients from rows of both scans: the probability of whatever lies between a prefix and a
// suffix.
//
// With log weights a, e, b of prefix, middle and suffix, the middle's probability is
// p = 2^(a + e + b - total), and its part of the gradient is p. For entropy, where h are entropies,
// it is p (1 - ln p + h(prefix) + h(suffix) - h(total)): H is log Z less the mean score.
#ifndef SWEEPER_SEMICRF_MARGINALS_CUH
#define SWEEPER_SEMICRF_MARGINALS_CUH

#include "sequence.cuh"

// One side of a boundary: offsets as whole numbers relative to something near, so exact in f32.
struct Offset {
    float log, entropy;
};

struct Side {
    Rows rows;
    int labels;

    METHOD const float *row(int n) const { return rows.values + rows.index(n) * PLANES * labels; }
    METHOD Offset offset(int n, double log, double entropy) const {
        const double *at = rows.offsets + 2 * rows.index(n);
        return {(float)(at[0] - log), HAS_ENTROPY ? (float)(at[1] - entropy) : 0.0f};
    }
};

// The total as whole numbers and what is left; prefixes are relative to an offset of their own.
struct Totals {
    double log, entropy;        // what suffixes are relative to
    double own_log, own_entropy;  // and prefixes
    float log_part, entropy_part;
};

DEVICE Totals totals_of(const double *totals, const Side &prefixes, int n) {
    Totals t;
    const double *at = prefixes.rows.offsets + 2 * prefixes.rows.index(n);
    const double log = rint(totals[0]), entropy = rint(totals[1]);
    t.own_log = at[0], t.own_entropy = HAS_ENTROPY ? at[1] : 0.0;
    t.log = log - t.own_log, t.entropy = entropy - t.own_entropy;
    t.log_part = (float)(totals[0] - log), t.entropy_part = (float)(totals[1] - entropy);
    return t;
}

// `log` is a + e + b and `entropy` the sum of both sides', with offsets, less the totals.
DEVICE float gradient(float log, float entropy) {
    const float p = exp2_fast(fminf(log, 1.0f));
    if (!HAS_ENTROPY) return p;
    return p > 0.0f ? p * (1.0f + entropy - LN2 * log) : 0.0f;
}

#endif
