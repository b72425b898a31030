// Attention and its gradients on the tensor cores of GPUs from compute capability 8.0 on, products
// in tf32 or bf16 by warps (mma.sync).
//
// Operands are packed first, as for Hopper's kernels: rounded, and so that a tile is contiguous.
// A block owns queries or keys, and goes over tiles of the others, which come into slots of shared
// memory ahead of their products (Dao, "FlashAttention-2", 2023). Weights and gradients by scores
// stay in registers, as factors of the next product. Weighted values are kept relative to the
// greatest score so far (online softmax: Milakov and Gimelshein, 2018), and gradients compute the
// weights again from the logarithms of their sums. All sums are added in one order.
//
// Positions in a head are 32-bit numbers: 64-bit ones would take registers that sums need.
//
// DEPTH and WIDTH are columns of queries and keys, and of values, up to a multiple of 64.
#include "fragments.h"

#ifdef FORWARD
// Tiles of keys and, by turns, of values.
struct Tiles {
    static constexpr int OF_KEYS = ROWS * DEPTH * NUMBER_BYTES, OF_VALUES = ROWS * WIDTH * NUMBER_BYTES;
    static constexpr int BYTES = OF_KEYS > OF_VALUES ? OF_KEYS : OF_VALUES;
    static constexpr unsigned TURNS = 1 + WRITES_OUT;
    const char *keys, *values;

    METHOD void copy(char *to, unsigned i) const {
#if WRITES_OUT
        if (i % 2) return copy_all<OF_VALUES>(to, values + i / 2 * (int64)OF_VALUES);
        i /= 2;
#endif
        copy_all<OF_KEYS>(to, keys + i * (int64)OF_KEYS);
    }
};

KERNEL(attention, THREADS, 1)(const char *q, const char *k,
#if WRITES_OUT
    const char *v, Stored<ROUNDS>::Number *out,
#if COPIES_OUT
    unsigned short *rounded_out,
#endif
#endif
#if WRITES_LOG_SUM_EXP
    float *logs,
#endif
    SIZES) {
    SHARED(memory);
    const unsigned tiles = (unsigned)((queries + OWN - 1) / OWN);
    // Later queries of a causal attention have the most keys: they begin first.
    const int64 head = blockIdx.x / tiles;
    const int first = (tiles - 1 - blockIdx.x % tiles) * OWN;
    int end = (int)keys;
#if CAUSAL
    end = min(end, first + OWN);
#endif
    char *own = (char *)memory;
    copy_all<OWN * DEPTH * NUMBER_BYTES>(own, q + (head * padded(queries) + first) * (DEPTH * NUMBER_BYTES));
    const int64 key = head * padded(keys);
    const unsigned count = (end + ROWS - 1) / ROWS;
    Tiles feed = {k + key * (DEPTH * NUMBER_BYTES), 0};
#if WRITES_OUT
    feed.values = v + key * (WIDTH * NUMBER_BYTES);
#endif
    Ring<Tiles> ring = {feed, own + OWN * DEPTH * NUMBER_BYTES, count * Tiles::TURNS};
    ring.begin_first();
    const int of_warp = threadIdx.x / 32 * (BANDS * BAND), first_column = threadIdx.x % 4 * 2;
    const int query = first + of_warp + threadIdx.x % 32 / 4;
    const char *rows = own + row_at<DEPTH>(of_warp);
    const float factor = scale * LOG2_E;
    Softmax softmax[BANDS];
#if WRITES_OUT
    float sums[BANDS][WIDTH / 2];
#endif
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
        softmax[band] = {{NEVER, NEVER}, {0.0f, 0.0f}};
#if WRITES_OUT
        zero(sums[band]);
#endif
    }
