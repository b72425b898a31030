// Messages of materialized edges: one exponential an edge, over flat blocks (k, dst, src).
#ifndef SWEEPER_SEMICRF_MATERIALIZED_H
#define SWEEPER_SEMICRF_MATERIALIZED_H

#include "flat.h"
#include "messages.h"

// Flat workspace, in the order of `flat_floats` in compiled/layout.rs.
typedef struct {
    int64_t period, chunk;
    float *weights, *entropies;  // patterns of a row
    float *first, *second;       // a chunk each
} Flat;

static Flat flat_of(const Scan *s) {
    Flat flat = {.period = period_of(s->labels)};
    flat.chunk = chunk_of(flat.period);
    flat.weights = s->tables;
    flat.entropies = flat.weights + flat.period + s->pitch;
    flat.first = flat.entropies + flat.period + s->pitch;
    flat.second = flat.first + flat.chunk + flat.period + 3 * LANES;
    return flat;
}

static void prepare_tables(Scan *s) { (void)s; }

// The edges of duration 1 that start at n; longer ones follow.
static inline const float *edges_at(const Scan *s, int64_t n) {
    return s->scores + (n * s->durations + s->first_index) * s->labels * s->labels;
}

static inline vf edges_load(const float *from, const float *end) {
    if (from + LANES <= end) return v_load(from);
    return v_load_part(from, end - from, ZERO);
}

// Terms of `count` edges from `edges` on, which begin a row. Memory may end at `end`.
static APART void flat_terms(const Flat *flat, const float *edges, const float *end, int64_t count) {
    int64_t phase = 0;
    for (int64_t i = 0; i < count; i += LANES) {
        const vf l = edges_load(edges + i, end) + v_load(flat->weights + phase);
        if (SEMIRING == MAX) {
            v_store(flat->first + i, l);
        } else {
            const vf p = v_exp(l);
            v_store(flat->first + i, p);
            if (SEMIRING == ENTROPY)
                v_store(flat->second + i, p * (v_load(flat->entropies + phase) - l));
        }
        phase = phase + LANES == flat->period ? 0 : phase + LANES;
    }
}

// Does messages out of range again; edges of row r of the block at r * labels.
static APART void repair_messages(Scan *s, int64_t n, int64_t rows) {
    const int64_t first = message_at(s, n, 1);
    for (int64_t row = 0; row < rows; row++) {
        const float sum = s->sums[first + row];
        if (!(sum >= LEAST_SUM && sum <= MOST_SUM))
            message_in_log_space(s, n, first + row, edges_at(s, n) + row * s->labels, 1, 0.0f);
    }
}

// All messages of boundary n.
static void push(Scan *s, int64_t n) {
    const Flat flat = flat_of(s);
    const float *row = row_of(s, n);
    repeat_row(flat.weights, flat.period, row, s->labels);
    if (SEMIRING == ENTROPY) repeat_row(flat.entropies, flat.period, row + s->pitch, s->labels);
    const int64_t rows = least_of(s->longest, s->end - n) * s->labels;
    const int64_t rows_of_chunk = flat.chunk / s->labels, first = message_at(s, n, 1);
    int odd = 0;
    for (int64_t done = 0; done < rows; done += rows_of_chunk) {
        const int64_t count = least_of(rows_of_chunk, rows - done);
        flat_terms(&flat, edges_at(s, n) + done * s->labels, s->scores_end, count * s->labels);
        if (SEMIRING == MAX) {
            flat_greatest(flat.first, count, s->labels);
        } else {
            flat_sums(flat.first, count, s->labels);
            if (SEMIRING == ENTROPY) flat_sums(flat.second, count, s->labels);
        }
        for (int64_t i = 0; i < count; i += LANES) {
            const vf x = v_load(flat.first + i);
            v_store((SEMIRING == MAX ? s->logs : s->sums) + first + done + i, x);
            if (SEMIRING != MAX) odd |= v_any(out_of_range(x) & v_first(count - i));
            if (SEMIRING == ENTROPY) v_store(s->moments + first + done + i, v_load(flat.second + i));
        }
    }
    if (odd) repair_messages(s, n, rows);
}

// The part of a path's score that segment (n, k) with labels src, dst adds.
static inline float edge_score(const Scan *s, int64_t n, int64_t k, int64_t dst, int64_t src) {
    return edges_at(s, n)[((k - 1) * s->labels + dst) * s->labels + src];
}

#endif
