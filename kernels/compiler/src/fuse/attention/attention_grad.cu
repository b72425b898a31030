// Gradients of attention in f32 on a GPU, without the scores in memory: five products.
//
// Weights are computed again (Dao et al., "FlashAttention", 2022), from rows' references and the
// reciprocals of their sums: scores are formed as forward, and so are differences from references,
// to the bit. A block has KEYS keys and goes over the queries, QUERIES at a time. The first half of
// its warps computes weights and the gradient by values, the second half the gradients by weights,
// scores and keys; then each half computes its part of what these keys add to the gradient by
// queries. The first half is ahead of the second by the time that weights take: they meet at named
// barriers where one needs what the other has stored, and only the one that needs it waits.
//
// Blocks add to a tile of the gradient by queries in turns, those with the first keys first: sums
// have one order. `turns` is zeros before: the number of blocks that have begun, and of those whose
// first and second halves have added to each tile. A block waits only for blocks that began before
// it. Blocks that begin at once follow each other by the time from one's turn to the next: where a
// turn has not come when gradients by scores are there, the product comes before the wait.
//
// The assembler keeps the order of multiply-adds (its first level of optimization): they run
// through sums to and fro, and two of them in a row share factors that are read once.
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
// Columns of a matrix, transposed, and up to two numbers of each row.
#define NUMBERS (2 * QUERIES)
#define SLOT (COLUMNS * QUERY_STEP + NUMBERS)
// Named barriers: of each half, and of what one half tells the other.
#define OWN_HALF(half) (1 + (half))
#define WEIGHTS_STORED 3
#define GRAD_SCORES_STORED 4
#define QUERIES_COPIED 5
#define GRADS_COPIED 6

using Scores = Share<KEYS, QUERIES, HALF>;
using OfKeys = Share<COLUMNS, KEYS, HALF>;
using OfQueries = Share<QUERIES, COLUMNS, WARPS>;
static_assert(KEYS % QUERIES == 0, "blocks of a causal attention begin with a tile");
static_assert(KEYS * COLUMN_STEP <= 2 * SLOT, "the gradient by keys fits where queries were");

DEVICE void wait_for_half(int half) { named_barrier_sync(OWN_HALF(half), HALF * 32); }
// The other half waits for what this one has stored.
DEVICE void tell(int barrier) { named_barrier_arrive(barrier, THREADS); }
DEVICE void wait_to_be_told(int barrier) { named_barrier_sync(barrier, THREADS); }

// Begins to copy a tile of queries or of their gradients, with EACH numbers of each row, by BY
// warps.
// Rows that are not there are zeros, and so is all that they add.
template <int BY, int EACH> DEVICE void load_queries(float *slot, const Matrix &from, const float *numbers, int64 first) {
    load_transposed<QUERIES, COLUMNS, BY>(slot, from, first, 0);
    for (int i = threadIdx.x % (BY * 32); i < EACH * QUERIES; i += BY * 32)
        copy_or_zero(slot + SLOT - NUMBERS + i, numbers + EACH * first + i, first + i / EACH < from.rows);
}

