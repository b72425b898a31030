// Gradients of decomposed scores. `part_blocks` blocks take one part: some positions of one
// sequence. The first of them take the elements of transition and bias, of which each leaves its
// sum over these positions, the others the cumulative scores. semicrf_sums adds the parts.
#include "marginals.cuh"

constexpr int THREADS = 128, TILE = 64;

struct Work {
    Sequence s;
    Side prefixes, suffixes;
    Totals totals;
    int low, high;          // boundaries of this block
    float *offsets;         // shared: of TILE prefixes, then of TILE + longest suffixes
};

// Offsets of prefixes n.. and of suffixes n.. for one tile.
DEVICE void load_offsets(const Work &w, int n) {
    const int reach = TILE + w.s.longest;
    Offset *own = (Offset *)w.offsets;
    __syncthreads();
    for (int i = threadIdx.x; i < TILE + reach; i += THREADS) {
        const bool is_prefix = i < TILE;
        const int at = n + (is_prefix ? i : i - TILE);
        if (at > w.s.end || (is_prefix && at >= w.high)) continue;
        own[i] = is_prefix ? w.prefixes.offset(at, w.totals.own_log, w.totals.own_entropy)
                           : w.suffixes.offset(at, w.totals.log, w.totals.entropy);
    }
    __syncthreads();
}

// What is between prefix n, plane `own`, and suffix m, plane `other`, labels a and b.
DEVICE float between(const Work &w, int tile, int n, int m, int own, int a, int other, int b, float middle) {
    const Offset *offsets = (const Offset *)w.offsets;
    const Offset before = offsets[n - tile], after = offsets[TILE + m - tile];
    const float *prefix = w.prefixes.row(n) + a, *suffix = w.suffixes.row(m) + b;
    const int labels = w.s.labels, entropies = PLANES / 2;
    const float log = (prefix[own * labels] + suffix[other * labels] + middle) +
                      ((before.log + after.log) - w.totals.log_part);
    float entropy = 0.0f;
    if (HAS_ENTROPY)
        entropy = (prefix[(entropies + own) * labels] + suffix[(entropies + other) * labels]) +
                  ((before.entropy + after.entropy) - w.totals.entropy_part);
    return gradient(log, entropy);
}

// The sum over positions for one element: of the transition, then of the bias.
DEVICE float sum_of(const Work &w, int element, int tile) {
    const Sequence &s = w.s;
    const int square = s.labels * s.labels, last = min(min(tile + TILE, w.high), s.end);
    float sum = 0.0f;
    if (FORM == PER_DURATION || element < square) {
        const int k = FORM == FIXED ? 0 : 1 + element / square;
        const int src = element / s.labels % s.labels, dst = element % s.labels;
        const float score = s.transition[FORM == FIXED ? element : element + s.first_index * square] * UNITS;
#pragma unroll 4
        for (int n = tile; n < last; n++) {
            if (n + k > s.end) break;
            const float segment = FORM == FIXED ? 0.0f : s.segment(n, k, dst);
            sum += between(w, tile, n, n + k, 0, src, 0, dst, score + segment);
        }
        return sum;
    }
    const int k = 1 + (element - square) / s.labels, dst = (element - square) % s.labels;
#pragma unroll 4
    for (int n = tile; n < last; n++) {
        if (n + k > s.end) break;
        sum += between(w, tile, n, n + k, 1, dst, 1, dst, s.segment(n, k, dst));
    }
    return sum;
}

// The gradient of one cumulative score: of the segments that end there less those that start there.
DEVICE float score_gradient(const Work &w, int tile, int n, int dst) {
    const Sequence &s = w.s;
    float sum = 0.0f;
    if (n > s.end) return sum;
    if (n > 0) sum = between(w, tile, n, n, 0, dst, FORM == FIXED ? 1 : 0, dst, 0.0f);
    if (n == s.end) return sum;
    if (FORM == FIXED) sum -= between(w, tile, n, n, 1, dst, 0, dst, 0.0f);
    for (int k = 1; FORM != FIXED && k <= min(s.longest, s.end - n); k++) {
        const float segment = s.segment(n, k, dst);
        for (int src = 0; src < s.labels; src++)
            sum -= between(w, tile, n, n + k, 0, src, 0, dst, s.block(n, k)[src * s.labels + dst] * UNITS + segment);
    }
    return sum;
}

KERNEL(semicrf_gradients, THREADS)
(int64 positions, int64 labels, int64 longest, int64 first_index, int64 batch, int64 low, int64 high, int64 chunk,
 int64 element_blocks, int64 part_blocks, int64 adds, const int64 *lengths, const float *scores, const float *transition,
 const float *bias, const float *rows, const double *offsets, int64 capacity, const float *suffixes,
 const double *suffix_offsets, int64 suffix_capacity, const double *totals, float *parts, int64 elements,
 float *grad_scores) {
    SHARED(shared);
    const int part = blockIdx.x / (int)part_blocks, block = blockIdx.x % (int)part_blocks;
    const int sequence = part % (int)batch;
    Work w;
    Sequence &s = w.s;
    s.forward = true, s.labels = (int)labels, s.longest = (int)longest, s.first_index = (int)first_index;
    s.durations = 0, s.end = (int)lengths[sequence];
    s.scores = scores + sequence * (positions + 1) * labels, s.scores_end = 0;
    s.transition = transition, s.bias = bias;
    w.prefixes = {{(float *)rows + sequence * capacity * PLANES * labels, (double *)offsets + sequence * capacity * 2,
                   (int)capacity}, s.labels};
    w.suffixes = {{(float *)suffixes + sequence * suffix_capacity * PLANES * labels,
                   (double *)suffix_offsets + sequence * suffix_capacity * 2, (int)suffix_capacity}, s.labels};
    w.low = (int)(low + part / batch * chunk);
    w.high = (int)min(high, w.low + chunk);
    w.offsets = shared;
    float *gradients = grad_scores + sequence * (positions + 1) * labels;
    const bool is_inside = w.low < w.high && w.low <= s.end;
    if (is_inside) w.totals = totals_of(totals + 2 * sequence, w.prefixes, w.low);
    const bool is_element = block < element_blocks;
    const int element = block * THREADS + threadIdx.x;
    float sum = 0.0f;
    for (int tile = w.low; tile < w.high; tile += TILE) {
        if (is_inside) load_offsets(w, tile);
        if (is_element) {
            if (is_inside && element < elements) sum += sum_of(w, element, tile);
            continue;
        }
        const int last = min(tile + TILE, w.high), step = ((int)part_blocks - (int)element_blocks) * THREADS;
        for (int i = element - (int)element_blocks * THREADS; i < (last - tile) * s.labels; i += step) {
            const int n = tile + i / s.labels, dst = i % s.labels;
            gradients[(int64)n * s.labels + dst] = is_inside ? score_gradient(w, tile, n, dst) : 0.0f;
        }
    }
    if (is_element && element < elements) {
        float *to = parts + (int64)part * elements + element;
        *to = adds ? *to + sum : sum;
    }
}
