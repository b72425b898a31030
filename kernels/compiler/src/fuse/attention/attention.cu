// Attention and its gradients in f32 on a GPU, without the scores in memory.
//
// Sixteen threads share rows of the result: each has some of the columns of a tile of scores, and
// of the result. Rows of a thread, and columns, are SHARERS apart. Operands are read from shared
// memory four columns at a time; rows are padded by four floats, so that threads of a warp with
// different rows read from different banks. Weighted values are kept relative to the greatest score
// so far (online softmax: Milakov and Gimelshein, 2018); gradients compute the weights again from
// the logarithms of their sums (Dao et al., "FlashAttention", 2022).
//
// DEPTH and WIDTH are columns of queries and keys, and of values, up to a multiple of 64. ALIGNED:
// rows are whole float4. All sums are added in one order.
#include "cuda.h"

#define THREADS 256
#define SHARERS 16
#define COLUMNS 64
#define DEPTH_STEP (DEPTH + 4)
#define WIDTH_STEP (WIDTH + 4)
#define WEIGHT_STEP (COLUMNS + 4)
#define LOG2_E 1.44269504088896341f
#define LN_2 0.69314718055994531f
#define NEVER __int_as_float(0xff800000)

struct Matrix {
    const float *at;
    int64 step;
    int64 rows, columns;
};

struct Sizes {
    int64 extents[3];
    int64 queries, keys, depth, width;
};

// The matrix of a head: `steps` are those of leading dimensions, then of rows.
DEVICE Matrix matrix(const float *at, const Sizes &sizes, int64 head, const int64 (&steps)[4], int64 rows, int64 columns) {
    const int64 inner = head % sizes.extents[2], middle = head / sizes.extents[2] % sizes.extents[1];
    const int64 outer = head / (sizes.extents[1] * sizes.extents[2]);
    Matrix m = {at + outer * steps[0] + middle * steps[1] + inner * steps[2], steps[3], rows, columns};
    return m;
}

// Begins to copy ROWS rows from `first` on into a tile; zeros where the matrix has ended.
template <int ROWS, int WIDE> DEVICE void load_tile(float *tile, const Matrix &from, int64 first) {
#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * (WIDE / 4); i += THREADS) {
        const int r = i / (WIDE / 4), c = i % (WIDE / 4) * 4;
        const float *row = from.at + (first + r) * from.step + c;
        float *to = tile + r * (WIDE + 4) + c;
        const bool is_row = first + r < from.rows;
#if ALIGNED
        const bool is_there = is_row && c < from.columns;
        copy_16_part(to, is_there ? row : from.at, is_there ? 16 : 0);
#else
        for (int j = 0; j < 4; j++) to[j] = is_row && c + j < from.columns ? row[j] : 0.0f;
#endif
    }
}

// sums[i][j] += a[i] . b[j], of rows that are SHARERS apart.
template <int WIDE, int I, int J> DEVICE void dot_rows(float (&sums)[I][J], const float *a, const float *b) {
#pragma unroll 2
    for (int d = 0; d < WIDE; d += 4) {
        float4 x[I], y[J];
#pragma unroll
        for (int i = 0; i < I; i++) x[i] = *(const float4 *)(a + i * SHARERS * (WIDE + 4) + d);
#pragma unroll
        for (int j = 0; j < J; j++) y[j] = *(const float4 *)(b + j * SHARERS * (WIDE + 4) + d);
#pragma unroll
        for (int i = 0; i < I; i++) {
#pragma unroll
            for (int j = 0; j < J; j++) {
                sums[i][j] = fmaf(x[i].x, y[j].x, sums[i][j]);
                sums[i][j] = fmaf(x[i].y, y[j].y, sums[i][j]);
                sums[i][j] = fmaf(x[i].z, y[j].z, sums[i][j]);
                sums[i][j] = fmaf(x[i].w, y[j].w, sums[i][j]);
            }
        }
    }
}

