// Arithmetic over a block of edges as one flat stretch of memory, without a lane wasted whatever
// the number of labels: rows of `labels` floats lie one behind the other and straddle vectors.
//
// After `period` elements, the least common multiple of `labels` and LINE, rows and vectors begin
// together again; what depends on an element's place in its row is a pattern of that many elements.
#ifndef SWEEPER_SEMICRF_FLAT_H
#define SWEEPER_SEMICRF_FLAT_H

#include <stdint.h>

#include "vector.h"

// Elements that are worked on at a time, so that they stay in the first-level cache.
#define CHUNK 4096

static inline int64_t period_of(int64_t labels) {
    int64_t odd = labels, even = 1;
    while (odd % 2 == 0 && even < LINE) odd /= 2, even *= 2;
    return odd * LINE;
}

// Whole periods that make up about a chunk.
static inline int64_t chunk_of(int64_t period) {
    return period >= CHUNK ? period : CHUNK / period * period;
}

// Fills a pattern with copies of a row. Writes up to LANES - 1 elements past the period.
static inline void repeat_row(float *pattern, int64_t period, const float *row, int64_t labels) {
    for (int64_t first = 0; first < period; first += labels)
        for (int64_t c = 0; c < labels; c += LANES) v_store(pattern + first + c, v_load(row + c));
}

// Combines the `labels` elements of each row into one, in place; rows lie one behind the other and
// so do the results. Halves and thirds rows while it can. May touch a period and 48 elements past
// the end.
#define FLAT_REDUCE(name, combine)                                                                 \
    static APART void name(float *x, int64_t rows, int64_t labels) {                                 \
        for (; labels % 2 == 0; labels /= 2)                                                       \
            for (int64_t i = 0; i < rows * labels / 2; i += LANES) {                               \
                const vf a = v_load(x + 2 * i), b = v_load(x + 2 * i + LANES);                     \
                v_store(x + i, combine(v_even(a, b), v_odd(a, b)));                                \
            }                                                                                      \
        for (; labels % 3 == 0; labels /= 3)                                                       \
            for (int64_t i = 0; i < rows * labels / 3; i += LANES) {                               \
                const float *from = x + 3 * i;                                                     \
                const vf a = v_load(from), b = v_load(from + LANES), c = v_load(from + 2 * LANES); \
                v_store(x + i,                                                                     \
                        combine(combine(v_third0(a, b, c), v_third1(a, b, c)), v_third2(a, b, c)));\
            }                                                                                      \
        if (labels == 1) return;                                                                   \
        for (int64_t row = 0; row < rows; row += LANES) {                                          \
            vf all;                                                                                \
            for (int i = 0; i < LANES; i++) all[i] = x[(row + i) * labels];                        \
            for (int64_t c = 1; c < labels; c++) {                                                 \
                vf one;                                                                            \
                for (int i = 0; i < LANES; i++) one[i] = x[(row + i) * labels + c];                \
                all = combine(all, one);                                                           \
            }                                                                                      \
            v_store(x + row, all);                                                                 \
        }                                                                                          \
    }
FLAT_REDUCE(flat_sums, v_add)
FLAT_REDUCE(flat_greatest, v_max)

#endif
