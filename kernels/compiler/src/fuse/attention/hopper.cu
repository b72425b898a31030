// Attention and its gradients on Hopper's tensor cores, products in tf32 or bf16.
//
// A block has two warpgroups of 64 rows of the result each, and one that copies tiles into a ring
// of slots (ring.h): of packed operands, or of bf16 ones as they lie. Weighted values are
// kept relative to the greatest score so far (online softmax: Milakov and Gimelshein, 2018);
// gradients compute the weights again from the logarithms of their sums (Dao et al.,
// "FlashAttention", 2022), as factors in registers: a block owns queries or keys, and goes over the
// others. All sums are added in one order.
//
// DEPTH and WIDTH are columns of queries and keys, and of values, up to a multiple of 64. ROWS: of
// a tile; SLOTS: of the ring.
#include "ring.h"
#include "weights.h"

// sums (+)= own tile^T, over WIDE columns that both tiles have; `own` is 64 rows of this group.
template <int WIDE, int N> DEVICE void multiply_rows(float (&sums)[N], const char *own, const char *tile) {
#pragma unroll
    for (int i = 0; i < WIDE / STEP; i++) {
        const int at = i * STEP / PANEL * BLOCK_BYTES + i * 32 % 128, stride = WIDE / PANEL * BLOCK_BYTES;
        multiply(sums, operand(own + at, 0, stride), operand(tile + at, 0, stride), i > 0, Number(), Transposed<0>());
    }
}

// sums += factors tile, over the rows of the tile: packed by rows in bf16, by columns in tf32.
template <int WIDE, int N> DEVICE void multiply_factors(float (&sums)[WIDE / 2], Factors<N> &factors, const char *tile) {
#pragma unroll
    for (int i = 0; i < N * 2 / STEP; i++) {
#if BF16
        const Operand b = operand(tile + i * (STEP / 8) * (WIDE / PANEL * BLOCK_BYTES), BLOCK_BYTES, WIDE / PANEL * BLOCK_BYTES);
        multiply(sums, factors.words + i * 4, b, true, Number(), Transposed<1>());
#else
        const Operand b = operand(tile + i / 4 * (WIDE * 128) + i % 4 * 32, 0, BLOCK_BYTES);
        multiply(sums, factors.words + i * 4, b, true, Number(), Transposed<0>());
#endif
    }
}

#ifdef FORWARD
#define TILE_BYTES (ROWS * (DEPTH > WIDTH ? DEPTH : WIDTH) * NUMBER_BYTES)

