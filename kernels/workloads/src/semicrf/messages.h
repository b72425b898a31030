// Messages: what a boundary tells the ones after it. Message (n, k, dst) is the sum over source
// labels of row[n][src] and the part of the edge that depends on src, relative to the offset of n:
//
//     materialized   (+) over src of row[n][src] + edge[n][k][dst][src]
//     fixed          (+) over src of row[n][src] + transition[src][dst] - peak, one for all k
//     per duration   (+) over src of row[n][src] + transition[k][src][dst] - peak[k]
//
// Log: `sums` holds its exponential, or 0 where that is out of range; `logs` is valid there. Max:
// `logs` alone. Entropy: `moments` holds the sum of exp(l) (h - l) beside `sums`, where l and h are
// a term's log weight and entropy, and `entropies` the entropy where `sums` is 0.
#ifndef SWEEPER_SEMICRF_MESSAGES_H
#define SWEEPER_SEMICRF_MESSAGES_H

#include "scan.h"

// Lays out the ring of messages; the layout is that of `message_floats` in compiled/layout.rs.
static void place_messages(Scan *s) {
    s->message_pitch = FORM == MATERIALIZED ? s->labels : FORM == FIXED ? 0 : s->pitch;
    s->message_width = FORM == FIXED ? s->pitch : s->longest * s->message_pitch + s->pitch;
    const int64_t plane = s->longest * s->message_width;
    s->logs = s->sums + (SEMIRING == MAX ? 0 : plane);
    s->moments = s->logs + plane;
    s->entropies = s->moments + plane;
}

// Index of message (n, k, 0) in each plane.
static inline int64_t message_at(const Scan *s, int64_t n, int64_t k) {
    return n % s->longest * s->message_width + (k - 1) * s->message_pitch;
}

// One message term by term in log space, for sums that are out of range. `scores` is strided over
// src.
static APART void message_in_log_space(Scan *s, int64_t n, int64_t at, const float *scores, int64_t stride,
                                 float peak) {
    const float *row = row_of(s, n), *entropy = row + s->pitch;
    float most = row[0] + scores[0];
    for (int64_t src = 1; src < s->labels; src++) {
        const float l = row[src] + scores[src * stride];
        most = l > most ? l : most;
    }
    s->sums[at] = 0.0f;
    s->logs[at] = most - peak;
    if (SEMIRING == ENTROPY) s->entropies[at] = 0.0f;
    if (most < ZERO_BELOW) return;  // nothing legal: its exact weight does not matter
    float sum = 0.0f, moment = 0.0f;
    for (int64_t src = 0; src < s->labels; src++) {
        const float l = row[src] + scores[src * stride] - most, p = exp_one(l);
        sum += p;
        if (SEMIRING == ENTROPY) moment += p * (entropy[src] - l);
    }
    s->logs[at] = most - peak + log_one(sum);
    if (SEMIRING == ENTROPY) s->entropies[at] = moment / sum + log_one(sum);
    if (s->odd_until < n + s->longest) s->odd_until = n + s->longest;
}

// True for NaN, too.
static inline vi out_of_range(vf sums) { return ~(v_less(v_all(LEAST_SUM), sums) & v_less(sums, v_all(MOST_SUM))); }

#endif