#pragma unroll 1
    for (unsigned i = 0; i < count; i++) {
        const int at = i * ROWS;
        float scores[BANDS][ROWS / 2];
        multiply_rows<DEPTH>(scores, rows, ring.take(i * Tiles::TURNS));
        bool is_whole = at + ROWS <= keys;
#if CAUSAL
        is_whole = is_whole && at + ROWS <= first + of_warp;
#endif
#if WRITES_OUT
        Factors<ROWS / 2> weights[BANDS];
#endif
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
            if (!is_whole) hide(scores[band], query + band * BAND - at - first_column, (int)keys - at - first_column);
            float before[2];
            softmax[band].weigh(scores[band], factor, before);
#if WRITES_OUT
#pragma unroll
            for (int j = 0; j < WIDTH / 2; j++) sums[band][j] *= before[j % 4 / 2];
            weights[band].set(scores[band]);
#endif
        }
#if WRITES_OUT
        multiply_factors<WIDTH>(sums, weights, ring.take(i * 2 + 1));
#endif
    }
#pragma unroll
    for (int i = 0; i < BANDS * 2; i++) {
        const int band = i / 2, half = i % 2;
        const int own_query = query + band * BAND + half * 8;
        const float sum = quad_sum(softmax[band].sum[half]);
        if (own_query >= queries) continue;
#if WRITES_OUT
        const int64 place = place_of<BY_ROWS>(head, own_query, queries, width, beside, beside * width);
        put_row(out + place, sums[band], half, 1.0f / sum, width);
#if COPIES_OUT
        put_row(rounded_out + place, sums[band], half, 1.0f / sum, width);
#endif
#endif
#if WRITES_LOG_SUM_EXP
        const float log = softmax[band].greatest[half] * scale + log2_fast(sum) * LN_2;
        if (threadIdx.x % 4 == 0) logs[head * queries + own_query] = log;
#endif
    }
}
#endif

#if defined(GRAD_Q) || defined(GRAD_KV)
// Tiles of those that a block does not own, each with those of their gradients or values, and of
// queries with numbers of rows: the logarithms of sums, and delta.
struct Tiles {
    static constexpr int OUT = ROWS * DEPTH * NUMBER_BYTES, SUMS = OUT + ROWS * WIDTH * NUMBER_BYTES;
    static constexpr int OF_SUMS = ROWS_ARE_QUERIES ? 0 : ROWS * 4;
    static constexpr int BYTES = SUMS + 2 * OF_SUMS;
    const char *other, *other_out;
    const float *logs, *delta;

    METHOD void copy(char *to, unsigned i) const {
        copy_all<OUT>(to, other + i * (int64)OUT);
        copy_all<SUMS - OUT>(to + OUT, other_out + i * (int64)(SUMS - OUT));
        copy_all<OF_SUMS>(to + SUMS, logs + i * (int64)ROWS);
        copy_all<OF_SUMS>(to + SUMS + OF_SUMS, delta + i * (int64)ROWS);
    }
};

