// Weights of scores and their gradients in registers of warps, and rows of results: what kernels of
// attention on tensor cores have in common.
//
// A warp has sixteen rows of a tile of scores. For each eight columns a lane has two sums of row
// `lane / 4`, from column `lane % 4 * 2` on, and two of the row eight below it.
#ifndef SWEEPER_WEIGHTS_H
#define SWEEPER_WEIGHTS_H

#include "packed.h"

#define LN_2 0.69314718055994531f
#define NEVER __int_as_float(0xff800000)

// The factors in registers of products over 8 or 16 columns.
template <int N> struct Factors {
    // Of N sums of a thread.
    unsigned words[N * NUMBER_BYTES / 4];

    // From the sums of a thread, rounded.
    METHOD void set(const float (&x)[N]) {
#if BF16
#pragma unroll
        for (int i = 0; i < N; i += 2) words[i / 2] = round_to_bf16_pair(x[i], x[i + 1]);
#else
#pragma unroll
        for (int i = 0; i < N; i++) {
            // Rows of the first column, then of the second.
            const int from = i / 4 * 4 + i % 2 * 2 + i % 4 / 2;
            words[i] = (unsigned)__float_as_int(round_to_tf32(x[from]));
        }
#endif
    }
};

template <int N> DEVICE void zero(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = 0.0f;
}

// Writes a row's sums times a factor; `half` is 1 for the row eight below.
template <int N> DEVICE void put_row(float *row, const float (&sums)[N], int half, float factor, int64 columns) {
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const float x = sums[i * 4 + half * 2] * factor, y = sums[i * 4 + half * 2 + 1] * factor;
        const int at = i * 8 + first;
        if (columns % 2 == 0) {
            const float2 both = {x, y};
            if (at < columns) *(float2 *)(row + at) = both;
        } else {
            if (at < columns) row[at] = x;
            if (at + 1 < columns) row[at + 1] = y;
        }
    }
}

// The same rounded to bf16.
template <int N> DEVICE void put_row(unsigned short *row, const float (&sums)[N], int half, float factor, int64 columns) {
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const unsigned both = round_to_bf16_pair(sums[i * 4 + half * 2] * factor, sums[i * 4 + half * 2 + 1] * factor);
        const int at = i * 8 + first;
        if (columns % 2 == 0) {
            if (at < columns) *(unsigned *)(row + at) = both;
        } else {
            if (at < columns) row[at] = (unsigned short)both;
            if (at + 1 < columns) row[at + 1] = (unsigned short)(both >> 16);
        }
    }
}

// Numbers of results in memory: ROUNDS, and ROUNDS_GRAD_V of the gradient by values, say whether
// they are bf16.
template <int IS_ROUNDED> struct Stored {
    typedef float Number;
};
template <> struct Stored<1> {
    typedef unsigned short Number;
};

// Where a row of a result begins: after those of the heads before or, by rows (BY_ROWS,
// BY_ROWS_GRAD_V), beside those of the `beside` heads of its matrices, `step` after the row before.
template <int IS_BY_ROWS>
DEVICE int64 place_of(int64 head, int64 row, int64 rows, int64 columns, int64 beside, int64 step) {
    if (IS_BY_ROWS) return (head / beside * rows + row) * step + head % beside * columns;
    return (head * rows + row) * columns;
}

// `step_v` is from one row of the gradient by values to the next; `e1` and `e2` are the inner two
// leading extents of operands that are read as they lie.
#define SIZES float scale, int64 heads, int64 queries, int64 keys, int64 depth, int64 width, int64 beside, int64 step_v, \
    int64 e1, int64 e2

// Rows of a block are queries, and columns of its scores are keys; or the other way round.
#ifdef GRAD_KV
#define ROWS_ARE_QUERIES 0
#else
#define ROWS_ARE_QUERIES 1
#endif

// Scores become NEVER where a query does not see a key: one that is none, or that comes after it.
// For tiles that have such. From the thread's first column on, `row` columns come before its first
// row, and `keys` before there are no more keys.
template <int N> DEVICE void hide(float (&scores)[N], int row, int keys) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        // Columns before it are seen, or hidden where rows are keys.
        int end = row + half * 8;
#if ROWS_ARE_QUERIES && CAUSAL
        end = min(end + 1, keys);
#elif ROWS_ARE_QUERIES
        end = keys;
#endif
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const bool is_before = i * 8 + j < end;
                if (is_before != (bool)ROWS_ARE_QUERIES) scores[i * 4 + half * 2 + j] = NEVER;
            }
        }
    }
}

#ifdef FORWARD
DEVICE float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Weights of a tile of scores, and by which factor sums so far are too large, for the two rows of a
// thread.
struct Softmax {
    float greatest[2], sum[2];

    template <int N> METHOD void weigh(float (&scores)[N], float factor, float (&before)[2]) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = greatest[half];
#pragma unroll
            for (int i = 0; i < N / 4; i++)
                most = fmaxf(most, fmaxf(scores[i * 4 + half * 2], scores[i * 4 + half * 2 + 1]));
            most = quad_max(most);
            before[half] = exp2_fast((greatest[half] - most) * factor);
            greatest[half] = most;
            const float less = -most * factor;
            float part = 0.0f;
#pragma unroll
            for (int i = 0; i < N / 4; i++) {
#pragma unroll
                for (int j = half * 2; j < half * 2 + 2; j++) {
                    scores[i * 4 + j] = exp2_fast(fmaf(scores[i * 4 + j], factor, less));
                    part += scores[i * 4 + j];
                }
            }
            sum[half] = fmaf(sum[half], before[half], part);
        }
    }
};
#endif

#if defined(GRAD_Q) || defined(GRAD_KV)
#define KEEPS_WEIGHTS (!ROWS_ARE_QUERIES && WRITES_GRAD_V)

// Weights of scores, and their gradients' scores: weights (of_weights - delta).
struct Gradient {
    float factor;
    // Of a thread's two rows.
    float logs[2], delta[2];

    // Numbers of rows, or of the columns from `of_columns` on.
    METHOD float number(const float (&of_rows)[2], const float2 &of_columns, int i) const {
#if ROWS_ARE_QUERIES
        return of_rows[i % 4 / 2];
#else
        return i % 2 ? of_columns.y : of_columns.x;
#endif
    }
    template <int N> METHOD void weigh(float (&scores)[N], const float *of_columns) const {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float2 pair = {0.0f, 0.0f};
#if !ROWS_ARE_QUERIES
            pair = *(const float2 *)(of_columns + i * 2);
#endif
#pragma unroll
            for (int j = i; j < i + 4; j++) scores[j] = exp2_fast(fmaf(scores[j], factor, -number(logs, pair, j)));
        }
    }
    template <int N> METHOD void of_scores(float (&of_weights)[N], const float (&weights)[N], const float *of_columns) const {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            float2 pair = {0.0f, 0.0f};
#if !ROWS_ARE_QUERIES
            pair = *(const float2 *)(of_columns + i * 2);
#endif
#pragma unroll
            for (int j = i; j < i + 4; j++) of_weights[j] = weights[j] * (of_weights[j] - number(delta, pair, j));
        }
    }
};
#endif

#endif
