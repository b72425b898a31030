// Gradients of materialized edges: again one exponential an edge over flat blocks, and the gradient
// of the boundary's own row is summed along the way.
#ifndef SWEEPER_SEMICRF_MATERIALIZED_BACKWARD_H
#define SWEEPER_SEMICRF_MATERIALIZED_BACKWARD_H

#include "targets.h"

// Workspace, in the order of `pass_floats` in compiled/layout.rs. Rows are (k, dst), patterns
// repeat (src).
typedef struct {
    float *scores, *gradients, *entropy_gradients;  // rows
    float *sums, *entropy_sums;                     // patterns
    int32_t *row_of_lane;                           // pattern: the row of a lane, less the next
    int32_t *row_of_vector;                         // the row of each vector's first lane
    float *gradient;                                // of this sequence's edges
    int64_t step;                                   // edges of a boundary
} Work;

static Work work_of(const Scan *s, float *floats, float *parts, float *gradient) {
    (void)parts;
    const int64_t rows = s->longest * s->labels + 2 * s->pitch, period = period_of(s->labels);
    Work w = {.scores = floats, .gradients = floats + rows, .entropy_gradients = floats + 2 * rows};
    w.sums = floats + 3 * rows;
    w.entropy_sums = w.sums + period;
    w.row_of_lane = (int32_t *)(w.entropy_sums + period);
    w.row_of_vector = w.row_of_lane + period;
    for (int64_t i = 0; i < period; i++) {
        const int64_t first = i / LANES * LANES / s->labels;
        w.row_of_lane[i] = (int32_t)(i / s->labels - first);
        w.row_of_vector[i / LANES] = (int32_t)first;
    }
    w.gradient = gradient;
    w.step = s->durations * s->labels * s->labels;
    return w;
}

static inline void zero(float *from, int64_t count) {
    if (count > 0) memset(from, 0, (size_t)count * sizeof(float));
}

// Rows of all segments that start at n, `count` durations.
static APART void gather_rows(const Scan *s, const Targets *t, const Work *w, int64_t n, int64_t count) {
    for (int64_t k = 1; k <= count; k++) {
        const float by = offset_before(s, t, n, k, 0);
        const float entropy_by = SEMIRING == ENTROPY ? offset_before(s, t, n, k, 1) : 0.0f;
        for (int64_t v = 0; v < vectors_of(s); v++) {
            const int64_t from = target_at(t, n + k) + v * LANES;
            const int64_t to = (k - 1) * s->labels + v * LANES;
            vf gradient = v_load(t->gradients + from);
            if (SEMIRING == ENTROPY) {
                const vf share = v_load(t->entropy_gradients + from);
                gradient += share * (entropy_by - v_load(t->entropies + from));
                v_store(w->entropy_gradients + to, share);
            }
            v_store(w->scores + to, v_load(t->scores + from) + by);
            v_store(w->gradients + to, gradient);
        }
    }
}

// Gradients of one vector of edges, whose rows are `row` and the ones after it.
typedef struct {
    vf gradient, entropy_gradient;
} Gradients;

static inline Gradients edge_gradients(const Work *w, const Flat *flat, vf edge, int64_t phase,
                                       int64_t row) {
    const vi lane = vi_load(w->row_of_lane + phase);
    const vf score = v_permute(v_load(w->scores + row), lane);
    const vf log = v_min(edge + v_load(flat->weights + phase) + score, v_all(0.0f));
    const vf p = v_probability(log);
    Gradients g = {p * v_permute(v_load(w->gradients + row), lane), p};
    if (SEMIRING == ENTROPY) {
        g.entropy_gradient = p * v_permute(v_load(w->entropy_gradients + row), lane);
        g.gradient += g.entropy_gradient * (v_load(flat->entropies + phase) - log);
    }
    return g;
}

static inline void add_to(float *sums, vf x) { v_store(sums, v_load(sums) + x); }

// Gradients of `count` edges, and their sums by source.
static APART void flat_gradients(const Scan *s, const Flat *flat, const Work *w, const float *edges,
                           float *gradient, int64_t count) {
    int64_t phase = 0, row = 0, i = 0;
    for (; i + LANES <= count; i += LANES) {
        const Gradients g = edge_gradients(w, flat, v_load(edges + i), phase,
                                           row + w->row_of_vector[phase / LANES]);
        v_store(gradient + i, g.gradient);
        add_to(w->sums + phase, g.gradient);
        if (SEMIRING == ENTROPY) add_to(w->entropy_sums + phase, g.entropy_gradient);
        phase += LANES;
        if (phase == flat->period) phase = 0, row += flat->period / s->labels;
    }
    if (i == count) return;
    const Gradients g = edge_gradients(w, flat, v_load_part(edges + i, count - i, ZERO), phase,
                                       row + w->row_of_vector[phase / LANES]);
    const vi inside = v_first(count - i);
    for (int64_t j = 0; j < count - i; j++) gradient[i + j] = g.gradient[j];
    add_to(w->sums + phase, v_select(inside, g.gradient, v_all(0.0f)));
    if (SEMIRING == ENTROPY)
        add_to(w->entropy_sums + phase, v_select(inside, g.entropy_gradient, v_all(0.0f)));
}

// Folds a pattern of sums into a row of labels.
static void fold(const Scan *s, const float *pattern, int64_t period, float *row) {
    for (int64_t c = 0; c < s->labels; c++) {
        float sum = 0.0f;
        for (int64_t i = c; i < period; i += s->labels) sum += pattern[i];
        row[c] = sum;
    }
    for (int64_t c = s->labels; c < s->pitch; c++) row[c] = 0.0f;
    for (int64_t c = 0; c < s->pitch; c += LANES) v_store(row + c, without_traces(v_load(row + c)));
}

// Boundary n, whose targets are all there.
static void retreat(Scan *s, const Targets *t, const Work *w, int64_t n) {
    const Flat flat = flat_of(s);
    const float *own = row_of(s, n);
    const int64_t count = least_of(s->longest, s->end - n), block = s->labels * s->labels;
    repeat_row(flat.weights, flat.period, own, s->labels);
    if (SEMIRING == ENTROPY) repeat_row(flat.entropies, flat.period, own + s->pitch, s->labels);
    gather_rows(s, t, w, n, count);
    zero(w->sums, 2 * flat.period);
    float *gradient = w->gradient + n * w->step + s->first_index * block;
    zero(gradient - s->first_index * block, s->first_index * block);
    flat_gradients(s, &flat, w, edges_at(s, n), gradient, count * block);
    zero(gradient + count * block, w->step - (s->first_index + count) * block);
    fold(s, w->sums, flat.period, t->gradients + target_at(t, n));
    if (SEMIRING == ENTROPY)
        fold(s, w->entropy_sums, flat.period, t->entropy_gradients + target_at(t, n));
    keep_target(s, t, n);
}

// Everything that no segment of the sequence reaches.
static void finish(const Scan *s, const Targets *t, const Work *w, int64_t positions) {
    (void)t;
    zero(w->gradient + s->end * w->step, (positions - 1 - s->end) * w->step);
}

static void conclude(const Scan *s, const Work *w) { (void)s, (void)w; }

static void begin_best(const Scan *s, const Work *w, int64_t positions) {
    (void)s;
    zero(w->gradient, (positions - 1) * w->step);
}

static void mark(const Scan *s, const Work *w, int64_t n, int64_t k, int64_t dst, int64_t src) {
    w->gradient[n * w->step + ((k - 1 + s->first_index) * s->labels + dst) * s->labels + src] = 1.0f;
}

#endif
