// With a fixed transition, what reaches boundary t from t - k is one message and a bias that
// depends on k alone. So the sum over k is a convolution, and in linear space a product and a sum a
// term: no exponentials. Range and digits are what stands against that, and what this file looks
// after.
//
// A ring holds the last messages relative to a line: log weights grow by about as much from
// boundary to boundary, and would leave the range of f32, or in log space lose digits of each step
// to the growth of all steps before. The line begins at a boundary, `origin`, and has the slope of
// the offsets before it; for entropies there is one, too. Scores of labels are relative to those of
// the origin. Where a message is far from its line there is a new one, and the ring is filled anew
// from the messages, which keep their own scale: what was flushed comes back when it matters again.
// A sum that is too small for its flushed terms not to matter is done in log space, by the caller.
//
//     line(n)    = offset[origin] + slope (n - origin),  entropy_line(n) likewise
//     ring[n]    = sum of message n * exp(g),            g = offset[n] - line(n) - S[n] - reference
//     moments[n] = exp(g) (moment + sum (e - g)),        e = entropies' offset[n] - entropy_line(n)
//     total[t]   = sum over k of ring[t-k] exp(c[k]),    c = bias - slope k, less its greatest
//
// Max: ring[n] = message n + g, where the reference is -S[origin], and c is not shifted.
#ifndef SWEEPER_SEMICRF_RING_H
#define SWEEPER_SEMICRF_RING_H

#include "decomposed.h"

// What an old message may weigh on the new line: with more, a sum is done in log space, because a
// flushed factor times that is not nothing beside LEAST_TOTAL, and moments would overflow.
#define TOO_MUCH 1e16f
// A new message within these needs no new line.
#define LEAST_RING (SEMIRING == ENTROPY ? 1e-4f : 1e-7f)
#define MOST_RING (SEMIRING == ENTROPY ? 1e4f : 1e7f)
// Nor does an offset, or in log space a message, within this of the line: where sums have larger
// terms, they lose digits.
#define MOST_DRIFT (SEMIRING == LOG ? 64.0f : 4.0f)

// Everything lies in `ring`, in the order of `ring_floats` in compiled/layout.rs. Rings are kept
// twice, one behind the other, so that every window of `longest` boundaries is one stretch.
static inline float *ring_rows(const Scan *s) { return s->ring; }
static inline float *ring_moments(const Scan *s) { return s->ring + 2 * s->longest * s->pitch; }
static inline float *ring_tables(const Scan *s) {
    return s->ring + 2 * s->longest * s->pitch * (SEMIRING == ENTROPY ? 2 : 1);
}
// exp(c) by descending k (for max c itself), exp(c) (c + entropy slope k), the greatest bias less
// slope k, the reference.
static inline float *bias_weights(const Scan *s) { return ring_tables(s); }
static inline float *bias_products(const Scan *s) { return ring_tables(s) + s->longest * s->pitch; }
static inline float *bias_greatest(const Scan *s) { return ring_tables(s) + 2 * s->longest * s->pitch; }
static inline float *ring_reference(const Scan *s) { return bias_greatest(s) + s->pitch; }

// A line's value at boundary n: what waits for an offset only has to subtract it.
static inline double line_at(const Scan *s, Line line, int64_t n) {
    return line.start + line.slope * (double)(n - s->origin);
}

static APART void prepare_ring(Scan *s) {
    const vf nothing = v_all(SEMIRING == MAX ? 4 * ZERO : 0.0f);
    for (int64_t i = 0; i < 2 * s->longest * s->pitch; i += LANES) {
        v_store(ring_rows(s) + i, nothing);
        if (SEMIRING == ENTROPY) v_store(ring_moments(s) + i, nothing);
    }
}

// The bias of duration k relative to the line, lanes v.
static inline vf sloped_bias(const Scan *s, int64_t k, int64_t v) {
    return v_load(bias_row(s, k) + v * LANES) - (float)(s->line.slope * (double)k);
}

static inline void prepare_biases(const Scan *s, int64_t v) {
    vf most = v_all(2 * ZERO);
    for (int64_t k = 1; SEMIRING != MAX && k <= s->longest; k++) most = v_max(most, sloped_bias(s, k, v));
    // A label that no duration is allowed for: any reference does.
    most = v_select(most < ZERO_BELOW, v_all(0.0f), most);
    v_store(bias_greatest(s) + v * LANES, most);
    for (int64_t k = 1; k <= s->longest; k++) {
        const int64_t at = (s->longest - k) * s->pitch + v * LANES;
        if (SEMIRING == MAX) {
            v_store(bias_weights(s) + at, sloped_bias(s, k, v));
            continue;
        }
        // A rounded c would be one error of all segments of this duration.
        const Wide bias = v_widen(v_load(bias_row(s, k) + v * LANES)), greatest = v_widen(most);
        const double rise = s->line.slope * (double)k;
        const Wide c = {bias.low - rise - greatest.low, bias.high - rise - greatest.high};
        const vf weight = v_exp_wide(c);
        v_store(bias_weights(s) + at, weight);
        if (SEMIRING == ENTROPY)
            v_store(bias_products(s) + at, weight * (v_narrow(c) + (float)(s->entropy_line.slope * (double)k)));
    }
}