DEVICE void add_scaled(float4 &sum, float factor, float4 x) {
    sum.x = fmaf(factor, x.x, sum.x);
    sum.y = fmaf(factor, x.y, sum.y);
    sum.z = fmaf(factor, x.z, sum.z);
    sum.w = fmaf(factor, x.w, sum.w);
}

// sums[i] += weights[i] values, over the COLUMNS rows of `values`; a thread has one float4 of every
// 64 columns.
template <int WIDE, int I> DEVICE void add_rows(float4 (&sums)[I][WIDE / 64], const float *weights, const float *values) {
#pragma unroll 2
    for (int k = 0; k < COLUMNS; k += 4) {
        float4 w[I];
#pragma unroll
        for (int i = 0; i < I; i++) w[i] = *(const float4 *)(weights + i * SHARERS * WEIGHT_STEP + k);
#pragma unroll
        for (int c = 0; c < WIDE / 64; c++) {
            const float *column = values + k * (WIDE + 4) + c * 64;
            const float4 x = *(const float4 *)column, y = *(const float4 *)(column + (WIDE + 4));
            const float4 z = *(const float4 *)(column + 2 * (WIDE + 4)), u = *(const float4 *)(column + 3 * (WIDE + 4));
#pragma unroll
            for (int i = 0; i < I; i++) {
                add_scaled(sums[i][c], w[i].x, x);
                add_scaled(sums[i][c], w[i].y, y);
                add_scaled(sums[i][c], w[i].z, z);
                add_scaled(sums[i][c], w[i].w, u);
            }
        }
    }
}

template <int I, int J> DEVICE void zero(float (&sums)[I][J]) {
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
        for (int j = 0; j < J; j++) sums[i][j] = 0.0f;
}
template <int I, int C> DEVICE void zero(float4 (&sums)[I][C]) {
    const float4 none = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
        for (int c = 0; c < C; c++) sums[i][c] = none;
}

