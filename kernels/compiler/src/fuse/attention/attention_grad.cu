// Gradients of attention in f32 on a GPU, without the scores in memory: five products.
//
// Weights are computed again from the logarithms of rows' sums (Dao et al., "FlashAttention",
// 2022). A block has KEYS keys and goes over the queries, QUERIES at a time. One half of its warps
// computes weights and the gradient by values, the other half the gradients by weights, scores and
// keys; then all of them compute what these keys add to the gradient by queries.
//
// Blocks add to a tile of the gradient by queries in turns, those with the first keys first: sums
// have one order. `turns` is zeros before: the number of blocks that have begun, and of those that
// have added to each tile. A block waits only for blocks that began before it. Blocks that begin at
// once follow each other by the time from one's turn to the next: where a turn has not come when
// gradients by scores are there, the product comes before the wait.
//
// Queries and their gradients come transposed, keys and values as they lie: so each operand of all
// products is either rows that float4 of the summed dimension are read from, or has that dimension
// as its rows. Weights are stored by queries; a thread has keys GROUPS apart, which are stored side
// by side: keys of a tile of weights are in blocks of 16, each transposed as 4 x 4.
//
// COLUMNS: those of operands, up to 64 or 128.
#include "tiles.h"

#define COLUMN_STEP (COLUMNS + 4)
#define QUERY_STEP (QUERIES + 4)
#define KEY_STEP (KEYS + 4)
#define HALF (WARPS / 2)
// A product over queries in pieces: between them a thread looks whether its block's turn has come.
#define PIECES 2
#define PIECE (QUERIES / PIECES)
// Columns of a matrix, transposed, and a number of each row.
#define SLOT (COLUMNS * QUERY_STEP + QUERIES)

using Scores = Share<KEYS, QUERIES, HALF>;
using OfKeys = Share<COLUMNS, KEYS, HALF>;
using OfQueries = Share<QUERIES, COLUMNS, WARPS>;
static_assert(KEYS % QUERIES == 0, "blocks of a causal attention begin with a tile");
static_assert(KEYS * COLUMN_STEP <= 2 * SLOT, "the gradient by keys fits where queries were");

// Begins to copy numbers of rows.
DEVICE void load_numbers(float *tile, const float *from, int64 first, int64 rows) {
    for (int i = threadIdx.x; i < QUERIES; i += THREADS) copy_or_zero(tile + i, from + first + i, first + i < rows);
}

// Begins to copy a tile of queries or of their gradients, with a number of each row. Rows that are
// not there are zeros, and so is all that they add.
DEVICE void load_queries(float *slot, const Matrix &from, const float *numbers, int64 first) {
    load_transposed<QUERIES, COLUMNS>(slot, from, first, 0);
    load_numbers(slot + SLOT - QUERIES, numbers, first, from.rows);
}

// The weights of a thread's scores, into a tile.
DEVICE void put_weights(float *to, float (&scores)[Scores::I][Scores::J], const float *logs, float factor, int64 key, int64 query) {
#pragma unroll
    for (int j = 0; j < Scores::J; j++) {
        const float log = logs[column_at(j)] * LOG2_E;
#pragma unroll
        for (int i = 0; i < Scores::I; i++) {
            scores[i][j] = exp2_fast(fmaf(scores[i][j], factor, -log));
#if CAUSAL
            if (key + i * GROUPS > query + column_at(j)) scores[i][j] = 0.0f;
#endif
        }
#pragma unroll
        for (int i = 0; i < Scores::I; i += 4) {
            const float4 x = {scores[i][j], scores[i + 1][j], scores[i + 2][j], scores[i + 3][j]};
            *(float4 *)(to + column_at(j) * KEY_STEP + row_at(i)) = x;
        }
    }
}

// The gradients by scores, into a tile: weights times what the gradients by weights exceed their
// weighted sum by.
DEVICE void put_grad_scores(float *to, const float *weights, const float (&of_weights)[Scores::I][Scores::J], const float *delta) {
#pragma unroll
    for (int j = 0; j < Scores::J; j++) {
        const float less = delta[column_at(j)];
#pragma unroll
        for (int i = 0; i < Scores::I; i += 4) {
            const int at = column_at(j) * KEY_STEP + row_at(i);
            float4 x = *(const float4 *)(weights + at);
            x.x *= of_weights[i][j] - less, x.y *= of_weights[i + 1][j] - less;
            x.z *= of_weights[i + 2][j] - less, x.w *= of_weights[i + 3][j] - less;
            *(float4 *)(to + at) = x;
        }
    }
}