// The weights of a thread's scores, into a tile. `sums` are references and shares by turns.
DEVICE void put_weights(float *to, float (&scores)[Scores::I][Scores::J], const float *sums, float factor, int64 key, int64 query) {
#pragma unroll
    for (int j = 0; j < Scores::J; j++) {
        const float reference = sums[2 * column_at(j)], share = sums[2 * column_at(j) + 1];
#pragma unroll
        for (int i = 0; i < Scores::I; i++) {
            scores[i][j] = exp2_fast(fmaf(scores[i][j], factor, -reference)) * share;
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
    wait_for_half(half);
    for (int i = threadIdx.x % (HALF * 32); i < KEYS * COLUMNS / 4; i += HALF * 32) {
        const int r = i / (COLUMNS / 4), c = i % (COLUMNS / 4) * 4;
        if (first + r < keys) put_4(to + (first + r) * columns, c, columns, *(const float4 *)(tile + r * COLUMN_STEP + c));
    }
}

#if WRITES_GRAD_Q
// The turns of half a block's warps to add to tiles of the gradient by queries. Its first thread
// looks, and tells the others.
struct Turn {
    // How many blocks have added to the tile, by the same half of their warps.
    unsigned long long *added;
    unsigned long long block;
    int half;
    int *told;

    METHOD bool looks() const { return threadIdx.x % (HALF * 32) == 0; }
    // Ahead of a piece of a product. A look takes no longer than a piece: at the barrier nobody
    // waits for it.
    METHOD void look(unsigned long long &seen, int piece) const {
        if (!looks() || block == 0) return;
        if (piece == PIECES - 2) seen = load_word(added);
        if (piece == PIECES - 1 && seen == block) memory_fence();
    }
    METHOD void tell_others(unsigned long long seen) const {
        if (looks()) *told = seen == block;
    }
    METHOD void wait() const {
        if (looks()) {
            while (load_word(added) != block) {}
            memory_fence();
        }
        wait_for_half(half);
    }
    // After a barrier: all threads of the half have stored their sums.
    METHOD void end() const {
        if (!looks()) return;
        memory_fence();
        store_word(added, block + 1);
    }
    // There are words of both halves for each tile.
    METHOD void next() { added += 2; }
};

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

// Adds a block's part of the gradient by queries to a tile, which begins at row `first` of the
// gradient of a head. What is there is loaded ahead of the product if the turn has come.
DEVICE void add_to_queries(float *grad_q, int64 first, int64 queries, int64 columns, float scale,
                           const float *grad_scores, const float *k_tile, const Turn &turn) {
    const int warp = threadIdx.x / 32;
    const Lane lane = lane_of(threadIdx.x);
    const int row = OfQueries::row(warp, lane), column = OfQueries::column(warp, lane);
    float *to = grad_q + (first + row) * columns;
    const int64 rows = queries - first - row;
    const bool is_turn = *turn.told != 0;
    float4 before[OfQueries::I][OfQueries::J / 4];
#pragma unroll
    for (int i = 0; i < OfQueries::I; i++)
#pragma unroll
        for (int j = 0; j < OfQueries::J / 4; j++) before[i][j] = float4{0.0f, 0.0f, 0.0f, 0.0f};
    if (is_turn && turn.block > 0) load_sums(before, to, rows, column, columns);
    float sums[OfQueries::I][OfQueries::J];
    zero(sums);
    multiply_rows<KEYS, KEY_STEP, COLUMN_STEP, true>(sums, grad_scores + row * KEY_STEP, k_tile + column);
    if (!is_turn) {
        turn.wait();
        load_sums(before, to, rows, column, columns);
    }
#pragma unroll
    for (int i = 0; i < OfQueries::I; i++) {
        if (i * GROUPS >= rows) continue;
#pragma unroll
        for (int j = 0; j < OfQueries::J; j += 4) {
            const float4 was = before[i][j / 4];
            const float4 x = {fmaf(sums[i][j], scale, was.x), fmaf(sums[i][j + 1], scale, was.y),
                              fmaf(sums[i][j + 2], scale, was.z), fmaf(sums[i][j + 3], scale, was.w)};
            put_4(to + i * GROUPS * columns, column + column_at(j), columns, x);
        }
    }
}
#endif

KERNEL(attention_grad, THREADS, 1)(const float *q_at, const float *k_at, const float *v_at, const float *grad_out_at,
    const float *row_sums, const float *delta,
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
    float *k_tile = memory, *v_tile = k_tile + KEYS * COLUMN_STEP;
    float *q_tiles = v_tile + KEYS * COLUMN_STEP, *q_tile = q_tiles, *next_q_tile = q_tile + SLOT, *grad_tile = q_tile + 2 * SLOT;
    float *weights = grad_tile + SLOT, *grad_scores = weights + QUERIES * KEY_STEP;
#if WRITES_GRAD_Q
    // A number that the first thread tells the others, and whether the turn of each half has come.
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
    row_sums += 2 * head * queries, delta += head * queries;
    load_tile<KEYS, COLUMNS, COLUMN_STEP>(k_tile, k, first);
    load_tile<KEYS, COLUMNS, COLUMN_STEP>(v_tile, v, first);
    load_queries<WARPS, 2>(q_tile, q, row_sums, begin);
    load_queries<WARPS, 1>(grad_tile, grad_out, delta, begin);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    // The gradient by values of one half, by keys of the other.
    float sums[OfKeys::I][OfKeys::J];
    zero(sums);
    const bool has_sums = half == 0 ? WRITES_GRAD_V : WRITES_GRAD_K;
#if WRITES_GRAD_Q
    const int64 tile = head * ((queries + QUERIES - 1) / QUERIES) + begin / QUERIES;
    Turn turn = {turns + 1 + tile * 2 + half, (unsigned long long)block, half, told + 1 + half};
    grad_q += head * queries * depth;
#endif
#pragma unroll 1
    for (int64 at = begin; at < queries; at += QUERIES) {
        const bool is_last = at + QUERIES >= queries;
        float scores[Scores::I][Scores::J];
        zero(scores);
        // The same instructions for both halves: they share a cache of them.
        multiply_rows<COLUMNS, COLUMN_STEP, QUERY_STEP, false>(
            scores, (half == 0 ? k_tile : v_tile) + key * COLUMN_STEP, (half == 0 ? q_tile : grad_tile) + query);
        if (half == 0) {
            put_weights(weights + in_tile, scores, q_tile + SLOT - NUMBERS + 2 * query, scale * LOG2_E, first + key, at + query);
            tell(WEIGHTS_STORED);
            wait_for_half(half);
        } else {
            wait_to_be_told(WEIGHTS_STORED);
            put_grad_scores(grad_scores + in_tile, weights + in_tile, scores, grad_tile + SLOT - NUMBERS + query);
            tell(GRAD_SCORES_STORED);
            wait_for_half(half);
            if (!is_last) load_queries<HALF, 2>(next_q_tile, q, row_sums, at + QUERIES);
            copies_commit();
        }
        const float *rows_of_sums = (half == 0 ? grad_tile : q_tile) + OfKeys::row(warp, lane) * QUERY_STEP;
        const float *factors = (half == 0 ? weights : grad_scores) + OfKeys::column(warp, lane);
#if WRITES_GRAD_Q
        unsigned long long seen = 0;
#endif
#pragma unroll 1
        for (int piece = 0; piece < PIECES; piece++) {
#if WRITES_GRAD_Q
            turn.look(seen, piece);
#endif
            if (has_sums)
                multiply_rows<PIECE, QUERY_STEP, KEY_STEP, false>(
                    sums, rows_of_sums + piece * PIECE, factors + piece * PIECE * KEY_STEP);
        }
#if WRITES_GRAD_Q
        turn.tell_others(seen);
#endif
        if (half == 0) {
            wait_to_be_told(GRAD_SCORES_STORED);
            if (!is_last) load_queries<HALF, 1>(grad_tile, grad_out, delta, at + QUERIES);
            copies_commit();
        } else {
            copies_wait<0>();
            if (!is_last) tell(QUERIES_COPIED);
            wait_for_half(half);
        }
        float *const used = q_tile;
        q_tile = next_q_tile, next_q_tile = used;
#if WRITES_GRAD_Q
        add_to_queries(grad_q, at, queries, depth, scale, grad_scores, k_tile, turn);
#endif
        if (is_last) break;
        if (half == 0) {
            copies_wait<0>();
            wait_to_be_told(QUERIES_COPIED);
            tell(GRADS_COPIED);
        } else {
            wait_to_be_told(GRADS_COPIED);
        }
#if WRITES_GRAD_Q
        turn.end();
        turn.next();
#endif
    }
    __syncthreads();
#if WRITES_GRAD_Q
    if (begin < queries) turn.end();
#endif
#if WRITES_GRAD_V
    if (half == 0) put_transposed(k_tile, sums, 1.0f, grad_v + head * keys * width, width, first, keys, warp, lane, half);
#endif
#if WRITES_GRAD_K
    if (half == 1) put_transposed(q_tiles, sums, scale, grad_k + head * keys * depth, depth, first, keys, warp, lane, half);
#endif
}