// Puts message n, lanes v, into the ring, in slot n % longest; whether it is far from its line.
static inline vi ring_store(const Scan *s, int64_t n, int64_t slot, const double *offset, int64_t v) {
    const int64_t at = slot * s->message_width + v * LANES;
    const int64_t to = slot * s->pitch + v * LANES, twice = s->longest * s->pitch;
    const vf reference = v_load(ring_reference(s) + v * LANES), score = cumulative(s, n, v);
    const double by = offset[0] - line_at(s, s->line, n);
    if (SEMIRING == MAX) {
        const vf drift = (float)by - (score + reference), log = v_load(s->logs + at) + drift;
        v_store(ring_rows(s) + to, log);
        v_store(ring_rows(s) + to + twice, log);
        return v_less(v_all(2 * MOST_DRIFT), v_max(drift, v_all(0.0f) - drift));
    }
    const Wide wide = v_widen(reference), own = v_widen(score);
    const Wide g = {by - own.low - wide.low, by - own.high - wide.high};
    const vf weight = v_exp_wide(g);
    const vf sum = v_load(s->sums + at);
    vf linear = sum * weight;
    linear = v_select(v_less(v_all(TOO_MUCH), linear), v_all(__builtin_inff()), linear);
    v_store(ring_rows(s) + to, linear);
    v_store(ring_rows(s) + to + twice, linear);
    if (SEMIRING == ENTROPY) {
        const float e = (float)(offset[1] - line_at(s, s->entropy_line, n));
        const vf moment = v_load(s->moments + at) * weight + linear * (e - v_narrow(g));
        v_store(ring_moments(s) + to, moment);
        v_store(ring_moments(s) + to + twice, moment);
    }
    return (v_less(linear, v_all(LEAST_RING)) & v_less(v_all(0.0f), linear)) | v_less(v_all(MOST_RING), linear);
}

// Begins lines at boundary n, and fills the ring anew.
static APART void ring_refer(Scan *s, int64_t n) {
    const int64_t index = row_index(s, n), slot = n % s->longest;
    const double *offset = s->offsets + 2 * index, share = 1.0 / (double)(n > 0 ? n : 1);
    s->origin = n;
    s->line = (Line){offset[0], offset[0] * share};
    s->entropy_line = (Line){offset[1], offset[1] * share};
    for (int64_t v = 0; v < vectors_of(s); v++) {
        vf log = v_all(0.0f);
        if (SEMIRING != MAX) {
            const vf sum = v_load(s->sums + slot * s->message_width + v * LANES);
            log = v_select(sum > 0.0f, v_log(sum), log);
        }
        v_store(ring_reference(s) + v * LANES, log - cumulative(s, n, v));
        prepare_biases(s, v);
        // Backwards, without a division a message.
        int64_t at = slot, row = index;
        for (int64_t m = n; m >= 0 && m > n - s->longest; m--) {
            ring_store(s, m, at, s->offsets + 2 * row, v);
            at = at == 0 ? s->longest - 1 : at - 1;
            row = row == 0 ? s->capacity - 1 : row - 1;
        }
    }
}

// Takes in message n. At every `interval`-th boundary the lines are new, so that a scan that begins
// there computes the same bits.
static inline void ring_take(Scan *s, int64_t n) {
    const double *offset = offset_of(s, n);
    const int64_t slot = n % s->longest;
    const float drift = (float)(offset[0] - line_at(s, s->line, n));
    const float entropy_drift = SEMIRING == ENTROPY ? (float)(offset[1] - line_at(s, s->entropy_line, n)) : 0.0f;
    int refer = (n + 1) % s->interval == 0 || n == 0 || drift > MOST_DRIFT || drift < -MOST_DRIFT ||
                entropy_drift > MOST_DRIFT || entropy_drift < -MOST_DRIFT;
    for (int64_t v = 0; !refer && v < vectors_of(s); v++)
        refer = v_any(ring_store(s, n, slot, offset, v) & v_first(lanes_of(s, v)));
    if (refer) ring_refer(s, n);
}

// Sums over k at boundary t, lanes v, relative to the lines and the reference.
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