// Writes a thread's columns of a row of the result, times a factor.
template <int C> DEVICE void put_row(float *row, const float4 (&sums)[C], float factor, int64 columns) {
    const int first = threadIdx.x % SHARERS * 4;
#pragma unroll
    for (int c = 0; c < C; c++) {
        const float4 x = {sums[c].x * factor, sums[c].y * factor, sums[c].z * factor, sums[c].w * factor};
        const int at = c * 64 + first;
#if ALIGNED
        if (at < columns) *(float4 *)(row + at) = x;
#else
        const float parts[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (at + j < columns) row[at + j] = parts[j];
#endif
    }
}

// Scores of keys that no query sees, or not that of the row, become NEVER; a thread's keys are
// SHARERS apart. Most tiles have none.
template <int I, int J> DEVICE void hide(float (&scores)[I][J], int64 first_key, int64 keys, int64 first_query) {
    const int64 last_key = first_key + (J - 1) * SHARERS;
#if CAUSAL
    if (last_key < keys && last_key <= first_query) return;
#else
    if (last_key < keys) return;
#endif
#pragma unroll
    for (int i = 0; i < I; i++) {
#pragma unroll
        for (int j = 0; j < J; j++) {
            const int64 key = first_key + j * SHARERS;
            bool is_seen = key < keys;
#if CAUSAL
            is_seen = is_seen && key <= first_query + i * SHARERS;
#endif
            if (!is_seen) scores[i][j] = NEVER;
        }
    }
}

#define STEPS(x) int64 x##0, int64 x##1, int64 x##2, int64 x##3
#define SIZES float scale, int64 e0, int64 e1, int64 e2, int64 queries, int64 keys, int64 depth, int64 width
#define THE_SIZES {{e0, e1, e2}, queries, keys, depth, width}
#define HEAD(m, x, rows, columns) const int64 m##_steps[4] = {x##0, x##1, x##2, x##3}; \
    const Matrix m = matrix(m##_at, sizes, head, m##_steps, rows, columns)

#ifdef FORWARD
// Over the threads that share rows.
DEVICE float shared_max(float x) {
#pragma unroll
    for (int lanes = 1; lanes < SHARERS; lanes *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}
DEVICE float shared_sum(float x) {
#pragma unroll
    for (int lanes = 1; lanes < SHARERS; lanes *= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// Queries of a block, and of a thread.
#define QUERIES 128
#define OWN 8
#define OWN_KEYS (COLUMNS / SHARERS)

KERNEL(attention, THREADS, 1)(const float *q_at, const float *k_at,
#if WRITES_OUT
    const float *v_at, float *out,
#endif
#if WRITES_LOG_SUM_EXP
    float *logs,
#endif
    SIZES, STEPS(q), STEPS(k)
#if WRITES_OUT
    , STEPS(v)
#endif
) {
    SHARED(memory);
    const Sizes sizes = THE_SIZES;
    const int64 tiles = (queries + QUERIES - 1) / QUERIES;
    // Later queries of a causal attention have the most keys: they begin first.
    const int64 head = blockIdx.x / tiles, first = (tiles - 1 - blockIdx.x % tiles) * QUERIES;
    HEAD(q, q, queries, depth);
    HEAD(k, k, keys, depth);
    float *q_tile = memory, *k_tile = q_tile + QUERIES * DEPTH_STEP, *weights = k_tile + COLUMNS * DEPTH_STEP;
    const int group = threadIdx.x / SHARERS, lane = threadIdx.x % SHARERS;
    const int64 own = first + group;
    int64 end = keys;
#if CAUSAL
    end = min(end, first + QUERIES);
#endif
    load_tile<QUERIES, DEPTH>(q_tile, q, first);
    load_tile<COLUMNS, DEPTH>(k_tile, k, 0);
    copies_commit();
#if WRITES_OUT
    HEAD(v, v, keys, width);
    float *v_tile = weights + QUERIES * WEIGHT_STEP;
    float4 sums[OWN][WIDTH / 64];
    zero(sums);
#endif
    // Of the scores before they are scaled; sums are those of the thread's own keys.
    float greatest[OWN], sum[OWN];
    const float factor = scale * LOG2_E;
#pragma unroll
    for (int i = 0; i < OWN; i++) greatest[i] = NEVER, sum[i] = 0.0f;
    for (int64 at = 0; at < end; at += COLUMNS) {
#if WRITES_OUT
        load_tile<COLUMNS, WIDTH>(v_tile, v, at);
#endif
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        float scores[OWN][OWN_KEYS];
        zero(scores);
        dot_rows<DEPTH>(scores, q_tile + group * DEPTH_STEP, k_tile + lane * DEPTH_STEP);
        __syncthreads();
        if (at + COLUMNS < end) load_tile<COLUMNS, DEPTH>(k_tile, k, at + COLUMNS);
        copies_commit();
        hide(scores, at + lane, keys, own);
#pragma unroll
        for (int i = 0; i < OWN; i++) {
            float most = greatest[i];
#pragma unroll
            for (int j = 0; j < OWN_KEYS; j++) most = fmaxf(most, scores[i][j]);
            most = shared_max(most);
            const float before = exp2_fast((greatest[i] - most) * factor);
            sum[i] *= before;
#pragma unroll
            for (int j = 0; j < OWN_KEYS; j++) {
                const float weight = exp2_fast(fmaf(scores[i][j], factor, -most * factor));
                sum[i] += weight;
                weights[(group + i * SHARERS) * WEIGHT_STEP + j * SHARERS + lane] = weight;
            }
            greatest[i] = most;
#if WRITES_OUT
#pragma unroll
            for (int c = 0; c < WIDTH / 64; c++) {
                sums[i][c].x *= before, sums[i][c].y *= before, sums[i][c].z *= before, sums[i][c].w *= before;
            }
#endif
        }
#if WRITES_OUT
        copies_wait<1>();
        __syncthreads();
        add_rows<WIDTH>(sums, weights + group * WEIGHT_STEP, v_tile + lane * 4);
        __syncthreads();
#endif
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        sum[i] = shared_sum(sum[i]);
        if (own + i * SHARERS >= queries) continue;
        const int64 row = head * queries + own + i * SHARERS;
#if WRITES_OUT
        put_row(out + row * width, sums[i], 1.0f / sum[i], width);
#endif
#if WRITES_LOG_SUM_EXP
        if (lane == 0) logs[row] = greatest[i] * scale + log2_fast(sum[i]) * LN_2;
#endif
    }
}
#endif

// Rows of a block of the kernels of gradients, and of a thread.
#define ROWS 64
#define OWN_ROWS (ROWS / SHARERS)
#define OWN_COLUMNS (COLUMNS / SHARERS)

#ifdef GRAD_Q
KERNEL(attention_grad_q, THREADS, 1)(const float *q_at, const float *k_at, const float *v_at, const float *grad_out_at,
    const float *logs, const float *delta, float *grad_q, SIZES, STEPS(q), STEPS(k), STEPS(v), STEPS(g)) {
    SHARED(memory);
    const Sizes sizes = THE_SIZES;
    const int64 tiles = (queries + ROWS - 1) / ROWS;
    const int64 head = blockIdx.x / tiles, first = (tiles - 1 - blockIdx.x % tiles) * ROWS;
    HEAD(q, q, queries, depth);
    HEAD(k, k, keys, depth);
    HEAD(v, v, keys, width);
    HEAD(grad_out, g, queries, width);
    float *q_tile = memory, *k_tile = q_tile + ROWS * DEPTH_STEP, *grad_tile = k_tile + COLUMNS * DEPTH_STEP;
    float *v_tile = grad_tile + ROWS * WIDTH_STEP, *weights = v_tile + COLUMNS * WIDTH_STEP;
    const int group = threadIdx.x / SHARERS, lane = threadIdx.x % SHARERS;
    const int64 own = first + group;
    const float factor = scale * LOG2_E;
    float log[OWN_ROWS], less[OWN_ROWS];
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {
        const bool is_row = own + i * SHARERS < queries;
        log[i] = is_row ? logs[head * queries + own + i * SHARERS] * LOG2_E : 0.0f;
        less[i] = is_row ? delta[head * queries + own + i * SHARERS] : 0.0f;
    }
    int64 end = keys;
#if CAUSAL
    end = min(end, first + ROWS);
#endif
    load_tile<ROWS, DEPTH>(q_tile, q, first);
    load_tile<ROWS, WIDTH>(grad_tile, grad_out, first);
    float4 sums[OWN_ROWS][DEPTH / 64];
    zero(sums);
    for (int64 at = 0; at < end; at += COLUMNS) {
        load_tile<COLUMNS, DEPTH>(k_tile, k, at);
        load_tile<COLUMNS, WIDTH>(v_tile, v, at);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        float scores[OWN_ROWS][OWN_COLUMNS], of_weights[OWN_ROWS][OWN_COLUMNS];
        zero(scores);
        zero(of_weights);
        dot_rows<DEPTH>(scores, q_tile + group * DEPTH_STEP, k_tile + lane * DEPTH_STEP);
        dot_rows<WIDTH>(of_weights, grad_tile + group * WIDTH_STEP, v_tile + lane * WIDTH_STEP);
        hide(scores, at + lane, keys, own);
#pragma unroll
        for (int i = 0; i < OWN_ROWS; i++) {
#pragma unroll
            for (int j = 0; j < OWN_COLUMNS; j++) {
                const float weight = exp2_fast(fmaf(scores[i][j], factor, -log[i]));
                const float of_score = weight * (of_weights[i][j] - less[i]);
                weights[(group + i * SHARERS) * WEIGHT_STEP + j * SHARERS + lane] = of_score;
            }
        }
        __syncwarp();
        add_rows<DEPTH>(sums, weights + group * WEIGHT_STEP, k_tile + lane * 4);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {
        if (own + i * SHARERS >= queries) break;
        put_row(grad_q + (head * queries + own + i * SHARERS) * depth, sums[i], scale, depth);
    }
}
#endif

#ifdef GRAD_KV
// Rows are keys, columns queries.
KERNEL(attention_grad_kv, THREADS, 1)(const float *q_at, const float *k_at, const float *v_at, const float *grad_out_at,
    const float *logs, const float *delta,
#if WRITES_GRAD_K
    float *grad_k,
#endif
#if WRITES_GRAD_V
    float *grad_v,
#endif
    SIZES, STEPS(q), STEPS(k), STEPS(v), STEPS(g)) {
    SHARED(memory);
    const Sizes sizes = THE_SIZES;
    const int64 tiles = (keys + ROWS - 1) / ROWS;
    const int64 head = blockIdx.x / tiles, first = blockIdx.x % tiles * ROWS;
    HEAD(q, q, queries, depth);
    HEAD(k, k, keys, depth);
    HEAD(v, v, keys, width);
    HEAD(grad_out, g, queries, width);
    float *k_tile = memory, *q_tile = k_tile + ROWS * DEPTH_STEP, *v_tile = q_tile + COLUMNS * DEPTH_STEP;
    float *grad_tile = v_tile + ROWS * WIDTH_STEP, *weights = grad_tile + COLUMNS * WIDTH_STEP;
    float *of_scores = weights + ROWS * WEIGHT_STEP;
    const int group = threadIdx.x / SHARERS, lane = threadIdx.x % SHARERS;
    const int64 own = first + group;
    load_tile<ROWS, DEPTH>(k_tile, k, first);
    load_tile<ROWS, WIDTH>(v_tile, v, first);
    float4 of_k[OWN_ROWS][DEPTH / 64], of_v[OWN_ROWS][WIDTH / 64];
    zero(of_k);
    zero(of_v);
    int64 begin = 0;
#if CAUSAL
    begin = first;
#endif
    for (int64 at = begin; at < queries; at += COLUMNS) {
        load_tile<COLUMNS, DEPTH>(q_tile, q, at);
        load_tile<COLUMNS, WIDTH>(grad_tile, grad_out, at);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        float scores[OWN_ROWS][OWN_COLUMNS], of_weights[OWN_ROWS][OWN_COLUMNS];
        zero(scores);
        zero(of_weights);
        dot_rows<DEPTH>(scores, k_tile + group * DEPTH_STEP, q_tile + lane * DEPTH_STEP);
        dot_rows<WIDTH>(of_weights, v_tile + group * WIDTH_STEP, grad_tile + lane * WIDTH_STEP);
#pragma unroll
        for (int j = 0; j < OWN_COLUMNS; j++) {
            const int64 query = at + j * SHARERS + lane;
            const bool is_query = query < queries;
            const float log = is_query ? logs[head * queries + query] * LOG2_E : 0.0f;
            const float less = is_query ? delta[head * queries + query] : 0.0f;
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++) {
                bool is_seen = is_query;
#if CAUSAL
                is_seen = is_seen && own + i * SHARERS <= query;
#endif
                const float weight = is_seen ? exp2_fast(fmaf(scores[i][j], scale * LOG2_E, -log)) : 0.0f;
                const int place = (group + i * SHARERS) * WEIGHT_STEP + j * SHARERS + lane;
                weights[place] = weight;
                of_scores[place] = weight * (of_weights[i][j] - less);
            }
        }
        __syncwarp();
#if WRITES_GRAD_V
        add_rows<WIDTH>(of_v, weights + group * WEIGHT_STEP, grad_tile + lane * 4);
#endif
#if WRITES_GRAD_K
        add_rows<DEPTH>(of_k, of_scores + group * WEIGHT_STEP, q_tile + lane * 4);
#endif
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {
        if (own + i * SHARERS >= keys) break;
        const int64 row = head * keys + own + i * SHARERS;
#if WRITES_GRAD_K
        put_row(grad_k + row * depth, of_k[i], scale, depth);
#endif
#if WRITES_GRAD_V
        put_row(grad_v + row * width, of_v[i], 1.0f, width);
#endif
    }
}
#endif
