// With a fixed transition, what reaches boundary t from t - k is one message and a bias that
// depends on k alone. So the sum over k is a convolution, and in linear space a product and a sum a
// term: no exponentials. Range is what stands against that, and what this file looks after.
//
// A ring holds the last messages in linear space, relative to a reference for each label. It is
// filled anew from the messages, which keep their own scale, when a label drifts away from its
// reference: what was flushed comes back when it matters again. A sum that is too small for its
// flushed terms not to matter is done in log space, by the caller.
//
//     ring[n]    = sum of message n * exp(g),          g = offset[n] - S[n] - reference
//     moments[n] = exp(g) (moment + sum (e - g)),      e = entropies' offset[n] - the reference's
//     total[t]   = sum over k of ring[t-k] exp(c[k]),  c = bias less its greatest value over k
#ifndef SWEEPER_SEMICRF_RING_H
#define SWEEPER_SEMICRF_RING_H

#include "decomposed.h"

// A new message within these needs no new reference. Entropies are sums of log weights: they lose
// digits further away.
#define LEAST_RING (SEMIRING == ENTROPY ? 1e-6f : 1e-15f)
#define MOST_RING (SEMIRING == ENTROPY ? 1e9f : 1e25f)
// Nor does an offset within this: further away, sums of offsets would lose digits.
#define MOST_DRIFT 64.0

// Everything lies in `ring`, in the order of `ring_floats` in compiled/layout.rs. Rings are kept
// twice, one behind the other, so that every window of `longest` boundaries is one stretch.
static inline float *ring_rows(const Scan *s) { return s->ring; }
static inline float *ring_moments(const Scan *s) { return s->ring + 2 * s->longest * s->pitch; }
static inline float *ring_tables(const Scan *s) {
    return s->ring + 2 * s->longest * s->pitch * (SEMIRING == ENTROPY ? 2 : 1);
}
// exp(c) by descending k (for max the bias itself), exp(c) c, the greatest bias, the reference.
static inline float *bias_weights(const Scan *s) { return ring_tables(s); }
static inline float *bias_products(const Scan *s) { return ring_tables(s) + s->longest * s->pitch; }
static inline float *bias_greatest(const Scan *s) { return ring_tables(s) + 2 * s->longest * s->pitch; }
static inline float *ring_reference(const Scan *s) { return bias_greatest(s) + s->pitch; }

static APART void prepare_ring(Scan *s) {
    const vf nothing = v_all(SEMIRING == MAX ? 4 * ZERO : 0.0f);
    for (int64_t i = 0; i < 2 * s->longest * s->pitch; i += LANES) {
        v_store(ring_rows(s) + i, nothing);
        if (SEMIRING == ENTROPY) v_store(ring_moments(s) + i, nothing);
    }
    for (int64_t v = 0; v < vectors_of(s); v++) {
        vf most = v_all(2 * ZERO);
        for (int64_t k = 1; k <= s->longest; k++)
            most = v_max(most, v_load(bias_row(s, k) + v * LANES));
        // A label that no duration is allowed for: any reference does.
        if (SEMIRING == MAX) most = v_all(0.0f);
        most = v_select(most < ZERO_BELOW, v_all(0.0f), most);
        v_store(bias_greatest(s) + v * LANES, most);
        for (int64_t k = 1; k <= s->longest; k++) {
            const int64_t at = (s->longest - k) * s->pitch + v * LANES;
            const vf c = v_load(bias_row(s, k) + v * LANES) - most, weight = v_exp(c);
            v_store(bias_weights(s) + at, SEMIRING == MAX ? c : weight);
            v_store(bias_products(s) + at, weight * c);
        }
    }
}

// Puts message n, lanes v, into the ring; its linear weight. It lies in slot n % longest.
static inline vf ring_store(const Scan *s, int64_t n, int64_t slot, const double *offset, int64_t v) {
    const int64_t at = slot * s->message_width + v * LANES;
    const int64_t to = slot * s->pitch + v * LANES, twice = s->longest * s->pitch;
    const vf score = cumulative(s, n, v);
    const double by = offset[0] - s->ring_offset;
    if (SEMIRING == MAX) {
        const vf log = v_load(s->logs + at) + ((float)by - score);
        v_store(ring_rows(s) + to, log);
        v_store(ring_rows(s) + to + twice, log);
        return log;
    }
    const Wide reference = v_widen(v_load(ring_reference(s) + v * LANES)), own = v_widen(score);
    const Wide g = {by - own.low - reference.low, by - own.high - reference.high};
    const vf weight = v_exp_wide(g);
    const vf sum = v_load(s->sums + at), linear = sum * weight;
    v_store(ring_rows(s) + to, linear);
    v_store(ring_rows(s) + to + twice, linear);
    if (SEMIRING == ENTROPY) {
        const float e = (float)(offset[1] - s->ring_entropy);
        const vf moment = v_load(s->moments + at) * weight + linear * (e - v_narrow(g));
        v_store(ring_moments(s) + to, moment);
        v_store(ring_moments(s) + to + twice, moment);
    }
    return linear;
}

