// Attention and its gradients on a CPU, without the scores in memory.
//
// Forward, a block has ROWS queries; of gradients it has ROWS keys at a time. Their operands are
// packed once, transposed: a vector has sixteen of the block's rows. It goes over tiles of the
// other operands, keys or queries, which are read as they lie. Weighted values are kept relative to
// a reference that is at most 2^16 below the greatest score so far (online softmax: Milakov and
// Gimelshein, 2018): most tiles need not scale earlier sums. Gradients compute the weights again
// (Dao et al., "FlashAttention", 2022), from each row's reference and the reciprocal of its sum: an
// f32 near the logarithm of the sum would be as far from the next as scores are, and all weights of
// a row off by that. So both passes form scores by the same products, in one order, and references
// are whole exponents of 2, so that a difference of a score is rounded once. Sums are added in one
// order, for any number of threads.
//
// DEPTH and WIDTH are columns of queries and keys, and of values, up to a multiple of a vector.
#include "cpu.h"
#include "elementary.h"

#define TILE 64
// Rows of a block of products: their sums, two vectors each, stay in registers.
#if defined(__AVX512F__) || defined(__aarch64__)
#define BLOCK_ROWS 8
#else
#define BLOCK_ROWS 4
#endif
#define NEVER -__builtin_inff()
#define LOG2_E 1.44269504088896341f
#define FAR 16.0f
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define INLINE static inline __attribute__((always_inline))

// Rows of a matrix.
typedef struct {
    const float *at;
    int64_t step;
} Rows;

// One matrix of each operand.
typedef struct {
    float scale;
    // The head of how many.
    int64_t head, heads;
    int64_t queries, keys, depth, width;
    Rows q, k, v, grad_out;
} Head;

// The numbers of a launch begin at argument `at`.
static Head head_of(const uint64_t *args, int at, int operands, int64_t head) {
    const int64_t *numbers = (const int64_t *)args + at + 1;
    const int64_t heads = numbers[0] * numbers[1] * numbers[2];
    Head h = {ARG_FLOAT(args, at), head, heads, numbers[3], numbers[4], numbers[5], numbers[6], {0}, {0}, {0}, {0}};
    const int64_t place[3] = {h.head / (numbers[1] * numbers[2]), h.head / numbers[2] % numbers[1], h.head % numbers[2]};
    Rows *const rows[4] = {&h.q, &h.k, &h.v, &h.grad_out};
    for (int i = 0; i < operands; i++) {
        const int64_t *steps = numbers + 7 + 4 * i;
        rows[i]->at = ARG_READ(args, i, float) + place[0] * steps[0] + place[1] * steps[1] + place[2] * steps[2];
        rows[i]->step = steps[3];
    }
    return h;
}

static inline int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

static inline Rows from_row(Rows rows, int64_t first) { return (Rows){rows.at + first * rows.step, rows.step}; }

// `count` rows, transposed: a row of `to` is a column, of ROWS rows.
static void pack_turned(float *to, Rows from, int64_t count, int64_t columns) {
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < ROWS; r++) to[c * ROWS + r] = r < count ? from.at[r * from.step + c] : 0.0f;
}

// Rows whose columns are whole vectors: themselves, or a copy that ends in zeros.
static Rows whole_vectors(Rows from, int64_t count, int64_t columns, int padded, float *copy) {
    if (columns == padded) return from;
    for (int64_t r = 0; r < count; r++)
        for (int c = 0; c < padded; c++) copy[r * padded + c] = c < columns ? from.at[r * from.step + c] : 0.0f;
    return (Rows){copy, padded};
}

// 2^x for x below 127, to 3 units in the last place; below -100, 2^-100: beside weights that matter
// this is 0, and products with it are normal numbers. The polynomial is the one of its degree that
// is closest to 2^r, relatively (Remez): 7.5e-8. 2^0 is 1 + 2^-23.
INLINE vf weight_of(vf x) {
    // NaN stays NaN.
    const vf at = v_max(v_all(-100.0f), x), shifted = at + ROUNDER;
    const vf r = at - (shifted - ROUNDER);
    vf p = r * 1.3276472167819943e-3f + 9.6755413310213911e-3f;
    p = p * r + 5.5507132728753912e-2f;
    p = p * r + 2.4022119723969178e-1f;
    p = p * r + 6.9314696706526493e-1f;
    p = p * r + 1.0000000716546416f;
    return (vf)((vi)p + ((vi)shifted << 23));
}

