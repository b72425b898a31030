// Gradients of the best score: 1 for the segments of one best segmentation, found from its end. One
// warp a sequence. Of equals: the shortest segment, then the least source label.
#include "marginals.cuh"

constexpr int THREADS = 32;

struct Best {
    float score;
    int at;
};

// The greatest of all lanes; of equals the one that is first.
DEVICE Best best_of(Best b) {
    for (int apart = 16; apart > 0; apart /= 2) {
        const float score = __shfl_xor_sync(0xffffffffu, b.score, apart);
        const int at = __shfl_xor_sync(0xffffffffu, b.at, apart);
        if (score > b.score || (score == b.score && at < b.at)) b.score = score, b.at = at;
    }
    return b;
}

struct Place {
    int boundary, label;
};

// Where the last segment of the best segmentation that ends at `to` begins.
DEVICE Place before(const Sequence &s, const Side &rows, Place to, int &duration) {
    const int lane = threadIdx.x, longest = min(s.longest, to.boundary);
    const double last = rows.rows.offsets[2 * rows.rows.index(to.boundary)];
    const int sources = FORM == FIXED ? 1 : s.labels;
    Best best = {8.0f * NOTHING, 1 << 30};
    // Durations; with edges of their own durations and sources.
    for (int i = lane; i < longest * sources; i += 32) {
        const int k = 1 + i / sources, src = i % sources, n = to.boundary - k;
        const float *row = rows.row(n);
        float score = rows.offset(n, last, 0.0).log;
        if (FORM == FIXED) score += row[s.labels + to.label] + s.segment(n, k, to.label);
        else score += row[src] + (s.edge(n, k, to.label, src) + s.outside(n, k, to.label));
        if (score > best.score) best = {score, i};
    }
    best = best_of(best);
    duration = 1 + best.at / sources;
    const Place from = {to.boundary - duration, best.at % sources};
    if (FORM != FIXED) return from;
    const float *row = rows.row(from.boundary);
    best = {8.0f * NOTHING, 1 << 30};
    for (int src = lane; src < s.labels; src += 32) {
        const float score = row[src] + s.edge(from.boundary, 1, to.label, src);
        if (score > best.score) best = {score, src};
    }
    return {from.boundary, best_of(best).at};
}

KERNEL(semicrf_trace, THREADS)
(int64 positions, int64 durations, int64 labels, int64 longest, int64 first_index, int64 low, const int64 *lengths,
 const float *scores, const float *transition, const float *bias, const float *rows, const double *offsets,
 int64 capacity, int64 *places, float *grad_scores, float *parts, int64 elements) {
    const int sequence = blockIdx.x, lane = threadIdx.x;
    const int64 square = labels * labels;
    const int64 size = labels * (FORM == MATERIALIZED ? durations * labels * (positions - 1) : positions + 1);
    Sequence s;
    s.forward = true, s.labels = (int)labels, s.longest = (int)longest, s.first_index = (int)first_index;
    s.durations = (int)durations, s.end = (int)lengths[sequence] - (FORM == MATERIALIZED);
    s.scores = scores + sequence * size, s.scores_end = 0;
    s.transition = transition, s.bias = bias;
    const Side side = {{(float *)rows + sequence * capacity * PLANES * labels,
                        (double *)offsets + sequence * capacity * 2, (int)capacity}, s.labels};
    float *gradient = grad_scores + sequence * size, *own = parts + sequence * elements;
    if (low > s.end) return;
    Place to = {(int)(places[sequence] >> 32), (int)places[sequence]};
    if (places[sequence] < 0) {
        Best best = {8.0f * NOTHING, 1 << 30};
        for (int c = lane; c < labels; c += 32)
            if (side.row(s.end)[c] > best.score) best = {side.row(s.end)[c], c};
        to = {s.end, best_of(best).at};
    }
    while (to.boundary >= low && to.boundary > 0) {
        int k;
        const Place from = before(s, side, to, k);
        if (lane == 0) {
            if (FORM == MATERIALIZED) {
                gradient[((from.boundary * durations + k - 1 + first_index) * labels + to.label) * labels + from.label] = 1.0f;
            } else {
                gradient[(int64)to.boundary * labels + to.label] += 1.0f;
                gradient[(int64)from.boundary * labels + to.label] -= 1.0f;
                const int64 at = from.label * labels + to.label;
                own[FORM == FIXED ? at : (k - 1) * square + at] += 1.0f;
                if (FORM == FIXED) own[square + (k - 1) * labels + to.label] += 1.0f;
            }
        }
        to = from;
    }
    if (lane == 0) places[sequence] = (int64)to.boundary << 32 | to.label;
}
