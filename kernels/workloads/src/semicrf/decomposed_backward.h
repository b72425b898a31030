// Gradients of decomposed edges, in two steps like the messages: from targets to the messages of a
// boundary, then through the matrix-vector product to the boundary's row.
//
// Gradients of transition and bias are sums over the batch: each sequence leaves its own part, and
// reduce.c adds the parts in order, so that results do not depend on threads.
#ifndef SWEEPER_SEMICRF_DECOMPOSED_BACKWARD_H
#define SWEEPER_SEMICRF_DECOMPOSED_BACKWARD_H

#include "targets.h"

// Workspace, in the order of `pass_floats` in compiled/layout.rs.
typedef struct {
    float *transposed;                       // transitions by (k,) dst, rows of src, less the peak
    float *weights, *products;               // like `transposed`: see `through_product`
    float *ratios;
    float *logs, *entropies;                 // of messages
    float *gradients, *entropy_gradients;    // of messages
    float *row, *entropy_row;                // of the boundary's row
    float *owed;                             // to the cumulative scores where segments start
    float *bias, *transition;                // this sequence's parts; transition like `transposed`
    float *gradient;                         // of this sequence's cumulative scores
} Work;

static Work work_of(const Scan *s, float *floats, float *parts, float *gradient) {
    const int64_t matrix = transition_tables(s) * s->labels * s->pitch;
    Work w = {.transposed = floats, .bias = parts, .transition = parts + s->longest * s->pitch};
    w.weights = floats + matrix;
    w.products = w.weights + matrix;
    w.ratios = w.products + matrix;
    w.logs = w.ratios + s->pitch;
    w.entropies = w.logs + s->pitch;
    w.gradients = w.entropies + s->pitch;
    w.entropy_gradients = w.gradients + s->pitch;
    w.row = w.entropy_gradients + s->pitch;
    w.entropy_row = w.row + s->pitch;
    w.owed = w.entropy_row + s->pitch;
    w.gradient = gradient;
    memset(parts, 0, (size_t)(matrix + s->longest * s->pitch) * sizeof(float));
    for (int64_t table = 0; table < transition_tables(s); table++)
        for (int64_t dst = 0; dst < s->labels; dst++)
            for (int64_t src = 0; src < s->pitch; src++)
                w.transposed[(table * s->labels + dst) * s->pitch + src] =
                    src < s->labels ? transition_row(s, table, src)[dst] - peaks(s)[table] : ZERO;
    for (int64_t i = 0; i < matrix; i += LANES) {
        v_store(w.weights + i, v_exp(v_load(w.transposed + i)));
        v_store(w.products + i, v_all(0.0f));
    }
    return w;
}

// Logarithms and entropies of the messages (n, k), lanes v.
static inline Weights message_weights(const Scan *s, int64_t n, int64_t k, int64_t v) {
    const int64_t at = message_at(s, n, k) + v * LANES;
    const vf sum = v_load(s->sums + at), log = v_log(sum);
    const vi has_sum = v_less(v_all(0.0f), sum);
    Weights weights = {v_select(has_sum, log, v_load(s->logs + at)), log};
    if (SEMIRING == ENTROPY)
        weights.entropy =
            v_select(has_sum, v_load(s->moments + at) / sum + log, v_load(s->entropies + at));
    return weights;
}

// From target n + k to message (n, k), lanes v: adds to the message's gradients, and to the bias.
static inline void through_duration(const Scan *s, const Targets *t, const Work *w, int64_t n,
                                    int64_t k, int64_t v, Weights message, Weights *gradient) {
    const int64_t from = target_at(t, n + k) + v * LANES;
    float *bias = w->bias + (k - 1) * s->pitch + v * LANES;
    const vf shift = v_load(t->scores + from) - cumulative(s, n, v) + offset_before(s, t, n, k, 0);
    const vf log = v_min(message.log + v_load(bias_row(s, k) + v * LANES) + shift, v_all(0.0f));
    const vf p = v_probability(log);
    vf own = p * v_load(t->gradients + from);
    if (SEMIRING == ENTROPY) {
        const vf share = p * v_load(t->entropy_gradients + from);
        const vf entropies = message.entropy - v_load(t->entropies + from);
        own += share * (entropies + offset_before(s, t, n, k, 1) - log);
        gradient->entropy += share;
    }
    gradient->log += own;
    v_store(bias, v_load(bias) + own);
}

// From the targets to the messages of one table: leaves messages and their gradients in `w`.
static APART void through_durations(const Scan *s, const Targets *t, const Work *w, int64_t n,
                              int64_t table) {
    const int64_t first = table + 1, last = FORM == FIXED ? least_of(s->longest, s->end - n) : first;
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const Weights message = message_weights(s, n, first, v);
        Weights gradient = {v_all(0.0f), v_all(0.0f)};
        for (int64_t k = first; k <= last; k++)
            through_duration(s, t, w, n, k, v, message, &gradient);
        v_store(w->logs + v * LANES, message.log);
        v_store(w->entropies + v * LANES, message.entropy);
        v_store(w->gradients + v * LANES, gradient.log);
        v_store(w->entropy_gradients + v * LANES, gradient.entropy);
        v_store(w->owed + v * LANES, v_load(w->owed + v * LANES) + gradient.log);
    }
}

