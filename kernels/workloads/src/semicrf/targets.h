// The backward pass goes from the end to the start, and each boundary asks the `longest` later
// ones, its targets, for their part. A segment's part of a target's gradient is the probability
//
//     p = exp(log weight of the segment before it, and its edge - log weight of the target) <= 1
//
// so nothing here can leave the range of f32, and what is flushed to 0 is nothing beside the rest.
// Log: gradient = p * target's. Entropy, with gradients gl of log weights and gh of entropies:
//
//     gradient of the log weight  p (gl + gh (h - H - log p)),  of the entropy  p gh
//
// where h is the segment's entropy and H the target's, which follows from
// L = logsumexp l and H = sum p (h - log p).
#ifndef SWEEPER_SEMICRF_TARGETS_H
#define SWEEPER_SEMICRF_TARGETS_H

#include "forward.h"

// Rows of labels for each of the last `longest` boundaries, in the order of `target_floats` in
// compiled.rs. `scores` is the cumulative score less the log weight.
typedef struct {
    float *scores, *gradients, *entropy_gradients, *entropies;
    double *offsets;
    int64_t pitch, longest;
} Targets;

static Targets targets_of(const Scan *s, float *floats, double *offsets) {
    const int64_t plane = s->longest * s->pitch;
    return (Targets){floats, floats + plane, floats + 2 * plane, floats + 3 * plane,
                     offsets, s->pitch, s->longest};
}

// A gradient is a sum of probabilities: what is less than this is nothing, and denormal soon.
#define LEAST_GRADIENT 1e-20f
static inline vf without_traces(vf x) {
    const vi counts = v_less(v_all(LEAST_GRADIENT), x) | v_less(x, v_all(-LEAST_GRADIENT));
    return v_select(counts, x, v_all(0.0f));
}

static inline int64_t target_at(const Targets *t, int64_t n) { return n % t->longest * t->pitch; }

// Makes boundary n a target. Its gradients are in place already.
static void keep_target(const Scan *s, const Targets *t, int64_t n) {
    const float *row = row_of(s, n);
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const int64_t at = target_at(t, n) + v * LANES;
        const vf score = FORM == MATERIALIZED ? v_all(0.0f) : cumulative(s, n, v);
        v_store(t->scores + at, score - v_load(row + v * LANES));
        if (SEMIRING == ENTROPY) v_store(t->entropies + at, v_load(row + s->pitch + v * LANES));
    }
    memcpy(t->offsets + 2 * (n % t->longest), offset_of(s, n), 2 * sizeof(double));
}

// Offsets of boundary n less those of target n + k, in f32.
static inline float offset_before(const Scan *s, const Targets *t, int64_t n, int64_t k, int which) {
    return (float)(offset_of(s, n)[which] - t->offsets[2 * ((n + k) % t->longest) + which]);
}

// Gradients of the value, and of the entropy, at the last boundary.
static void begin_targets(const Scan *s, const Targets *t) {
    const float *row = row_of(s, s->end);
    float total = 0.0f, moment = 0.0f;
    for (int64_t c = 0; c < s->labels; c++) {
        const float p = exp_one(row[c]);
        total += p;
        if (SEMIRING == ENTROPY) moment += p * (row[s->pitch + c] - row[c]);
    }
    const int64_t at = target_at(t, s->end);
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const vf l = v_load(row + v * LANES), p = v_exp(l) / total;
        vf gradient = p;
        if (SEMIRING == ENTROPY) {
            const vf h = v_load(row + s->pitch + v * LANES);
            gradient += p * (h - l - moment / total);
            v_store(t->entropy_gradients + at + v * LANES, without_traces(p));
        }
        v_store(t->gradients + at + v * LANES, without_traces(gradient));
    }
    keep_target(s, t, s->end);
}

#endif