// `own` and `other`: queries and keys, or keys and queries; `own_out` and `other_out`: the gradient
// of the result and values, or values and that gradient.
#ifdef GRAD_Q
KERNEL(attention_grad_q, THREADS, 1)
#else
KERNEL(attention_grad_kv, THREADS, 1)
#endif
(const char *own, const char *own_out, const char *other, const char *other_out, const float *sums,
#if ROWS_ARE_QUERIES || WRITES_GRAD_K
    Stored<ROUNDS>::Number *grad,
#endif
#if KEEPS_WEIGHTS
    Stored<ROUNDS_GRAD_V>::Number *grad_v,
#endif
    SIZES) {
    SHARED(memory);
#if ROWS_ARE_QUERIES
    const int64 rows = queries, columns = keys;
#else
    const int64 rows = keys, columns = queries;
#endif
    const unsigned tiles = (unsigned)((rows + OWN - 1) / OWN), tile = blockIdx.x % tiles;
    const int64 head = blockIdx.x / tiles;
    // Those that have the most tiles begin first.
    const int first = (ROWS_ARE_QUERIES ? tiles - 1 - tile : tile) * OWN;
    int start = 0, end = (int)columns;
#if CAUSAL && ROWS_ARE_QUERIES
    end = min(end, first + OWN);
#elif CAUSAL
    start = first;
#endif
    char *own_tile = (char *)memory, *own_out_tile = own_tile + OWN * DEPTH * NUMBER_BYTES;
    const int64 own_row = head * padded(rows) + first, column = head * padded(columns) + start;
    copy_all<OWN * DEPTH * NUMBER_BYTES>(own_tile, own + own_row * (DEPTH * NUMBER_BYTES));
    copy_all<OWN * WIDTH * NUMBER_BYTES>(own_out_tile, own_out + own_row * (WIDTH * NUMBER_BYTES));
    const float *logs = sums + head * 2 * padded(queries), *delta = logs + padded(queries);
    const Tiles feed = {other + column * (DEPTH * NUMBER_BYTES), other_out + column * (WIDTH * NUMBER_BYTES),
                        logs + start, delta + start};
    const unsigned count = (max(end - start, 0) + ROWS - 1) / ROWS;
    Ring<Tiles> ring = {feed, own_out_tile + OWN * WIDTH * NUMBER_BYTES, count};
    ring.begin_first();
    const int of_warp = threadIdx.x / 32 * (BANDS * BAND), first_column = threadIdx.x % 4 * 2;
    const int row = first + of_warp + threadIdx.x % 32 / 4;
    const char *rows_1 = own_tile + row_at<DEPTH>(of_warp), *rows_2 = own_out_tile + row_at<WIDTH>(of_warp);
    Gradient gradient[BANDS];
    float of_own[BANDS][DEPTH / 2];
#if KEEPS_WEIGHTS
    float of_values[BANDS][WIDTH / 2];
#endif
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
        gradient[band] = {scale * LOG2_E, {0.0f, 0.0f}, {0.0f, 0.0f}};
#if ROWS_ARE_QUERIES
        const int at = row + band * BAND;
        gradient[band].logs[0] = logs[at], gradient[band].logs[1] = logs[at + 8];
        gradient[band].delta[0] = delta[at], gradient[band].delta[1] = delta[at + 8];
#endif
        zero(of_own[band]);
#if KEEPS_WEIGHTS
        zero(of_values[band]);
#endif
    }
#pragma unroll 1
    for (unsigned i = 0; i < count; i++) {
        const int at = start + i * ROWS;
        const char *tile_1 = ring.take(i), *tile_2 = tile_1 + Tiles::OUT;
        const float *kept = (const float *)(tile_1 + Tiles::SUMS) + first_column;
#if ROWS_ARE_QUERIES
        bool is_whole = at + ROWS <= keys;
#else
        bool is_whole = true;
#endif
#if CAUSAL && ROWS_ARE_QUERIES
        is_whole = is_whole && at + ROWS <= first + of_warp;
#elif CAUSAL
        is_whole = at >= first + of_warp + BANDS * BAND;
#endif
        float weights[BANDS][ROWS / 2], of_weights[BANDS][ROWS / 2];
        Factors<ROWS / 2> factors[BANDS];
        multiply_rows<DEPTH>(weights, rows_1, tile_1);
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
            if (!is_whole) hide(weights[band], row + band * BAND - at - first_column, (int)keys - at - first_column);
            gradient[band].weigh(weights[band], kept);
            factors[band].set(weights[band]);
        }
#if KEEPS_WEIGHTS
        multiply_factors<WIDTH>(of_values, factors, tile_2);
#endif
        multiply_rows<WIDTH>(of_weights, rows_2, tile_2);
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
            gradient[band].of_scores(of_weights[band], weights[band], kept + ROWS);
            factors[band].set(of_weights[band]);
        }
        multiply_factors<DEPTH>(of_own, factors, tile_1);
    }
#pragma unroll
    for (int i = 0; i < BANDS * 2; i++) {
        const int band = i / 2, half = i % 2;
        const int to = row + band * BAND + half * 8;
        if (to >= rows) continue;
#if ROWS_ARE_QUERIES || WRITES_GRAD_K
        const int64 place = place_of<BY_ROWS>(head, to, rows, depth, beside, beside * depth);
        put_row(grad + place, of_own[band], half, scale, depth);
#endif
#if KEEPS_WEIGHTS
        const int64 place_v = place_of<BY_ROWS_GRAD_V>(head, to, rows, width, beside, step_v);
        put_row(grad_v + place_v, of_values[band], half, 1.0f, width);
#endif
    }
}
#endif
