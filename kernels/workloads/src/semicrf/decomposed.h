// Messages of decomposed edges. Only the transition depends on the source label, so a message is a
// matrix-vector product in linear space: one exponential a label instead of one an edge. With a
// fixed transition one product serves all durations.
#ifndef SWEEPER_SEMICRF_DECOMPOSED_H
#define SWEEPER_SEMICRF_DECOMPOSED_H

#include "messages.h"

// Tables, in the order of `table_floats` in compiled/layout.rs: rows of labels, the bias by k, then
// by (k,) src the exponentials of transitions (for max the transitions), then those times the
// transitions. Transitions are relative to their table's greatest, the peak, which is added to the
// bias: so no exponential is above 1.
static inline int64_t transition_tables(const Scan *s) { return FORM == FIXED ? 1 : s->longest; }
static inline float *bias_row(const Scan *s, int64_t k) { return s->tables + (k - 1) * s->pitch; }
static inline float *weight_rows(const Scan *s, int64_t table) {
    return s->tables + (s->longest + table * s->labels) * s->pitch;
}
static inline float *product_rows(const Scan *s, int64_t table) {
    return weight_rows(s, transition_tables(s) + table);
}
// After all of those, the exponential of the row whose messages are made, and the peaks.
static inline float *source_weights(const Scan *s) {
    return weight_rows(s, transition_tables(s) * (SEMIRING == ENTROPY ? 2 : 1));
}
static inline float *peaks(const Scan *s) { return source_weights(s) + 2 * s->pitch; }

// transition[src][dst], of duration 1 + table if it depends on the duration.
static inline const float *transition_row(const Scan *s, int64_t table, int64_t src) {
    const int64_t index = FORM == FIXED ? 0 : table + s->first_index;
    return s->transition + (index * s->labels + src) * s->labels;
}

static float peak_of(const Scan *s, int64_t table) {
    const float *scores = transition_row(s, table, 0);
    float most = scores[0];
    for (int64_t i = 1; i < s->labels * s->labels; i++) most = scores[i] > most ? scores[i] : most;
    return SEMIRING == MAX || most < ZERO_BELOW ? 0.0f : most;
}

static APART void prepare_transitions(const Scan *s, int64_t table) {
    peaks(s)[table] = peak_of(s, table);
    for (int64_t src = 0; src < s->labels; src++)
        for (int64_t v = 0; v < vectors_of(s); v++) {
            const float *from = transition_row(s, table, src) + v * LANES;
            const vf score = v_load_part(from, lanes_of(s, v), ZERO) - peaks(s)[table];
            const vf weight = v_exp(score);
            const int64_t at = src * s->pitch + v * LANES;
            v_store(weight_rows(s, table) + at, SEMIRING == MAX ? score : weight);
            if (SEMIRING == ENTROPY) v_store(product_rows(s, table) + at, weight * score);
        }
}

static void prepare_tables(Scan *s) {
    for (int64_t table = 0; table < transition_tables(s); table++) prepare_transitions(s, table);
    for (int64_t k = 1; k <= s->longest; k++)
        for (int64_t v = 0; v < vectors_of(s); v++) {
            const float *from = s->bias + (k - 1 + s->first_index) * s->labels + v * LANES;
            const vf bias = v_load_part(from, lanes_of(s, v), 0.0f);
            v_store(bias_row(s, k) + v * LANES, bias + peaks(s)[FORM == FIXED ? 0 : k - 1]);
        }
}

// Messages of one table, lanes v: the sums (max: the messages), and for entropy the moments.
static inline vf product(const Scan *s, const float *row, int64_t table, int64_t v, vf *moments) {
    const float *weights = weight_rows(s, table) + v * LANES;
    const float *from = source_weights(s);
    vf sums = v_all(SEMIRING == MAX ? 2 * ZERO : 0.0f);
    if (SEMIRING == ENTROPY) *moments = v_all(0.0f);
    for (int64_t src = 0; src < s->labels; src++) {
        const vf weight = v_load(weights + src * s->pitch);
        if (SEMIRING == MAX) {
            sums = v_max(sums, v_all(row[src]) + weight);
        } else {
            sums += from[src] * weight;
            if (SEMIRING == ENTROPY) {
                const vf score = v_load(product_rows(s, table) + src * s->pitch + v * LANES);
                *moments += from[s->pitch + src] * weight - from[src] * score;
            }
        }
    }
    return sums;
}

// All messages of boundary n.
static APART void push(Scan *s, int64_t n) {
    const float *row = row_of(s, n);
    if (SEMIRING != MAX)
        for (int64_t v = 0; v < vectors_of(s); v++) {
            const vf l = v_load(row + v * LANES), weight = v_exp(l);
            v_store(source_weights(s) + v * LANES, weight);
            if (SEMIRING == ENTROPY)
                v_store(source_weights(s) + s->pitch + v * LANES,
                        weight * (v_load(row + s->pitch + v * LANES) - l));
        }
    const int64_t tables = FORM == FIXED ? 1 : least_of(s->longest, s->end - n);
    for (int64_t table = 0; table < tables; table++)
        for (int64_t v = 0; v < vectors_of(s); v++) {
            const int64_t at = message_at(s, n, table + 1) + v * LANES;
            vf moments;
            const vf sums = product(s, row, table, v, &moments);
            v_store((SEMIRING == MAX ? s->logs : s->sums) + at, sums);
            if (SEMIRING == MAX) continue;
            if (SEMIRING == ENTROPY) v_store(s->moments + at, moments);
            if (!v_any(out_of_range(sums) & v_first(lanes_of(s, v)))) continue;
            for (int64_t c = 0; c < lanes_of(s, v); c++)
                if (!(sums[c] > LEAST_SUM && sums[c] < MOST_SUM))
                    message_in_log_space(s, n, at + c, transition_row(s, table, 0) + v * LANES + c,
                                         s->labels, peaks(s)[table]);
        }
}

// The part of a path's score that segment (n, k) with labels src, dst adds.
static inline float edge_score(const Scan *s, int64_t n, int64_t k, int64_t dst, int64_t src) {
    const int64_t end = (n + k) * s->labels + dst, start = n * s->labels + dst;
    return s->scores[end] - s->scores[start] + bias_row(s, k)[dst] +
           transition_row(s, k - 1, src)[dst];
}

#endif