// The epilogue of products, which are in registers.
typedef enum {
    // They are added to sums in memory.
    ADD,
    // Forward: scores become weights relative to a reference of each query; they are summed up, and
    // the greatest scores kept.
    WEIGH,
    // Gradients: scores become weights by each query's reference and share.
    WEIGH_AGAIN,
    // Gradients: gradients by weights become gradients by scores.
    SCORE_GRADIENT,
} Epilogue;

// A tile of products. Columns are the block's rows, from `own` on: queries forward, keys of
// gradients. Rows are the others, from `first` on.
typedef struct {
    Epilogue epilogue;
    int64_t first, own;
    // Of scores, to exponents of 2.
    float factor;
    // By columns; the greatest scores are products.
    const float *reference;
    float *most, *sum;
    // By rows; references and shares by turns.
    const float *sums, *delta;
    // By both.
    const float *weights;
} Tile;

// Lanes of a row, from a column on; `hidden` where a causal attention's query does not see the key.
INLINE vf seen(const Tile *tile, int64_t row, int64_t column, vf lanes, float hidden) {
#if CAUSAL
    const int64_t ahead = tile->first + row - (tile->own + column);
    const vi lane = v_iota(), same = (int32_t)lesser(ahead < -1 ? -1 : ahead, LANES) - (vi){};
    lanes = v_select(tile->epilogue == WEIGH ? lane < same : lane > same, v_all(hidden), lanes);
#endif
    return lanes;
}

// The epilogue of a vector in each of `count` rows.
INLINE void finish(const Tile *tile, int count, int64_t row, int64_t column, vf *lanes, int step) {
    vf reference, most, sum;
    if (tile->epilogue == WEIGH) {
        reference = v_load(tile->reference + column);
        most = v_load(tile->most + column);
        sum = v_load(tile->sum + column);
    }
    UNROLL for (int r = 0; r < count; r++) {
        vf *const x = lanes + r * step;
        const int64_t i = row + r;
        switch (tile->epilogue) {
        case ADD: break;
        case WEIGH:
            *x = seen(tile, i, column, *x, NEVER);
            most = v_max(most, *x);
            *x = weight_of(*x * tile->factor - reference);
            sum += *x;
            break;
        case WEIGH_AGAIN:
            *x = weight_of(*x * tile->factor - tile->sums[2 * i]) * tile->sums[2 * i + 1];
            *x = seen(tile, i, column, *x, 0.0f);
            break;
        case SCORE_GRADIENT: *x = v_load(tile->weights + i * ROWS + column) * (*x - tile->delta[i]); break;
        }
    }
    if (tile->epilogue == WEIGH) v_store(tile->most + column, most), v_store(tile->sum + column, sum);
}

// to(row + r, column + c) = sum over k of a(row + r, k) b(k, column + c), of up to BLOCK_ROWS
// rows and one or two vectors.
INLINE void block_products(const Tile *tile, int count, int vectors, int64_t row, int64_t column, int64_t inner,
                           const float *a, int64_t a_row, int64_t a_column, Rows b, float *to, int64_t to_row) {
    vf sum[BLOCK_ROWS][2];
    a += row * a_row, b.at += column, to += row * to_row + column;
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int v = 0; v < vectors; v++)
            sum[r][v] = tile->epilogue == ADD ? v_load(to + r * to_row + v * LANES) : v_all(0.0f);
    for (int64_t k = 0; k < inner; k++) {
        vf with[2];
        UNROLL for (int v = 0; v < vectors; v++) with[v] = v_load(b.at + k * b.step + v * LANES);
        UNROLL for (int r = 0; r < count; r++) {
            const vf x = v_all(a[r * a_row + k * a_column]);
            UNROLL for (int v = 0; v < vectors; v++) sum[r][v] += x * with[v];
        }
    }
    UNROLL for (int v = 0; v < vectors; v++) finish(tile, count, row, column + v * LANES, &sum[0][v], 2);
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int v = 0; v < vectors; v++) v_store(to + r * to_row + v * LANES, sum[r][v]);
}