KERNEL(attention, THREADS, 1)(MATRIX(q), MATRIX(k),
#if WRITES_OUT
    MATRIX(v), Stored<ROUNDS>::Number *out,
#if COPIES_OUT
    unsigned short *rounded_out,
#endif
#endif
#if WRITES_LOG_SUM_EXP
    float *logs,
#endif
    SIZES) {
    SHARED_TILES(memory);
    const int64 tiles = (queries + OWN - 1) / OWN;
    // Later queries of a causal attention have the most keys: they begin first.
    const int64 head = blockIdx.x / tiles, first = (tiles - 1 - blockIdx.x % tiles) * OWN;
    char *own = memory;
    Ring<TILE_BYTES> ring = {own + OWN * DEPTH * NUMBER_BYTES, 0, 0, 0, 0};
    ring.full = (Arrivals *)(ring.slots + SLOTS * TILE_BYTES);
    ring.empty = ring.full + SLOTS;
    Arrivals *own_full = ring.empty + SLOTS;
    if (threadIdx.x == 0) {
        ring.init(ARRIVALS_OF_TILE);
        arrivals_init(own_full, ARRIVALS_OF_TILE);
        arrivals_init_end();
    }
    __syncthreads();
    int64 end = keys;
#if CAUSAL
    end = min(end, first + OWN);
#endif
    if (threadIdx.x >= CONSUMERS) {
        registers_decrease<COPIER_REGISTERS>();
        Filler<TILE_BYTES> fill = {ring, own_full};
        if (!fill.takes_part()) return;
        const Rows of_q = ROWS_OF(q, queries, depth, DEPTH), of_k = ROWS_OF(k, keys, depth, DEPTH);
        fill.own_begin(OWN * DEPTH * NUMBER_BYTES);
        fill.own<DEPTH>(own, of_q, first);
        fill.own_end();
#if WRITES_OUT
        const Rows of_v = ROWS_OF(v, keys, width, WIDTH);
#endif
        for (int64 at = 0; at < end; at += ROWS) {
            fill.tile<DEPTH>(of_k, at, 0, 0);
#if WRITES_OUT
            fill.tile<WIDTH>(of_v, at, 0, 0);
#endif
        }
        fill.end();
        return;
    }
    registers_increase<CONSUMER_REGISTERS>();
    const int group = threadIdx.x / 128;
    const int64 query = first + group * GROUP_ROWS + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const char *rows = own + group * (GROUP_ROWS * DEPTH * NUMBER_BYTES);
    const float factor = scale * LOG2_E;
    Softmax softmax = {{NEVER, NEVER}, {0.0f, 0.0f}};
#if WRITES_OUT
    float sums[WIDTH / 2];
    zero(sums);
#endif
    arrivals_wait(own_full, 0);
    for (int64 at = 0; at < end; at += ROWS) {
        float scores[ROWS / 2], before[2];
        int slot = ring.take();
        products_fence(scores);
        products_begin();
        multiply_rows<DEPTH>(scores, rows, ring.tile(slot));
        products_commit();
        products_wait<0>();
        products_fence(scores);
        ring.give(slot);
        bool is_whole = at + ROWS <= keys;
#if CAUSAL
        is_whole = is_whole && at + ROWS <= first + group * GROUP_ROWS;
#endif
        const int64 column = at + threadIdx.x % 4 * 2;
        if (!is_whole) hide(scores, (int)(query - column), (int)(keys - column));
        softmax.weigh(scores, factor, before);
#if WRITES_OUT
#pragma unroll
        for (int i = 0; i < WIDTH / 2; i++) sums[i] *= before[i % 4 / 2];
        Factors<ROWS / 2> weights;
        weights.set(scores);
        slot = ring.take();
        products_fence(weights.words);
        products_fence(sums);
        products_begin();
        multiply_factors<WIDTH>(sums, weights, ring.tile(slot));
        products_commit();
        products_wait<0>();
        products_fence(sums);
        ring.give(slot);
#endif
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(softmax.sum[half]);
        if (query + half * 8 >= queries) continue;
        const int64 row = head * queries + query + half * 8;
#if WRITES_OUT
        const int64 place = place_of<BY_ROWS>(head, query + half * 8, queries, width, beside, beside * width);
        put_row(out + place, sums, half, 1.0f / sum, width);
#if COPIES_OUT
        put_row(rounded_out + place, sums, half, 1.0f / sum, width);
#endif
#endif
#if WRITES_LOG_SUM_EXP
        if (threadIdx.x % 4 == 0) logs[row] = softmax.greatest[half] * scale + log2_fast(sum) * LN_2;
#endif
    }
}
#endif

#if defined(GRAD_Q) || defined(GRAD_KV)
// Of numbers of columns, which come with each tile.
#define SUMS_BYTES (ROWS_ARE_QUERIES ? 0 : ROWS * 4)
#define MOST (DEPTH > WIDTH ? DEPTH : WIDTH)
#define TILE_BYTES (ROWS * MOST * NUMBER_BYTES)


