// The backward pass of one sequence a block: gradients. Rows come from the forward pass, or with an
// interval from its checkpoints: one interval after the other, the last one first, is computed
// again.
#include "scan.h"

#if FORM == MATERIALIZED
#include "materialized_backward.h"
#else
#include "decomposed_backward.h"
#endif

enum {
    ARG_TARGETS = ARG_PASS, ARG_TARGET_OFFSETS = ARG_TARGETS + 2, ARG_WORK = ARG_TARGET_OFFSETS + 2,
    ARG_PARTS = ARG_WORK + 2, ARG_GRADIENT = ARG_PARTS + 2,
};

// Computes the rows of boundaries lo..hi-1 again: by the same arithmetic, so to the same bits.
static void recompute(Scan *s, int64_t lo, int64_t hi) {
    s->odd_until = 0;
    s->base = lo == 0 ? 0 : lo - s->longest;
    if (lo == 0) {
        begin(s);
    } else {
        const int64_t first = (lo / s->interval - 1) * s->longest;
        memcpy(s->rows, s->checkpoints + first * row_floats(s),
               (size_t)(s->longest * row_floats(s)) * sizeof(float));
        memcpy(s->offsets, s->checkpoint_offsets + 2 * first, (size_t)(2 * s->longest) * sizeof(double));
        for (int64_t n = lo - s->longest; n < lo - 1; n++) push(s, n);
#if FORM == FIXED
        prepare_ring(s);
#endif
    }
    for (int64_t t = lo == 0 ? 1 : lo; t < hi; t++) {
        advance(s, t);
    }
}

// A place on the best segmentation.
typedef struct {
    int64_t boundary, label;
} Place;

static Place best_end(const Scan *s) {
    const float *row = row_of(s, s->end);
    Place place = {s->end, 0};
    for (int64_t c = 1; c < s->labels; c++)
        if (row[c] > row[place.label]) place.label = c;
    return place;
}

// Marks the last segment of the best segmentation that ends at `at`. Of equals: the shortest, then
// the least source label.
static Place mark_segment(const Scan *s, const Work *w, Place at) {
    const double last = offset_of(s, at.boundary - 1)[0];
    float best = 8 * ZERO;
    int64_t duration = 1, label = 0;
    for (int64_t k = 1; k <= least_of(s->longest, at.boundary); k++) {
        const int64_t n = at.boundary - k;
        const float *row = row_of(s, n), by = (float)(offset_of(s, n)[0] - last);
        for (int64_t src = 0; src < s->labels; src++) {
            const float score = row[src] + by + edge_score(s, n, k, at.label, src);
            if (score > best) best = score, duration = k, label = src;
        }
    }
    mark(s, w, at.boundary - duration, duration, at.label, label);
    return (Place){at.boundary - duration, label};
}

KERNEL(semicrf_backward, args, block) {
    const int64_t positions = ARG_INT(args, ARG_POSITIONS);
    Scan s = scan_of(args, block);
    place_messages(&s);
    prepare_tables(&s);
    const Targets targets = targets_of(&s, ARG_PART(args, ARG_TARGETS, float, block),
                                       ARG_PART(args, ARG_TARGET_OFFSETS, double, block));
    const Work work = work_of(&s, ARG_PART(args, ARG_WORK, float, block),
                              ARG_PART(args, ARG_PARTS, float, block),
                              ARG_PART(args, ARG_GRADIENT, float, block));
    const int64_t interval = s.checkpoints != 0 ? s.interval : s.end + 1;
    Place place = {0, 0};
    for (int64_t lo = s.end / interval * interval; lo >= 0; lo -= interval) {
        const int64_t hi = least_of(lo + interval, s.end + 1);
        if (s.checkpoints != 0) recompute(&s, lo, hi);
        if (SEMIRING == MAX) {
            if (hi > s.end) {
                begin_best(&s, &work, positions);
                place = best_end(&s);
            }
            while (place.boundary >= lo && place.boundary > 0) place = mark_segment(&s, &work, place);
            continue;
        }
        if (hi > s.end) {
            begin_targets(&s, &targets);
            finish(&s, &targets, &work, positions);
        }
        for (int64_t n = least_of(hi, s.end) - 1; n >= lo; n--) retreat(&s, &targets, &work, n);
    }
    if (SEMIRING != MAX) conclude(&s, &work);
}