// Products of all rows, a block at a time.
INLINE void column_products(const Tile *tile, int64_t rows, int vectors, int64_t column, int64_t inner, const float *a,
                            int64_t a_row, int64_t a_column, Rows b, float *to, int64_t to_row) {
    int64_t r = 0;
    for (; r + BLOCK_ROWS <= rows; r += BLOCK_ROWS)
        block_products(tile, BLOCK_ROWS, vectors, r, column, inner, a, a_row, a_column, b, to, to_row);
    for (; r < rows; r++) block_products(tile, 1, vectors, r, column, inner, a, a_row, a_column, b, to, to_row);
}

// to = a b, of `rows` rows and `columns` columns, a multiple of a vector, by the tile's epilogue.
INLINE void multiply(const Tile *tile, int64_t rows, int64_t inner, int columns, const float *a, int64_t a_row,
                     int64_t a_column, Rows b, float *to) {
    int c = 0;
    for (; c + 2 * LANES <= columns; c += 2 * LANES)
        column_products(tile, rows, 2, c, inner, a, a_row, a_column, b, to, columns);
    if (c < columns) column_products(tile, rows, 1, c, inner, a, a_row, a_column, b, to, columns);
}

static const Tile ADDED = {.epilogue = ADD};

// to[i][r] = rows[i] . turned[.][r], of `count` rows of a tile.
INLINE void tile_products(const Tile *tile, float *to, Rows rows, int64_t count, int64_t inner, const float *turned) {
    multiply(tile, count, inner, ROWS, rows.at, rows.step, 1, (Rows){turned, ROWS}, to);
}

// sums[r] += sum over i of weights[i][r] rows[i].
INLINE void add_weighted(float *sums, const float *weights, int64_t count, Rows rows, int columns) {
    multiply(&ADDED, ROWS, count, columns, weights, 1, ROWS, rows, sums);
}

static inline void zero(float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = 0.0f;
}

// Writes rows of the result, times a factor each.
static void put(float *to, const float *rows, int64_t count, int64_t columns, int padded, const float *factors) {
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < columns; c++) to[r * columns + c] = rows[r * padded + c] * factors[r];
}

static void put_scaled(float *to, const float *rows, int64_t count, int64_t columns, int padded, float factor) {
    float factors[ROWS];
    for (int r = 0; r < ROWS; r++) factors[r] = factor;
    put(to, rows, count, columns, padded, factors);
}

// The running softmax of a block's queries.
typedef struct {
    // Weights are relative to it, a whole number which is at most 2^16 below the greatest exponent
    // so far.
    float reference[ROWS];
    float sum[ROWS];
} Softmax;

// The whole number next to x, or a near one where x is beyond 2^22.
INLINE vf whole(vf x) { return (x + ROUNDER) - ROUNDER; }

// Weights of a tile of keys, which are added to the sums, and true; or false if one of the greatest
// exponents, `most`, is far beyond its reference.
APART static int weigh(float *weights, const Head *h, int64_t first, int64_t count, const float *q, int64_t own,
                       Softmax *softmax, float *most) {
    float sum[ROWS];
    zero(sum, ROWS);
    for (int r = 0; r < ROWS; r++) most[r] = NEVER;
    const Tile tile = {WEIGH, first, own, h->scale * LOG2_E, .reference = softmax->reference, .most = most, .sum = sum};
    tile_products(&tile, weights, from_row(h->k, first), count, h->depth, q);
    int is_far = 0;
    for (int r = 0; r < ROWS; r++) {
        most[r] *= h->scale * LOG2_E;
        is_far |= most[r] > softmax->reference[r] + FAR;
    }
    if (is_far) return 0;
    for (int r = 0; r < ROWS; r++) softmax->sum[r] += sum[r];
    return 1;
}

