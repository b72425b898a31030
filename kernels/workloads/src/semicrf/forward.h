// The forward scan: boundary by boundary, from the messages of the boundaries before.
#ifndef SWEEPER_SEMICRF_FORWARD_H
#define SWEEPER_SEMICRF_FORWARD_H

#if FORM == MATERIALIZED
#include "materialized.h"
#elif FORM == FIXED
#include "ring.h"
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

// Sums in log space: exact whatever the range.
static APART Weights combine_in_log_space(const Scan *s, int64_t t, int64_t v) {
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

static inline int totals_lost(const Scan *s, int64_t t, int64_t v, vf total) {
    const vi lost = ~(v_less(v_all(LEAST_TOTAL), total) & v_less(total, v_all(MOST_TOTAL)));  // NaN, too
    return t <= s->odd_until || v_any(lost & v_first(lanes_of(s, v)));
}

// The weights of boundary t relative to the offset of t - 1, lanes v.
#if FORM == FIXED
static inline Weights combine(const Scan *s, int64_t t, int64_t v) {
    const Weights totals = ring_totals(s, t, v);
    const vf score = cumulative(s, t, v);
    if (SEMIRING != MAX && totals_lost(s, t, v, totals.log)) {
        Weights weights = combine_in_log_space(s, t, v);
        weights.log += score - cumulative(s, t - 1, v);
        return weights;
    }
    const double *last = offset_of(s, t - 1);
    const double by = line_at(s, s->line, t) - last[0];
    const vf reference = v_load(ring_reference(s) + v * LANES);
    if (SEMIRING == MAX) return (Weights){totals.log + ((score + reference) + (float)by), totals.log};
    const Wide wide = v_widen(reference), own = v_widen(score);
    const Wide bias = v_widen(v_load(bias_greatest(s) + v * LANES));
    const Wide all = {wide.low + bias.low + own.low + by, wide.high + bias.high + own.high + by};
    Weights weights = {v_log_plus(totals.log, all), totals.log};
    if (SEMIRING == ENTROPY)
        weights.entropy = v_log(totals.log) + totals.entropy / totals.log +
                          (float)(line_at(s, s->entropy_line, t) - last[1]);
    return weights;
}
#else
// The shifts of boundary t that labels have in common: their logarithms, those of entropies, and
// the exponentials of the logarithms.
static void prepare_shifts(const Scan *s, int64_t t) {
    const int64_t count = least_of(s->longest, t);
    float *log = s->shifts, *entropy = log + s->shifts_pitch, *weight = entropy + s->shifts_pitch;
    int64_t index = row_index(s, t - 1);
    const double *last = s->offsets + 2 * index;
    for (int64_t k = 0; k < count; k++) {
        log[k] = (float)(s->offsets[2 * index] - last[0]);
        if (SEMIRING == ENTROPY) entropy[k] = (float)(s->offsets[2 * index + 1] - last[1]);
        index = index == 0 ? s->capacity - 1 : index - 1;
    }
    if (FORM == MATERIALIZED && SEMIRING != MAX)
        for (int64_t k = 0; k < count; k += LANES) v_store(weight + k, v_exp(v_load(log + k)));
}

static inline Weights combine(const Scan *s, int64_t t, int64_t v) {
    const int64_t count = least_of(s->longest, t);
    vf total = v_all(SEMIRING == MAX ? 4 * ZERO : 0.0f), moment = v_all(0.0f);
    int64_t slot = (t - 1) % s->longest;
    for (int64_t k = 1; k <= count; k++) {
        const int64_t at = slot * s->message_width + (k - 1) * s->message_pitch + v * LANES;
        slot = slot == 0 ? s->longest - 1 : slot - 1;
        vf log = v_all(s->shifts[k - 1]), weight = v_all(s->shifts[2 * s->shifts_pitch + k - 1]);
#if FORM == PER_DURATION
        log += cumulative(s, t - 1, v) - cumulative(s, t - k, v) + v_load(bias_row(s, k) + v * LANES);
        weight = v_exp(log);
#endif
        if (SEMIRING == MAX) {
            total = v_max(total, v_load(s->logs + at) + log);
            continue;
        }
        const vf sum = v_load(s->sums + at) * weight;
        total += sum;
        if (SEMIRING == ENTROPY)
            moment += v_load(s->moments + at) * weight + sum * (s->shifts[s->shifts_pitch + k - 1] - log);
    }
    Weights weights = {total, total};
    if (SEMIRING != MAX && totals_lost(s, t, v, total)) {
        weights = combine_in_log_space(s, t, v);
    } else if (SEMIRING != MAX) {
        const vf log = v_log(total);
        weights = (Weights){log, SEMIRING == ENTROPY ? moment / total + log : log};
    }
    if (FORM != MATERIALIZED) weights.log += cumulative(s, t, v) - cumulative(s, t - 1, v);
    return weights;
}
#endif

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
#if FORM == FIXED
    prepare_ring(s);
#endif
}

// Boundary t, from the messages of t - 1 and before.
static APART void advance(Scan *s, int64_t t) {
    push(s, t - 1);
#if FORM == FIXED
    ring_take(s, t - 1);
#else
    prepare_shifts(s, t);
#endif
    float *row = row_of(s, t);
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const Weights weights = combine(s, t, v);
        v_store(row + v * LANES, weights.log);
        if (SEMIRING == ENTROPY) v_store(row + s->pitch + v * LANES, weights.entropy);
    }
    normalise(s, t);
}

#endif