// The same as `through_transition` in linear space, for messages that have a sum. With weights x of
// the row and y of the transition, message = sum of x y, and a term's gradient is x y gradient /
// message. False, and nothing done, if a message that has a gradient has no sum.
static inline int through_product(const Scan *s, const Work *w, int64_t n, int64_t table) {
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const vf sum = v_load(s->sums + message_at(s, n, table + 1) + v * LANES);
        const vf gradient = v_load(w->gradients + v * LANES);
        const vi has_sum = v_less(v_all(0.0f), sum);
        const vi has_gradient = v_less(v_all(0.0f), gradient) | v_less(gradient, v_all(0.0f));
        if (v_any(~has_sum & has_gradient & v_first(lanes_of(s, v)))) return 0;
        v_store(w->ratios + v * LANES, v_select(has_sum, gradient / sum, v_all(0.0f)));
    }
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const vf x = v_load(source_weights(s) + v * LANES);
        vf sum = v_all(0.0f);
        for (int64_t dst = 0; dst < s->labels; dst++) {
            const int64_t at = (table * s->labels + dst) * s->pitch + v * LANES;
            sum += v_load(w->weights + at) * w->ratios[dst];
            v_store(w->products + at, v_load(w->products + at) + x * w->ratios[dst]);
        }
        v_store(w->row + v * LANES, v_load(w->row + v * LANES) + x * sum);
    }
    return 1;
}

// Adds what `through_product` left to be multiplied by the weights of transitions.
static void conclude(const Scan *s, const Work *w) {
    for (int64_t i = 0; i < transition_tables(s) * s->labels * s->pitch; i += LANES)
        v_store(w->transition + i,
                v_load(w->transition + i) + v_load(w->weights + i) * v_load(w->products + i));
}

// From the messages of one table, left in `w`, to the row of n; all lanes of src at a time.
static APART void through_transition(const Scan *s, const Work *w, const float *row, int64_t table) {
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const vf own = v_load(row + v * LANES);
        const vf entropy = SEMIRING == ENTROPY ? v_load(row + s->pitch + v * LANES) : own;
        vf gradient = v_load(w->row + v * LANES), shares = v_load(w->entropy_row + v * LANES);
        for (int64_t dst = 0; dst < s->labels; dst++) {
            const int64_t at = (table * s->labels + dst) * s->pitch + v * LANES;
            const vf log = v_min(own + v_load(w->transposed + at) - w->logs[dst], v_all(0.0f));
            const vf p = v_probability(log);
            vf part = p * w->gradients[dst];
            if (SEMIRING == ENTROPY) {
                const vf share = p * w->entropy_gradients[dst];
                part += share * (entropy - w->entropies[dst] - log);
                shares += share;
            }
            gradient += part;
            v_store(w->transition + at, v_load(w->transition + at) + part);
        }
        v_store(w->row + v * LANES, gradient);
        v_store(w->entropy_row + v * LANES, shares);
    }
}

static inline void store_gradient(const Scan *s, const Work *w, int64_t n, int64_t v, vf x) {
    float *to = w->gradient + n * s->labels + v * LANES;
    for (int64_t c = 0; c < lanes_of(s, v); c++) to[c] = x[c];
}

// Boundary n, whose targets are all there.
static void retreat(Scan *s, const Targets *t, const Work *w, int64_t n) {
    const int64_t tables = FORM == FIXED ? 1 : least_of(s->longest, s->end - n);
    push(s, n);
    memset(w->row, 0, (size_t)(3 * s->pitch) * sizeof(float));
    for (int64_t table = 0; table < tables; table++) {
        through_durations(s, t, w, n, table);
        if (SEMIRING != LOG || !through_product(s, w, n, table))
            through_transition(s, w, row_of(s, n), table);
    }
    for (int64_t v = 0; v < vectors_of(s); v++) {
        const int64_t to = target_at(t, n) + v * LANES;
        const vf own = v_load(w->row + v * LANES), owed = v_load(w->owed + v * LANES);
        v_store(t->gradients + to, without_traces(own));
        if (SEMIRING == ENTROPY) {
            const vf shares = v_load(w->entropy_row + v * LANES);
            v_store(t->entropy_gradients + to, without_traces(shares));
        }
        store_gradient(s, w, n, v, n > 0 ? own - owed : v_all(0.0f) - owed);
    }
    keep_target(s, t, n);
}

static void zero_gradients(const Scan *s, const Work *w, int64_t first, int64_t last) {
    if (last >= first)
        memset(w->gradient + first * s->labels, 0,
               (size_t)((last + 1 - first) * s->labels) * sizeof(float));
}

// The last boundary, and everything that no segment of the sequence reaches.
static void finish(const Scan *s, const Targets *t, const Work *w, int64_t positions) {
    for (int64_t v = 0; v < vectors_of(s); v++)
        store_gradient(s, w, s->end, v, v_load(t->gradients + target_at(t, s->end) + v * LANES));
    zero_gradients(s, w, s->end + 1, positions);
}

static void begin_best(const Scan *s, const Work *w, int64_t positions) {
    zero_gradients(s, w, 0, positions);
}

static void mark(const Scan *s, const Work *w, int64_t n, int64_t k, int64_t dst, int64_t src) {
    const int64_t table = FORM == FIXED ? 0 : k - 1;
    w->gradient[(n + k) * s->labels + dst] += 1.0f;
    w->gradient[n * s->labels + dst] -= 1.0f;
    w->transition[(table * s->labels + dst) * s->pitch + src] += 1.0f;
    w->bias[(k - 1) * s->pitch + dst] += 1.0f;
}

#endif