// `own` and `other`: queries and keys, or keys and queries; `own_out` and `other_out`: the gradient
// of the result and values, or values and that gradient. `by_columns`: packed so, in tf32.
#ifdef GRAD_Q
KERNEL(attention_grad_q, THREADS, 1)
#else
KERNEL(attention_grad_kv, THREADS, 1)
#endif
(MATRIX(own), MATRIX(own_out), MATRIX(other), MATRIX(other_out),
#if !BF16
    MATRIX(other_by_columns),
#if KEEPS_WEIGHTS
    MATRIX(other_out_by_columns),
#endif
#endif
    const float *sums,
#if ROWS_ARE_QUERIES || WRITES_GRAD_K
    Stored<ROUNDS>::Number *grad,
#endif
#if KEEPS_WEIGHTS
    Stored<ROUNDS_GRAD_V>::Number *grad_v,
#endif
    SIZES) {
    SHARED_TILES(memory);
#if ROWS_ARE_QUERIES
    const int64 rows = queries, columns = keys;
#else
    const int64 rows = keys, columns = queries;
#endif
    const int64 tiles = (rows + OWN - 1) / OWN;
    const int64 head = blockIdx.x / tiles;
    // Those that have the most tiles begin first.
    const int64 tile = blockIdx.x % tiles, first = (ROWS_ARE_QUERIES ? tiles - 1 - tile : tile) * OWN;
    char *own_tile = memory, *own_out_tile = own_tile + OWN * DEPTH * NUMBER_BYTES;
    Ring<TILE_BYTES> ring = {own_out_tile + OWN * WIDTH * NUMBER_BYTES, 0, 0, 0, 0};
    float *kept = (float *)(ring.slots + SLOTS * TILE_BYTES);
    ring.full = (Arrivals *)((char *)kept + SLOTS * SUMS_BYTES);
    ring.empty = ring.full + SLOTS;
    Arrivals *own_full = ring.empty + SLOTS;
    if (threadIdx.x == 0) {
        // A thread also copies numbers of rows.
        ring.init(ARRIVALS_OF_TILE + (IN_PLACE && SUMS_BYTES));
        arrivals_init(own_full, ARRIVALS_OF_TILE);
        arrivals_init_end();
    }
    __syncthreads();
    int64 start = 0, end = columns;
#if CAUSAL && ROWS_ARE_QUERIES
    end = min(end, first + OWN);
#elif CAUSAL
    start = first;
#endif
    const float *logs = sums + head * 2 * padded(queries), *delta = logs + padded(queries);
    if (threadIdx.x >= CONSUMERS) {
        registers_decrease<COPIER_REGISTERS>();
        Filler<TILE_BYTES> fill = {ring, own_full};
        if (!fill.takes_part()) return;
        const Rows of_own = ROWS_OF(own, rows, depth, DEPTH), of_own_out = ROWS_OF(own_out, rows, width, WIDTH);
        const Rows of_other = ROWS_OF(other, columns, depth, DEPTH);
        const Rows of_other_out = ROWS_OF(other_out, columns, width, WIDTH);
        fill.own_begin(OWN * (DEPTH + WIDTH) * NUMBER_BYTES);
        fill.own<DEPTH>(own_tile, of_own, first);
        fill.own<WIDTH>(own_out_tile, of_own_out, first);
        fill.own_end();
        for (int64 at = start; at < end; at += ROWS) {
            fill.tile<DEPTH>(of_other, at, SUMS_BYTES ? logs + at : 0, kept);
            fill.tile<WIDTH>(of_other_out, at, SUMS_BYTES ? delta + at : 0, kept);
#if !BF16 && KEEPS_WEIGHTS
            const Rows out_by_columns = ROWS_OF(other_out_by_columns, columns, width, WIDTH);
            fill.tile<WIDTH>(out_by_columns, at, 0, 0);
#endif
#if !BF16
            const Rows by_columns = ROWS_OF(other_by_columns, columns, depth, DEPTH);
            fill.tile<DEPTH>(by_columns, at, 0, 0);
#endif
        }
        fill.end();
        return;
    }
    registers_increase<CONSUMER_REGISTERS>();
    const int group = threadIdx.x / 128, first_column = threadIdx.x % 4 * 2;
    const int64 row = first + group * GROUP_ROWS + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    const char *rows_1 = own_tile + group * (GROUP_ROWS * DEPTH * NUMBER_BYTES);
    const char *rows_2 = own_out_tile + group * (GROUP_ROWS * WIDTH * NUMBER_BYTES);
    Gradient gradient = {scale * LOG2_E, {0.0f, 0.0f}, {0.0f, 0.0f}};
#if ROWS_ARE_QUERIES
    gradient.logs[0] = logs[row], gradient.logs[1] = logs[row + 8];
    gradient.delta[0] = delta[row], gradient.delta[1] = delta[row + 8];
#endif
    float of_own[DEPTH / 2];
    zero(of_own);
#if KEEPS_WEIGHTS
    float of_values[WIDTH / 2];
    zero(of_values);
#endif
    arrivals_wait(own_full, 0);
    for (int64 at = start; at < end; at += ROWS) {
        float weights[ROWS / 2], of_weights[ROWS / 2];
        const int slot = ring.take();
        products_fence(weights);
        products_begin();
        multiply_rows<DEPTH>(weights, rows_1, ring.tile(slot));
        products_commit();
        const int slot_out = ring.take();
        products_fence(of_weights);
        products_begin();
        multiply_rows<WIDTH>(of_weights, rows_2, ring.tile(slot_out));
        products_commit();
        products_wait<1>();
        products_fence(weights);
#if ROWS_ARE_QUERIES
        bool is_whole = at + ROWS <= keys;
#else
        bool is_whole = true;
#endif
#if CAUSAL && ROWS_ARE_QUERIES
        is_whole = is_whole && at + ROWS <= first + group * GROUP_ROWS;
#elif CAUSAL
        is_whole = at >= first + (group + 1) * GROUP_ROWS;
#endif
        const int64 column = at + first_column;
        if (!is_whole) hide(weights, (int)(row - column), (int)(keys - column));
        gradient.weigh(weights, kept + slot * ROWS + first_column);
#if !BF16
        ring.give(slot);
#endif
#if KEEPS_WEIGHTS
        Factors<ROWS / 2> factors;
        factors.set(weights);
#if BF16
        const int slot_v = slot_out;
#else
        const int slot_v = ring.take();
#endif
        products_fence(factors.words);
        products_fence(of_values);
        products_begin();
        multiply_factors<WIDTH>(of_values, factors, ring.tile(slot_v));
        products_commit();
        products_wait<1>();
#else
        products_wait<0>();
#endif
        products_fence(of_weights);
        gradient.of_scores(of_weights, weights, kept + slot_out * ROWS + first_column);
#if !BF16
        ring.give(slot_out);
#endif
        Factors<ROWS / 2> of_scores;
        of_scores.set(of_weights);
#if BF16
        const int slot_own = slot;
#else
        const int slot_own = ring.take();
#endif
        products_fence(of_scores.words);
        products_fence(of_own);
        products_begin();
        multiply_factors<DEPTH>(of_own, of_scores, ring.tile(slot_own));
        products_commit();
        products_wait<0>();
        products_fence(of_own);
#if KEEPS_WEIGHTS
        products_fence(of_values);
        ring.give(slot_v);
#endif
        ring.give(slot_own);
#if BF16 && !KEEPS_WEIGHTS
        ring.give(slot_out);
#endif
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int64 own_row = row + half * 8;
        if (own_row >= rows) continue;
#if ROWS_ARE_QUERIES || WRITES_GRAD_K
        const int64 place = place_of<BY_ROWS>(head, own_row, rows, depth, beside, beside * depth);
        put_row(grad + place, of_own, half, scale, depth);
#endif
#if KEEPS_WEIGHTS
        const int64 place_v = place_of<BY_ROWS_GRAD_V>(head, own_row, rows, width, beside, step_v);
        put_row(grad_v + place_v, of_values, half, 1.0f, width);
#endif
    }
}
#endif
