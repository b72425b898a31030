// Gradients of materialized edges: one exponential each, all at once. A block takes all edges that
// start at one boundary of one sequence, from boundary `low` on.
#include "marginals.cuh"

constexpr int THREADS = 256;

// Goes through (row, column) in steps of `by` elements, without a division.
struct Walk {
    int row, column, rows_by, columns_by, columns;

    METHOD Walk(int at, int by, int columns) : columns(columns) {
        row = at / columns, column = at % columns;
        rows_by = by / columns, columns_by = by % columns;
    }
    METHOD void next() {
        row += rows_by, column += columns_by;
        if (column >= columns) column -= columns, row++;
    }
};

struct Middle {
    float log, entropy;
};

KERNEL(semicrf_edge_gradients, THREADS)
(int64 positions, int64 durations, int64 labels, int64 longest, int64 first_index, int64 low, int64 high,
 int64 rows_of_tile, const int64 *lengths, const float *edges, const float *rows, const double *offsets,
 int64 capacity, const float *suffixes, const double *suffix_offsets, int64 suffix_capacity, const double *totals,
 float *gradients) {
    SHARED(shared);
    const int c = (int)labels, thread = threadIdx.x, count_of_all = (int)(high - low);
    const int n = (int)low + blockIdx.x % count_of_all, sequence = blockIdx.x / count_of_all;
    const int end = (int)lengths[sequence] - 1;
    if (n >= positions - 1) return;
    const int64 size = durations * labels * labels, start = (sequence * (positions - 1) + n) * size;
    const int first = (int)first_index * c, used = n < end ? min((int)longest, end - n) * c : 0;
    float *to = gradients + start;
    const Side prefixes = {{(float *)rows + sequence * capacity * PLANES * labels,
                            (double *)offsets + sequence * capacity * 2, (int)capacity}, c};
    const Side suffixes_ = {{(float *)suffixes + sequence * suffix_capacity * PLANES * labels,
                             (double *)suffix_offsets + sequence * suffix_capacity * 2, (int)suffix_capacity}, c};
    for (int64 i = thread; i < (int64)first * c; i += THREADS) to[i] = 0.0f;
    for (int64 i = (int64)(first + used) * c + thread; i < size; i += THREADS) to[i] = 0.0f;
    if (used == 0) return;
    const Totals total = totals_of(totals + 2 * sequence, prefixes, n);
    // The prefix by source, then the suffixes of a tile of rows (duration, destination).
    Middle *before = (Middle *)shared, *after = before + c;
    const float *prefix = prefixes.row(n);
    for (int i = thread; i < c; i += THREADS) before[i] = {prefix[i], HAS_ENTROPY ? prefix[c + i] : 0.0f};
    for (int done = 0; done < used; done += (int)rows_of_tile) {
        const int count = min((int)rows_of_tile, used - done);
        __syncthreads();
        for (int i = thread; i < count; i += THREADS) {
            const int m = n + 1 + (done + i) / c, dst = (done + i) % c;
            const float *suffix = suffixes_.row(m);
            const Offset offset = suffixes_.offset(m, total.log, total.entropy);
            after[i] = {suffix[dst] + (offset.log - total.log_part),
                        HAS_ENTROPY ? suffix[c + dst] + (offset.entropy - total.entropy_part) : 0.0f};
        }
        __syncthreads();
        const int64 at = (int64)(first + done) * c;
        Walk walk(thread, THREADS, c);
#pragma unroll 4
        for (int i = thread; i < count * c; i += THREADS) {
            const Middle a = before[walk.column], b = after[walk.row];
            to[at + i] = gradient(fmaf(edges[start + at + i], UNITS, a.log) + b.log, a.entropy + b.entropy);
            walk.next();
        }
    }
}
