// The semi-Markov CRF by its definition, edge by edge, in f64 and log space: the oracle for
// problems that take the host too long.
//
// It shares no code with any backend. Durations run from 1 to `longest`, and duration k lies at
// `first_index + k - 1` of its axis; boundaries are numbered from 0. Tables are (sequence,
// boundary, label).
#include "cuda.h"

constexpr int THREADS = 128;
constexpr int MAX_PLUS = 1, ENTROPY = 2;

#define PROBLEM                                                                                                          \
    int64 sequences, int64 positions, int64 durations, int64 labels, int64 longest, int64 first_index, int64 is_materialized, \
        int64 is_per_duration, int64 semiring, const int64 *lengths, const float *scores, const float *transition, const float *bias
#define GIVEN                                                                                                      \
    {sequences, positions, durations, labels, longest, first_index, is_materialized, is_per_duration, semiring, lengths, scores, \
     transition, bias}
#define THREAD(count)                                             \
    const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x; \
    if (i >= (count)) return

struct Problem {
    int64 sequences, positions, durations, labels, longest, first_index, is_materialized, is_per_duration, semiring;
    const int64 *lengths;
    const float *scores, *transition, *bias;

    // The boundary at which a sequence ends.
    METHOD int64 end(int64 b) const { return is_materialized ? lengths[b] - 1 : lengths[b]; }
    METHOD int64 boundaries() const { return is_materialized ? positions : positions + 1; }
    // Where a number of a table is.
    METHOD int64 at(int64 b, int64 boundary, int64 label) const { return (b * boundaries() + boundary) * labels + label; }
    METHOD int64 axis(int64 duration) const { return first_index + duration - 1; }
    // Where a transition is, in a tensor with or without durations.
    METHOD int64 transition_at(int64 duration, int64 dst, int64 src) const {
        return ((is_per_duration ? axis(duration) : 0) * labels + src) * labels + dst;
    }
    METHOD int64 edge_at(int64 b, int64 from, int64 duration, int64 dst, int64 src) const {
        return (((b * (positions - 1) + from) * durations + axis(duration)) * labels + dst) * labels + src;
    }
    // The score of a segment over (from, from + duration] with label `dst`, after one with label
    // `src`.
    METHOD double score(int64 b, int64 from, int64 duration, int64 dst, int64 src) const {
        if (is_materialized) return scores[edge_at(b, from, duration, dst, src)];
        return (double)scores[at(b, from + duration, dst)] - (double)scores[at(b, from, dst)] +
               (double)bias[axis(duration) * labels + dst] + (double)transition[transition_at(duration, dst, src)];
    }
};

// An unfinished sum in a semiring: weights e^most `sum`, and sum of e^(x - most) (h - (x - most))
// for the entropy. In the max semiring `sum` is the number of the first greatest term.
struct Sum {
    double most, sum, entropy;

    METHOD void add(double x, double h) {
        if (x > most) {
            const double less = most == log(0.0) ? 0.0 : exp(most - x);
            // Terms so far are (h - (x - most)) less the difference of the two maxima.
            entropy = less == 0.0 ? 0.0 : less * (entropy - (most - x) * sum);
            sum *= less;
            most = x;
        }
        const double weight = exp(x - most);
        sum += weight;
        entropy += weight * (h - (x - most));
    }
    METHOD void add(const Sum &other) {
        if (other.most == log(0.0)) return;
        if (other.most > most) {
            const Sum greater = other, lesser = *this;
            *this = greater;
            if (lesser.most != log(0.0)) add(lesser);
            return;
        }
        const double weight = exp(other.most - most);
        sum += weight * other.sum;
        entropy += weight * (other.entropy - (other.most - most) * other.sum);
    }
    METHOD double log_weight() const { return most + log(sum); }
    // sum of p (h - log p) with p = e^(x - log_weight)
    METHOD double mean_entropy() const { return entropy / sum + log(sum); }
};

DEVICE Sum nothing_yet() { return {log(0.0), 0.0, 0.0}; }

