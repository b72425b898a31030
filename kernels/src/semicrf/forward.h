// The forward scan: boundary by boundary, from the messages of the boundaries before.
#ifndef SWEEPER_SEMICRF_FORWARD_H
#define SWEEPER_SEMICRF_FORWARD_H

#if FORM == MATERIALIZED
#include "materialized.h"
#else
#include "decomposed.h"
#endif

// What is added to the messages (t - k, k): the logarithm and, for entropy, the shift of entropies.
// All is relative to the offset, and for decomposed scores the cumulative score, of t - 1.
typedef struct {
    vf log;
    float entropy;
} Shift;

static inline Shift shift_of(const Scan *s, int64_t t, int64_t k, int64_t v) {
    const double *last = offset_of(s, t - 1), *from = offset_of(s, t - k);
    Shift shift = {.log = v_all((float)(from[0] - last[0]))};
    if (SEMIRING == ENTROPY) shift.entropy = (float)(from[1] - last[1]);
#if FORM == MATERIALIZED
    (void)v;
#else
    shift.log += cumulative(s, t - 1, v) - cumulative(s, t - k, v) + v_load(bias_row(s, k) + v * LANES);
#endif
    return shift;
}

typedef struct {
    vf log, entropy;
} Weights;

// Sums in log space: exact whatever the range.
static Weights combine_in_log_space(const Scan *s, int64_t t, int64_t v) {
    const int64_t count = least_of(s->longest, t);
    vf most = v_all(4 * ZERO);
    for (int64_t k = 1; k <= count; k++) {
        const int64_t at = message_at(s, t - k, k) + v * LANES;
        const vf sum = v_load(s->sums + at);
        const vf log = v_select(sum > 0.0f, v_log(sum), v_load(s->logs + at));
        most = v_max(most, log + shift_of(s, t, k, v).log);
    }
    vf total = v_all(0.0f), moment = total;
    for (int64_t k = 1; k <= count; k++) {
        const int64_t at = message_at(s, t - k, k) + v * LANES;
        const vf sum = v_load(s->sums + at);
        const Shift shift = shift_of(s, t, k, v);
        const vf own = v_log(sum);
        const vf log = v_select(sum > 0.0f, own, v_load(s->logs + at)) + shift.log - most;
        const vf weight = v_exp(log);
        total += weight;
        if (SEMIRING == ENTROPY) {
            const vf entropy = v_select(sum > 0.0f, v_load(s->moments + at) / sum + own,
                                        v_load(s->entropies + at));
            moment += weight * (entropy + shift.entropy - log);
        }
    }
    const vf log = v_log(total);
    return (Weights){most + log, SEMIRING == ENTROPY ? moment / total + log : total};
}

// The weights of boundary t before they are normalised.
static Weights combine(const Scan *s, int64_t t, int64_t v) {
    const int64_t count = least_of(s->longest, t);
    vf total = v_all(SEMIRING == MAX ? 4 * ZERO : 0.0f), moment = v_all(0.0f);
    for (int64_t k = 1; k <= count; k++) {
        const int64_t at = message_at(s, t - k, k) + v * LANES;
        const Shift shift = shift_of(s, t, k, v);
        if (SEMIRING == MAX) {
            total = v_max(total, v_load(s->logs + at) + shift.log);
            continue;
        }
        const vf weight = v_exp(shift.log), sum = v_load(s->sums + at) * weight;
        total += sum;
        if (SEMIRING == ENTROPY)
            moment += v_load(s->moments + at) * weight + sum * (shift.entropy - shift.log);
    }
    if (SEMIRING == MAX) return (Weights){total, total};
    if (t <= s->odd_until || v_any(((total < LEAST_TOTAL) | (total > MOST_TOTAL)) & v_first(lanes_of(s, v))))
        return combine_in_log_space(s, t, v);
    const vf log = v_log(total);
    return (Weights){log, SEMIRING == ENTROPY ? moment / total + log : log};
}

// Moves the greatest log weight, and the mean entropy, of boundary t into its offsets.
static void normalise(Scan *s, int64_t t) {
    float *row = row_of(s, t);
    float most = 2 * ZERO;
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const vf l = v_select(v_first(lanes_of(s, v)), v_load(row + v * LANES), v_all(2 * ZERO));
        const float greatest = v_greatest(l);
        most = greatest > most ? greatest : most;
    }
    // Where nothing is legal yet, the offset stays: a legal source may be at any distance before.
    if (most < ZERO_BELOW) most = 0.0f;
    float weight = 0.0f, mean = 0.0f;
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const vi labels = v_first(lanes_of(s, v));
        const vf l = v_select(labels, v_load(row + v * LANES) - most, v_all(ZERO));
        v_store(row + v * LANES, l);
        if (SEMIRING == ENTROPY) {
            const vf h = v_select(labels, v_load(row + s->pitch + v * LANES), v_all(0.0f));
            const vf p = v_exp(l);
            v_store(row + s->pitch + v * LANES, h);
            weight += v_sum(p);
            mean += v_sum(p * h);
        }
    }
    double *offset = offset_of(s, t);
    const double *last = offset_of(s, t - 1);
    offset[0] = last[0] + most;
    offset[1] = 0.0;
    if (SEMIRING == ENTROPY) {
        const float by = weight > LEAST_SUM ? mean / weight : 0.0f;
        offset[1] = last[1] + by;
        for (int64_t v = 0; v < vectors_of(s); v++)
            v_store(row + s->pitch + v * LANES, v_load(row + s->pitch + v * LANES) - by);
    }
}

// Boundary 0: any label, at weight 1.
static void begin(Scan *s) {
    float *row = row_of(s, 0);
    for (int64_t v = 0; v < vectors_of(s); v++) {
        v_store(row + v * LANES, v_select(v_first(lanes_of(s, v)), v_all(0.0f), v_all(ZERO)));
        if (SEMIRING == ENTROPY) v_store(row + s->pitch + v * LANES, v_all(0.0f));
    }
    offset_of(s, 0)[0] = offset_of(s, 0)[1] = 0.0;
}

// Boundary t, whose messages are all there.
static void advance(Scan *s, int64_t t) {
    float *row = row_of(s, t);
    for (int64_t v = 0; v < vectors_of(s); v++) {
        Weights weights = combine(s, t, v);
        if (FORM != MATERIALIZED) weights.log += cumulative(s, t, v) - cumulative(s, t - 1, v);
        v_store(row + v * LANES, weights.log);
        if (SEMIRING == ENTROPY) v_store(row + s->pitch + v * LANES, weights.entropy);
    }
    normalise(s, t);
}

#endif