// The greatest exponents take the place of references far below; sums and weighted values are
// scaled.
APART static void raise(Softmax *softmax, const float *most, float *out) {
    float factor[ROWS];
    for (int r = 0; r < ROWS; r += LANES) {
        const vf old = v_load(softmax->reference + r), now = whole(v_load(most + r));
        const vi is_far = v_less(old + FAR, v_load(most + r));
        v_store(softmax->reference + r, v_select(is_far, now, old));
        v_store(factor + r, v_select(is_far, weight_of(old - now), v_all(1.0f)));
        v_store(softmax->sum + r, v_load(softmax->sum + r) * v_load(factor + r));
    }
    for (int r = 0; WRITES_OUT && r < ROWS; r++)
        for (int c = 0; c < WIDTH; c += LANES) v_store(out + r * WIDTH + c, v_load(out + r * WIDTH + c) * factor[r]);
}

KERNEL(attention, args, block) {
    const int reads = WRITES_OUT ? 3 : 2, at = reads + WRITES_OUT + WRITES_LOG_SUM_EXP;
    const int64_t tiles = (ARG_INT(args, at + 4) + ROWS - 1) / ROWS, own = block % tiles * ROWS;
    const Head h = head_of(args, at, reads, block / tiles);
    const int64_t count = lesser(ROWS, h.queries - own);
    float q[DEPTH * ROWS], weights[TILE * ROWS], values[TILE * WIDTH], out[ROWS * WIDTH], most[ROWS];
    Softmax softmax = {0};
    pack_turned(q, from_row(h.q, own), count, h.depth);
    zero(out, ROWS * WIDTH);
    // Scores of the first key, which each query sees.
    for (int64_t c = 0; c < h.depth; c++)
        for (int r = 0; r < ROWS; r++) softmax.reference[r] += h.k.at[c] * q[c * ROWS + r];
    for (int r = 0; r < ROWS; r += LANES)
        v_store(softmax.reference + r, whole(v_load(softmax.reference + r) * (h.scale * LOG2_E)));
    const int64_t end = CAUSAL ? lesser(h.keys, own + ROWS) : h.keys;
    for (int64_t first = 0; first < end; first += TILE) {
        const int64_t tile = lesser(TILE, end - first);
        while (!weigh(weights, &h, first, tile, q, own, &softmax, most)) raise(&softmax, most, out);
        if (!WRITES_OUT) continue;
        const Rows v = whole_vectors(from_row(h.v, first), tile, h.width, WIDTH, values);
        add_weighted(out, weights, tile, v, WIDTH);
    }
    const int64_t row = h.head * h.queries + own;
    for (int r = 0; r < ROWS; r++) softmax.sum[r] = 1.0f / softmax.sum[r];
    if (WRITES_LOG_SUM_EXP) {
        float *sums = ARG_WRITE(args, reads + WRITES_OUT, float) + 2 * row;
        for (int64_t r = 0; r < count; r++) sums[2 * r] = softmax.reference[r], sums[2 * r + 1] = softmax.sum[r];
    }
    if (WRITES_OUT) put(ARG_WRITE(args, reads, float) + row * h.width, out, count, h.width, WIDTH, softmax.sum);
}

// What the numbers of rows are read from, and gradients are written to; those that a kernel does
// not have are 0.
typedef struct {
    const float *sums, *delta;
    float *grad_q, *grad_k, *grad_v;
} Gradients;