// One boundary further: sums over the labels at the other end of each segment. Prefixes (role 0)
// end at boundary `step`, suffixes (role 1) begin `step` boundaries before the end.
KERNEL(partial_sums, THREADS)
(PROBLEM, int64 step, int64 roles, const double *logs, const double *entropies, double *parts) {
    const Problem p = GIVEN;
    THREAD(roles * sequences * labels * longest);
    const int64 duration = i % longest + 1, label = i / longest % labels, b = i / (longest * labels) % sequences;
    const int64 role = i / (longest * labels * sequences), end = p.end(b);
    if (step > end || duration > step) return;
    const int64 table = role * sequences * p.boundaries() * labels;
    Sum sum = nothing_yet();
    for (int64 other = 0; other < labels; other++) {
        const int64 from = role == 0 ? step - duration : end - step;
        const int64 dst = role == 0 ? label : other, src = role == 0 ? other : label;
        const int64 known = table + p.at(b, role == 0 ? from : from + duration, other);
        const double x = logs[known] + p.score(b, from, duration, dst, src);
        if (semiring != MAX_PLUS) sum.add(x, semiring == ENTROPY ? entropies[known] : 0.0);
        else if (x > sum.most) sum = {x, (double)other, 0.0};
    }
    parts[3 * i] = sum.most;
    parts[3 * i + 1] = sum.sum;
    parts[3 * i + 2] = sum.entropy;
}

// The sums of all durations, into the tables. In the max semiring also which term was the first
// greatest, by duration and label.
KERNEL(finish_sums, THREADS)
(PROBLEM, int64 step, int64 roles, const double *parts, double *logs, double *entropies, int64 *best) {
    const Problem p = GIVEN;
    THREAD(roles * sequences * labels);
    const int64 label = i % labels, b = i / labels % sequences, role = i / (labels * sequences), end = p.end(b);
    if (step > end) return;
    Sum sum = nothing_yet();
    int64 first = 0;
    for (int64 duration = 1; duration <= min(longest, step); duration++) {
        const double *part = parts + 3 * (i * longest + duration - 1);
        if (semiring != MAX_PLUS) {
            const Sum terms = {part[0], part[1], part[2]};
            sum.add(terms);
        } else if (part[0] > sum.most) {
            sum.most = part[0];
            first = (duration - 1) * labels + (int64)part[1];
        }
    }
    const int64 at = role * sequences * p.boundaries() * labels + p.at(b, role == 0 ? step : end - step, label);
    logs[at] = semiring == MAX_PLUS ? sum.most : sum.log_weight();
    if (semiring == ENTROPY) entropies[at] = sum.mean_entropy();
    if (semiring == MAX_PLUS) best[at] = first;
}

// What each sequence is worth.
KERNEL(totals, THREADS)
(PROBLEM, const double *logs, const double *entropies, double *value, double *entropy) {
    const Problem p = GIVEN;
    THREAD(sequences);
    Sum sum = nothing_yet();
    for (int64 label = 0; label < labels; label++) {
        const int64 at = p.at(i, p.end(i), label);
        if (semiring != MAX_PLUS) sum.add(logs[at], semiring == ENTROPY ? entropies[at] : 0.0);
        else sum.most = logs[at] > sum.most ? logs[at] : sum.most;
    }
    value[i] = semiring == MAX_PLUS ? sum.most : sum.log_weight();
    if (semiring == ENTROPY) entropy[i] = sum.mean_entropy();
}

// Of log and entropy: the gradient of an edge's score is its probability m, or m (1 - log m +
// H(prefix) + H(suffix) - H).
struct Marginals {
    Problem p;
    const double *logs, *entropies, *value, *entropy;

    METHOD double of(int64 b, int64 from, int64 duration, int64 dst, int64 src) const {
        const int64 suffixes = p.sequences * p.boundaries() * p.labels;
        const int64 before = p.at(b, from, src), after = suffixes + p.at(b, from + duration, dst);
        const double log_m = logs[before] + p.score(b, from, duration, dst, src) + logs[after] - value[b];
        if (p.semiring != ENTROPY) return exp(log_m);
        return exp(log_m) * (1.0 - log_m + entropies[before] + entropies[after] - entropy[b]);
    }
};

#define TABLES const double *logs, const double *entropies, const double *value, const double *entropy