// Writes a gradient that half of the warps have transposed, by way of shared memory.
DEVICE void put_transposed(float *tile, const float (&sums)[OfKeys::I][OfKeys::J], float factor,
                           float *to, int64 columns, int64 first, int64 keys, int warp, const Lane &lane, int half) {
#pragma unroll
    for (int j = 0; j < OfKeys::J; j++) {
        const int place = OfKeys::column(warp, lane) + column_at(j);
        const int key = place / 16 * 16 + place % 4 * 4 + place / 4 % 4;
#pragma unroll
        for (int i = 0; i < OfKeys::I; i++) tile[key * COLUMN_STEP + OfKeys::row(warp, lane) + i * GROUPS] = sums[i][j] * factor;
    }
    named_barrier_sync(1 + half, HALF * 32);
    for (int i = threadIdx.x % (HALF * 32); i < KEYS * COLUMNS / 4; i += HALF * 32) {
        const int r = i / (COLUMNS / 4), c = i % (COLUMNS / 4) * 4;
        if (first + r < keys) put_4(to + (first + r) * columns, c, columns, *(const float4 *)(tile + r * COLUMN_STEP + c));
    }
}

// What is there of a thread's part of the gradient by queries.
DEVICE float4 load_sum(const float *row, int at, int64 columns) {
#if ALIGNED
    return load_float4_past_l1(row + at);
#else
    float parts[4];
#pragma unroll
    for (int j = 0; j < 4; j++) parts[j] = at + j < columns ? load_past_l1(row + at + j) : 0.0f;
    return {parts[0], parts[1], parts[2], parts[3]};
#endif
}

// The same of all of the part, which begins at `to`, in a row with so many left, and at a column.
DEVICE void load_sums(float4 (&sums)[OfQueries::I][OfQueries::J / 4], const float *to, int64 rows, int column, int64 columns) {
#pragma unroll
    for (int i = 0; i < OfQueries::I; i++)
#pragma unroll
        for (int j = 0; j < OfQueries::J; j += 4) {
            const int at = column + column_at(j);
            if (i * GROUPS < rows && at < columns) sums[i][j / 4] = load_sum(to + i * GROUPS * columns, at, columns);
        }
}

