// One sequence, scanned from its start (forward) or from its end: where its scores and results lie.
//
// Both directions take steps 0, 1, ... from boundary 0 or `end`. The weight of a step's label o is
// the sum over all ways to get there; a segment of k boundaries with labels i, o leads from a step
// to the k-th after it. Forward, i is the segment's source label and o its destination, else the
// reverse.
#ifndef SWEEPER_SEMICRF_SEQUENCE_CUH
#define SWEEPER_SEMICRF_SEQUENCE_CUH

#include "weights.cuh"

constexpr bool IS_FULL = FORM != FIXED;             // edges depend on duration and both labels
constexpr int CHAIN = WIDTH < 32 ? 32 : WIDTH;      // threads that go from step to step
constexpr bool IS_TABLED = WIDTH <= 64;             // weights of edges of one boundary are in a table
constexpr bool IS_STAGED = FORM == MATERIALIZED && WIDTH <= 32;  // edges come ahead of time
constexpr int TABLE = IS_TABLED ? WIDTH : 4;        // rows of that table
constexpr int PLANES = (IS_FULL ? 1 : 2) * (HAS_ENTROPY ? 2 : 1);  // of a row that is kept
constexpr int SCORES_AHEAD = 8;                     // rows of scores, a power of two

struct Sequence {
    int labels, longest, durations, first_index, end;
    bool forward;
    const float *scores, *scores_end;  // of this sequence; end of the tensor
    const float *transition, *bias;

    METHOD int boundary(int step) const { return forward ? step : end - step; }
    // Scores that are added going into a step's label, with a fixed transition.
    METHOD const float *score_row(int step) const { return scores + (int64)boundary(step) * labels; }
    METHOD Split score(float nats) const {
        Split s = split(nats);
        if (!forward) s.whole = -s.whole, s.part = -s.part;
        return s;
    }

    // The block of C x C numbers of segments (step, k), edges or transitions, is `origin` + k *
    // `apart`.
    METHOD const float *origin(int step) const {
        const int64 size = labels * labels, duration = first_index - 1;
        if (FORM == FIXED) return transition;
        if (FORM == PER_DURATION) return transition + duration * size;
        return scores + ((int64)boundary(step) * durations + duration) * size;
    }
    METHOD int apart() const {
        const int size = labels * labels;
        return FORM == FIXED ? 0 : FORM == PER_DURATION || forward ? size : size - durations * size;
    }
    // How far, in floats, a block lies behind a multiple of 16 bytes. In 32 bits, as only the last
    // ones count.
    METHOD int misaligned(int step, int k) const {
        const unsigned first = (unsigned)boundary(step) * durations + (first_index - 1);
        const unsigned at = (unsigned)((unsigned long long)scores >> 2) + first * (labels * labels);
        return (int)((at + (unsigned)k * (unsigned)apart()) & 3);
    }
    METHOD const float *block(int step, int k) const { return origin(step) + (int64)k * apart(); }
    // Strides of a block's labels: edges are [dst][src], transitions [src][dst].
    METHOD int out_stride() const { return (FORM == MATERIALIZED) == forward ? labels : 1; }
    METHOD int in_stride() const { return (FORM == MATERIALIZED) == forward ? 1 : labels; }

    // What a segment with destination `dst` scores beside its transition, in units.
    METHOD float segment(int step, int k, int dst) const {
        const int from = forward ? step : end - step - k;
        const float *score = scores + (int64)from * labels + dst;
        return ((score[(int64)k * labels] - score[0]) + bias[(k - 1 + first_index) * labels + dst]) * UNITS;
    }
    // The log weight of segment (step, k, o, i), without what `outside` adds to all i.
    METHOD float edge(int step, int k, int o, int i) const {
        const float units = block(step, k)[o * out_stride() + i * in_stride()] * UNITS;
        return FORM == PER_DURATION && !forward ? units + segment(step, k, i) : units;
    }
    METHOD float outside(int step, int k, int o) const {
        return FORM == PER_DURATION && forward ? segment(step, k, o) : 0.0f;
    }
};

// Rows of boundaries that outlive the scan: log weights of labels (forward: of prefixes; else of
// suffixes, and with a fixed transition of the segment before them), then with a fixed transition
// those on the other side of the transition, then entropies likewise. Offsets: of logs, of
// entropies.
struct Rows {
    float *values;
    double *offsets;
    int capacity;

    METHOD int64 index(int boundary) const { return boundary % capacity; }
};

#endif