// Takes message n as the reference, and fills the ring anew.
static APART void ring_refer(Scan *s, int64_t n) {
    const int64_t index = row_index(s, n), slot = n % s->longest;
    s->ring_offset = s->offsets[2 * index];
    s->ring_entropy = s->offsets[2 * index + 1];
    for (int64_t v = 0; v < vectors_of(s); v++) {
        if (SEMIRING != MAX) {
            const vf sum = v_load(s->sums + slot * s->message_width + v * LANES);
            const vf log = v_select(sum > 0.0f, v_log(sum), v_all(0.0f));
            v_store(ring_reference(s) + v * LANES, log - cumulative(s, n, v));
        }
        // Backwards, without a division a message.
        int64_t at = slot, row = index;
        for (int64_t m = n; m >= 0 && m > n - s->longest; m--) {
            ring_store(s, m, at, s->offsets + 2 * row, v);
            at = at == 0 ? s->longest - 1 : at - 1;
            row = row == 0 ? s->capacity - 1 : row - 1;
        }
    }
}

// Takes in message n. At every `interval`-th boundary the reference is new, so that a scan that
// begins there computes the same bits.
static inline void ring_take(Scan *s, int64_t n) {
    const double *offset = offset_of(s, n), drift = offset[0] - s->ring_offset;
    const int64_t slot = n % s->longest;
    int refer = (n + 1) % s->interval == 0 || drift > MOST_DRIFT || drift < -MOST_DRIFT || n == 0;
    for (int64_t v = 0; !refer && v < vectors_of(s); v++) {
        const vf linear = ring_store(s, n, slot, offset, v);
        if (SEMIRING == MAX) continue;
        const vi far = ((linear < LEAST_RING) & (linear > 0.0f)) | (linear > MOST_RING);
        refer = v_any(far & v_first(lanes_of(s, v)));
    }
    if (refer) ring_refer(s, n);
}

// Sums over k at boundary t, lanes v, relative to the reference.
static inline Weights ring_totals(const Scan *s, int64_t t, int64_t v) {
    const int64_t pitch = s->pitch, count = s->longest, first = t % count * pitch + v * LANES;
    const float *rows = ring_rows(s) + first, *moments = ring_moments(s) + first;
    const float *weights = bias_weights(s) + v * LANES, *products = bias_products(s) + v * LANES;
    vf totals[4], sums[4];
    for (int j = 0; j < 4; j++) sums[j] = v_all(0.0f);
    for (int j = 0; j < 4; j++) totals[j] = v_all(SEMIRING == MAX ? 4 * ZERO : 0.0f);
    int64_t i = 0;
#define RING_TERM(j, i)                                                                            \
    do {                                                                                           \
        const vf row = v_load(rows + (i) * pitch), weight = v_load(weights + (i) * pitch);         \
        if (SEMIRING == MAX) totals[j] = v_max(totals[j], row + weight);                           \
        else totals[j] += row * weight;                                                            \
        if (SEMIRING == ENTROPY)                                                                   \
            sums[j] += v_load(moments + (i) * pitch) * weight - row * v_load(products + (i) * pitch);\
    } while (0)
    for (; i + 4 <= count; i += 4) {
        RING_TERM(0, i);
        RING_TERM(1, i + 1);
        RING_TERM(2, i + 2);
        RING_TERM(3, i + 3);
    }
    for (; i < count; i++) RING_TERM(0, i);
#undef RING_TERM
    const vf moment = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (SEMIRING == MAX)
        return (Weights){v_max(v_max(totals[0], totals[1]), v_max(totals[2], totals[3])), moment};
    return (Weights){(totals[0] + totals[1]) + (totals[2] + totals[3]), moment};
}

#endif