KERNEL(attention_grad, THREADS, 1)(const float *q_at, const float *k_at, const float *v_at, const float *grad_out_at,
    const float *logs, const float *delta,
#if WRITES_GRAD_Q
    float *grad_q,
#endif
#if WRITES_GRAD_K
    float *grad_k,
#endif
#if WRITES_GRAD_V
    float *grad_v,
#endif
#if WRITES_GRAD_Q
    unsigned long long *turns,
#endif
    SIZES, STEPS(q), STEPS(k), STEPS(v), STEPS(g)) {
    SHARED(memory);
    const Sizes sizes = THE_SIZES;
    float *k_tile = memory, *v_tile = k_tile + KEYS * COLUMN_STEP, *q_tile = v_tile + KEYS * COLUMN_STEP, *grad_tile = q_tile + SLOT;
    float *weights = grad_tile + SLOT, *grad_scores = weights + QUERIES * KEY_STEP;
#if WRITES_GRAD_Q
    // A number that the first thread tells the others.
    int *told = (int *)(grad_scores + QUERIES * KEY_STEP);
#endif
    int64 index = blockIdx.x;
#if WRITES_GRAD_Q
    if (threadIdx.x == 0) *told = (int)take_ticket(turns);
    __syncthreads();
    index = *told;
#endif
    // Heads side by side: blocks of a head wait for each other least where few of them run at once.
    const int64 heads = e0 * e1 * e2, head = index % heads, block = index / heads, first = block * KEYS;
    HEAD(q, q, queries, depth);
    HEAD(k, k, keys, depth);
    HEAD(v, v, keys, width);
    HEAD(grad_out, g, queries, width);
    const int half = threadIdx.x / (HALF * 32), warp = threadIdx.x / 32 % HALF;
    const Lane lane = lane_of(threadIdx.x);
    const int key = Scores::row(warp, lane), query = Scores::column(warp, lane);
    // Where the thread's keys are in a tile of weights.
    const int in_tile = query * KEY_STEP + key - lane.group + lane.group * 4;
    int64 begin = 0;
#if CAUSAL
    begin = first;
#endif
    logs += head * queries, delta += head * queries;
    load_tile<KEYS, COLUMNS, COLUMN_STEP>(k_tile, k, first);
    load_tile<KEYS, COLUMNS, COLUMN_STEP>(v_tile, v, first);
    load_queries(q_tile, q, logs, begin);
    load_queries(grad_tile, grad_out, delta, begin);
    copies_commit();
    // The gradient by values of one half, by keys of the other.
    float sums[OfKeys::I][OfKeys::J];
    zero(sums);
#if WRITES_GRAD_Q
    unsigned long long *turn = turns + 1 + head * ((queries + QUERIES - 1) / QUERIES) + begin / QUERIES;
    unsigned long long seen = 0;
    const int own_query = OfQueries::row(threadIdx.x / 32, lane), own_column = OfQueries::column(threadIdx.x / 32, lane);
#endif
#pragma unroll 1
    for (int64 at = begin; at < queries; at += QUERIES) {
        copies_wait<0>();
        __syncthreads();
#if WRITES_GRAD_Q
        if (threadIdx.x == 0) {
            memory_fence();
            if (at > begin) store_word(turn - 1, block + 1);
        }
#endif
        float scores[Scores::I][Scores::J];
        zero(scores);
        if (half == 0) {
            multiply_rows<COLUMNS, COLUMN_STEP, QUERY_STEP, false>(scores, k_tile + key * COLUMN_STEP, q_tile + query);
            put_weights(weights + in_tile, scores, q_tile + SLOT - QUERIES + query, scale * LOG2_E, first + key, at + query);
            __syncthreads();
#pragma unroll 1
            for (int piece = 0; piece < PIECES; piece++) {
#if WRITES_GRAD_Q
                // A look takes no longer than a piece: at the barrier nobody waits for it.
                if (threadIdx.x == 0 && block > 0) {
                    if (piece == PIECES - 2) seen = load_word(turn);
                    if (piece == PIECES - 1 && seen == (unsigned long long)block) memory_fence();
                }
#endif
#if WRITES_GRAD_V
                multiply_rows<PIECE, QUERY_STEP, KEY_STEP, false>(
                    sums, grad_tile + OfKeys::row(warp, lane) * QUERY_STEP + piece * PIECE,
                    weights + piece * PIECE * KEY_STEP + OfKeys::column(warp, lane));
#endif
            }
        } else {
            multiply_rows<COLUMNS, COLUMN_STEP, QUERY_STEP, false>(scores, v_tile + key * COLUMN_STEP, grad_tile + query);
            __syncthreads();
            put_grad_scores(grad_scores + in_tile, weights + in_tile, scores, grad_tile + SLOT - QUERIES + query);
            named_barrier_sync(1 + half, HALF * 32);
#if WRITES_GRAD_K
            multiply_rows<QUERIES, QUERY_STEP, KEY_STEP, false>(
                sums, q_tile + OfKeys::row(warp, lane) * QUERY_STEP, grad_scores + OfKeys::column(warp, lane));
#endif
        }
#if WRITES_GRAD_Q
        if (threadIdx.x == 0) *told = seen == (unsigned long long)block;
#endif
        __syncthreads();
        if (at + QUERIES < queries) {
            load_queries(q_tile, q, logs, at + QUERIES);
            load_queries(grad_tile, grad_out, delta, at + QUERIES);
        }
        copies_commit();
#if WRITES_GRAD_Q
        float *to = grad_q + (head * queries + at + own_query) * depth;
        const int64 rows = queries - at - own_query;
        const bool is_turn = *told != 0;
        float4 before[OfQueries::I][OfQueries::J / 4];
#pragma unroll
        for (int i = 0; i < OfQueries::I; i++)
#pragma unroll
            for (int j = 0; j < OfQueries::J / 4; j++) before[i][j] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        if (is_turn && block > 0) load_sums(before, to, rows, own_column, depth);
        float of_q[OfQueries::I][OfQueries::J];
        zero(of_q);
        multiply_rows<KEYS, KEY_STEP, COLUMN_STEP, true>(of_q, grad_scores + own_query * KEY_STEP, k_tile + own_column);
        if (!is_turn) {
            if (threadIdx.x == 0) {
                while (load_word(turn) != (unsigned long long)block) {}
                memory_fence();
            }
            __syncthreads();
            load_sums(before, to, rows, own_column, depth);
        }
        turn++;
#pragma unroll
        for (int i = 0; i < OfQueries::I; i++) {
            if (i * GROUPS >= rows) continue;
#pragma unroll
            for (int j = 0; j < OfQueries::J; j += 4) {
                const float4 was = before[i][j / 4];
                const float4 x = {fmaf(of_q[i][j], scale, was.x), fmaf(of_q[i][j + 1], scale, was.y),
                                  fmaf(of_q[i][j + 2], scale, was.z), fmaf(of_q[i][j + 3], scale, was.w)};
                put_4(to + i * GROUPS * depth, own_column + column_at(j), depth, x);
            }
        }
#endif
    }
    __syncthreads();
#if WRITES_GRAD_Q
    if (threadIdx.x == 0) {
        memory_fence();
        if (begin < queries) store_word(turn - 1, block + 1);
    }
#endif
#if WRITES_GRAD_V
    if (half == 0) put_transposed(k_tile, sums, 1.0f, grad_v + head * keys * width, width, first, keys, warp, lane, half);
#endif
#if WRITES_GRAD_K
    if (half == 1) put_transposed(q_tile, sums, scale, grad_k + head * keys * depth, depth, first, keys, warp, lane, half);
#endif
}