// The gradients by ROWS keys and values from `own` on. What the keys add to the gradient by queries
// is added to `grad_q`, not scaled, in rows of DEPTH columns.
static void add_keys(const Head *h, const Gradients *to, int64_t own) {
    const int64_t count = lesser(ROWS, h->keys - own);
    float k[DEPTH * ROWS], v[WIDTH * ROWS], weights[TILE * ROWS], of_scores[TILE * ROWS];
    float rows[TILE * (DEPTH > WIDTH ? DEPTH : WIDTH)], keys[ROWS * DEPTH], grad_k[ROWS * DEPTH], grad_v[ROWS * WIDTH];
    pack_turned(k, from_row(h->k, own), count, h->depth);
    pack_turned(v, from_row(h->v, own), count, h->width);
    const Rows own_keys = whole_vectors(from_row(h->k, own), count, h->depth, DEPTH, keys);
    zero(grad_k, ROWS * DEPTH);
    zero(grad_v, ROWS * WIDTH);
    for (int64_t first = CAUSAL ? own : 0; first < h->queries; first += TILE) {
        const int64_t tile = lesser(TILE, h->queries - first);
        const Rows q = from_row(h->q, first), grad_out = from_row(h->grad_out, first);
        const Tile scores = {WEIGH_AGAIN, first, own, h->scale * LOG2_E, .sums = to->sums + 2 * first};
        const Tile by_weights = {SCORE_GRADIENT, first, own, .delta = to->delta + first, .weights = weights};
        tile_products(&scores, weights, q, tile, h->depth, k);
        tile_products(&by_weights, of_scores, grad_out, tile, h->width, v);
        if (WRITES_GRAD_V) add_weighted(grad_v, weights, tile, whole_vectors(grad_out, tile, h->width, WIDTH, rows), WIDTH);
        if (WRITES_GRAD_K) add_weighted(grad_k, of_scores, tile, whole_vectors(q, tile, h->depth, DEPTH, rows), DEPTH);
        if (WRITES_GRAD_Q) multiply(&ADDED, tile, count, DEPTH, of_scores, ROWS, 1, own_keys, to->grad_q + first * DEPTH);
    }
    if (WRITES_GRAD_K) put_scaled(to->grad_k + own * h->depth, grad_k, count, h->depth, DEPTH, h->scale);
    if (WRITES_GRAD_V) put_scaled(to->grad_v + own * h->width, grad_v, count, h->width, WIDTH, 1.0f);
}

// The gradient by queries: sums of all blocks of a head, in their order.
static void add_parts(float *to, const float *sums, int64_t parts, const Head *h) {
    const int64_t of_part = h->queries * DEPTH;
    for (int64_t r = 0; r < h->queries; r++)
        for (int64_t c = 0; c < h->depth; c++) {
            float sum = 0.0f;
            for (int64_t part = 0; part < parts; part++) sum += sums[part * of_part + r * DEPTH + c];
            to[r * h->depth + c] = h->scale * sum;
        }
}

// All gradients: five products. `parts` blocks share the keys of a head, ROWS in turn. What the
// keys of a block add to the gradient by queries is in scratch memory; the block of a head that is
// done last, by a count, adds all of them up. Counts are zeros before.
KERNEL(attention_grad, args, block) {
    const int written = 6 + WRITES_GRAD_Q + WRITES_GRAD_K + WRITES_GRAD_V, at = written + WRITES_GRAD_Q;
    // After the scale: sizes, and steps of four operands.
    const int64_t parts = ARG_INT(args, at + 1 + 7 + 16);
    const Head h = head_of(args, at, 4, block / parts);
    const int64_t of_keys = h.head * h.keys, of_queries = h.head * h.queries;
    Gradients to = {ARG_READ(args, 4, float) + 2 * of_queries, ARG_READ(args, 5, float) + of_queries, 0, 0, 0};
    if (WRITES_GRAD_K) to.grad_k = ARG_WRITE(args, 6 + WRITES_GRAD_Q, float) + of_keys * h.depth;
    if (WRITES_GRAD_V) to.grad_v = ARG_WRITE(args, 6 + WRITES_GRAD_Q + WRITES_GRAD_K, float) + of_keys * h.width;
    uint64_t *counts = 0;
    float *sums = 0;
    if (WRITES_GRAD_Q) {
        counts = ARG_WRITE(args, written, uint64_t);
        sums = (float *)(counts + (h.heads + 7) / 8 * 8) + h.head * parts * h.queries * DEPTH;
        to.grad_q = sums + block % parts * h.queries * DEPTH;
        zero(to.grad_q, h.queries * DEPTH);
    }
    for (int64_t own = block % parts * ROWS; own < h.keys; own += parts * ROWS) add_keys(&h, &to, own);
    if (WRITES_GRAD_Q && __atomic_add_fetch(counts + h.head, 1, __ATOMIC_ACQ_REL) == (uint64_t)parts)
        add_parts(ARG_WRITE(args, 6, float) + of_queries * h.depth, sums, parts, &h);
}
