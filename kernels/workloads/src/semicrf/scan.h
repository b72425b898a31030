// One sequence of a semi-Markov CRF: where everything lies, and the arguments of both passes.
//
// Weights are kept as logarithms relative to an offset: boundary n, label c weighs exp(offset[n] +
// row[n][c]), where the greatest row[n][c] is 0 and offsets are f64. An f32 near 3e4 would be 0.002
// apart from the next. Entropies have offsets of their own.
//
// Compile-time words: FORM, SEMIRING, and LINES, the lines of cache that hold a row of labels,
// where the canonical shape bounds them.
#ifndef SWEEPER_SEMICRF_SCAN_H
#define SWEEPER_SEMICRF_SCAN_H

#include <string.h>

#include "cpu.h"
#include "elementary.h"

#define MATERIALIZED 0
#define FIXED 1
#define PER_DURATION 2
#define LOG 0
#define MAX 1
#define ENTROPY 2

// What is forbidden weighs -1e9. Below half of that, nothing is legal.
#define ZERO -1e9f
#define ZERO_BELOW -5e8f
// Linear sums outside of these ranges are done again in log space. An exponential below 1.2e-38 is
// flushed to 0: what a message loses by that is nothing beside LEAST_SUM, and what a boundary
// loses, a flushed factor times at most MOST_SUM (in the ring of ring.h times TOO_MUCH), is nothing
// beside LEAST_TOTAL.
#define LEAST_SUM 1e-30f
#define MOST_SUM 1e4f
#define LEAST_TOTAL (FORM == FIXED ? 1e-14f : 1e-24f)
#define MOST_TOTAL 1e30f

// Arguments of both passes. Arrays that each sequence has a part of are followed by the part's
// length.
enum {
    ARG_POSITIONS, ARG_DURATIONS, ARG_LABELS, ARG_LONGEST, ARG_FIRST_INDEX, ARG_INTERVAL,
    ARG_LENGTHS, ARG_SCORES, ARG_TRANSITION = ARG_SCORES + 2, ARG_BIAS,
    ARG_ROWS, ARG_OFFSETS = ARG_ROWS + 2, ARG_CHECKPOINTS = ARG_OFFSETS + 2,
    ARG_CHECKPOINT_OFFSETS = ARG_CHECKPOINTS + 2, ARG_MESSAGES = ARG_CHECKPOINT_OFFSETS + 2,
    ARG_TABLES = ARG_MESSAGES + 2, ARG_RING = ARG_TABLES + 2, ARG_PASS = ARG_RING + 2,
};
#define ARG_PART(args, position, type, block) \
    (ARG_WRITE(args, position, type) + (int64_t)(block) * ARG_INT(args, (position) + 1))

// A line over boundaries, from an origin on.
typedef struct {
    double start, slope;
} Line;

typedef struct {
    int64_t labels, pitch, longest, end;  // pitch: floats of a row of labels, whole lines
    int64_t first_index, durations, interval;

    const float *scores, *scores_end;  // edges, or cumulative scores, of this sequence; end of the tensor
    const float *transition, *bias;

    // Rows of boundaries `base` and on; `capacity` of them, then the first is overwritten.
    float *rows;
    double *offsets;
    int64_t base, capacity;
    float *checkpoints;
    double *checkpoint_offsets;

    // Messages of the last `longest` boundaries: what each adds to later ones, see messages.h.
    float *sums, *logs, *moments, *entropies;
    int64_t message_width, message_pitch;
    int64_t odd_until;  // no later boundary receives a message that is kept as a logarithm
    float *tables;
    float *shifts;  // after the tables: see forward.h
    int64_t shifts_pitch;

    float *ring;  // see ring.h
    int64_t origin;
    Line line, entropy_line;
} Scan;

// Log weights and entropies of some labels.
typedef struct {
    vf log, entropy;
} Weights;


// With narrow vectors, those are left out that hold no label.
static inline int64_t vectors_of(const Scan *s) {
#if defined(LINES) && LANES == LINE
    (void)s;
    return LINES;
#else
    return (s->labels + LANES - 1) / LANES;
#endif
}

static inline int64_t least_of(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t row_floats(const Scan *s) {
    return s->pitch * (SEMIRING == ENTROPY ? 2 : 1);
}
static inline int64_t row_index(const Scan *s, int64_t n) {
    const int64_t index = n - s->base;
    return index < s->capacity ? index : index % s->capacity;
}
static inline float *row_of(const Scan *s, int64_t n) {
    return s->rows + row_index(s, n) * row_floats(s);
}
// The log weights' offset, then the entropies'.
static inline double *offset_of(const Scan *s, int64_t n) { return s->offsets + 2 * row_index(s, n); }

// Cumulative scores of boundary n, lanes v; lanes that are no label are never used.
static inline vf cumulative(const Scan *s, int64_t n, int64_t v) {
    const float *from = s->scores + n * s->labels + v * LANES;
    if (from + LANES <= s->scores_end) return v_load(from);
    return v_load_part(from, s->scores_end - from, 0.0f);
}

// How many of the lanes of vector v are labels.
static inline int64_t lanes_of(const Scan *s, int64_t v) {
    return least_of(LANES, s->labels - v * LANES);
}

static Scan scan_of(const uint64_t *args, uint32_t block) {
    const int64_t positions = ARG_INT(args, ARG_POSITIONS);
    const int64_t sequence_end = ARG_READ(args, ARG_LENGTHS, int64_t)[block] - (FORM == MATERIALIZED);
    Scan s = {
        .labels = ARG_INT(args, ARG_LABELS),
        .longest = ARG_INT(args, ARG_LONGEST),
        .end = sequence_end,
        .first_index = ARG_INT(args, ARG_FIRST_INDEX),
        .durations = ARG_INT(args, ARG_DURATIONS),
        .interval = ARG_INT(args, ARG_INTERVAL),
        .transition = ARG_READ(args, ARG_TRANSITION, float),
        .bias = ARG_READ(args, ARG_BIAS, float),
        .rows = ARG_PART(args, ARG_ROWS, float, block),
        .offsets = ARG_PART(args, ARG_OFFSETS, double, block),
        .checkpoints = ARG_PART(args, ARG_CHECKPOINTS, float, block),
        .checkpoint_offsets = ARG_PART(args, ARG_CHECKPOINT_OFFSETS, double, block),
        .sums = ARG_PART(args, ARG_MESSAGES, float, block),
        .tables = ARG_PART(args, ARG_TABLES, float, block),
        .ring = ARG_PART(args, ARG_RING, float, block),
    };
#ifdef LINES
    s.pitch = LINES * LINE;
#else
    s.pitch = (s.labels + LINE - 1) / LINE * LINE;
#endif
    s.capacity = ARG_INT(args, ARG_OFFSETS + 1) / 2;
    s.shifts_pitch = (s.longest + LINE - 1) / LINE * LINE;
    s.shifts = s.tables + ARG_INT(args, ARG_TABLES + 1) - 3 * s.shifts_pitch;
    const int64_t row = FORM == MATERIALIZED ? s.durations * s.labels * s.labels : s.labels;
    const int64_t step = (FORM == MATERIALIZED ? positions - 1 : positions + 1) * row;
    s.scores = ARG_READ(args, ARG_SCORES, float) + block * step;
    s.scores_end = ARG_READ(args, ARG_SCORES, float) + ARG_INT(args, ARG_SCORES + 1);
    return s;
}

#endif