KERNEL(edge_gradients, THREADS)(PROBLEM, TABLES, double *grad_edge) {
    const Marginals m = {GIVEN, logs, entropies, value, entropy};
    THREAD(sequences * (positions - 1) * durations * labels * labels);
    const int64 src = i % labels, dst = i / labels % labels, index = i / (labels * labels) % durations;
    const int64 from = i / (labels * labels * durations) % (positions - 1);
    const int64 b = i / (labels * labels * durations * (positions - 1)), duration = index - first_index + 1;
    const bool is_edge = duration >= 1 && duration <= longest && from + duration <= m.p.end(b);
    grad_edge[i] = is_edge ? m.of(b, from, duration, dst, src) : 0.0;
}

// Of cumulative scores: segments with a label that end at a boundary, less those that begin there.
KERNEL(boundary_gradients, THREADS)(PROBLEM, TABLES, double *grad_cum_scores) {
    const Marginals m = {GIVEN, logs, entropies, value, entropy};
    THREAD(sequences * (positions + 1) * labels);
    const int64 dst = i % labels, n = i / labels % (positions + 1), b = i / (labels * (positions + 1)), end = m.p.end(b);
    double sum = 0.0;
    for (int64 duration = 1; duration <= longest; duration++)
        for (int64 src = 0; src < labels; src++) {
            if (n <= end && n >= duration) sum += m.of(b, n - duration, duration, dst, src);
            if (n + duration <= end) sum -= m.of(b, n, duration, dst, src);
        }
    grad_cum_scores[i] = sum;
}

// Of all segments of a sequence with a duration and labels: (sequence, duration, source,
// destination).
KERNEL(segment_gradients, THREADS)(PROBLEM, TABLES, double *segments) {
    const Marginals m = {GIVEN, logs, entropies, value, entropy};
    THREAD(sequences * longest * labels * labels);
    const int64 dst = i % labels, src = i / labels % labels, duration = i / (labels * labels) % longest + 1;
    const int64 b = i / (labels * labels * longest), end = m.p.end(b);
    double sum = 0.0;
    for (int64 from = 0; from + duration <= end; from++) sum += m.of(b, from, duration, dst, src);
    segments[i] = sum;
}

// Of the tensors that all sequences share, from those sums.
KERNEL(transition_gradients, THREADS)(PROBLEM, const double *segments, double *grad_transition) {
    THREAD((is_per_duration ? durations : 1) * labels * labels);
    const int64 edge = i % (labels * labels), own = i / (labels * labels) - first_index + 1;
    double sum = 0.0;
    for (int64 b = 0; b < sequences; b++)
        for (int64 duration = 1; duration <= longest; duration++)
            if (!is_per_duration || duration == own)
                sum += segments[((b * longest + duration - 1) * labels * labels) + edge];
    grad_transition[i] = sum;
}

KERNEL(bias_gradients, THREADS)(PROBLEM, const double *segments, double *grad_duration_bias) {
    THREAD(durations * labels);
    const int64 dst = i % labels, duration = i / labels - first_index + 1;
    double sum = 0.0;
    if (duration >= 1 && duration <= longest)
        for (int64 b = 0; b < sequences; b++)
            for (int64 src = 0; src < labels; src++)
                sum += segments[((b * longest + duration - 1) * labels + src) * labels + dst];
    grad_duration_bias[i] = sum;
}

// Of the max semiring: 1 for each segment of one best segmentation. Gradients are zeros before.
KERNEL(best_segments, THREADS)
(PROBLEM, const double *logs, const int64 *best, double *grad_scores, double *segments) {
    const Problem p = GIVEN;
    THREAD(sequences);
    int64 to = p.end(i), dst = 0;
    for (int64 label = 1; label < labels; label++)
        if (logs[p.at(i, to, label)] > logs[p.at(i, to, dst)]) dst = label;
    while (to > 0) {
        const int64 term = best[p.at(i, to, dst)], duration = term / labels + 1, src = term % labels, from = to - duration;
        if (is_materialized) {
            grad_scores[p.edge_at(i, from, duration, dst, src)] = 1.0;
        } else {
            grad_scores[p.at(i, to, dst)] += 1.0;
            grad_scores[p.at(i, from, dst)] -= 1.0;
            segments[((i * longest + duration - 1) * labels + src) * labels + dst] += 1.0;
        }
        to = from;
        dst = src;
    }
}
