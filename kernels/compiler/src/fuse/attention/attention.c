// Attention and its gradients on a CPU, without the scores in memory.
//
// A block has ROWS rows of the result and goes over tiles of COLUMNS keys (or queries, where its
// rows are keys): scores of a tile are a product of packed operands, and stay in the cache. Rows of
// weighted values are kept relative to the greatest score so far (online softmax: Milakov and
// Gimelshein, 2018); gradients compute the weights again from the logarithms of their sums (Dao et
// al., "FlashAttention", 2022).
//
// DEPTH and WIDTH are columns of queries and keys, and of values, up to a multiple of a vector:
// packed operands have zeros there. Sums are added in one order, whatever the number of threads.
#include "cpu.h"
#include "elementary.h"

#define COLUMNS 64
#define NEVER -__builtin_inff()

// Rows of a matrix.
typedef struct {
    const float *at;
    int64_t step;
} Rows;

// One matrix of each operand, and the block's first row in it.
typedef struct {
    float scale;
    int64_t first, head;
    int64_t queries, keys, depth, width;
    Rows q, k, v, grad_out;
} Head;

// The numbers of a launch begin at argument `at`; `rows` are those of the result.
static Head head_of(const uint64_t *args, int at, int operands, uint32_t block, int is_by_keys) {
    const int64_t *numbers = (const int64_t *)args + at + 1;
    Head h = {ARG_FLOAT(args, at), 0, 0, numbers[3], numbers[4], numbers[5], numbers[6]};
    const int64_t tiles = ((is_by_keys ? h.keys : h.queries) + ROWS - 1) / ROWS;
    h.head = block / tiles;
    h.first = block % tiles * ROWS;
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

// `count` rows from `first` on, times a factor, and zeros up to `rows` and `columns_padded`.
static void pack(float *to, Rows from, int64_t first, int64_t count, int rows, int64_t columns, int padded, float factor) {
    for (int r = 0; r < rows; r++) {
        const float *row = from.at + (first + r) * from.step;
        for (int c = 0; c < padded; c++) to[r * padded + c] = r < count && c < columns ? factor * row[c] : 0.0f;
    }
}

// The same, transposed: a row of `to` is a column, of COLUMNS rows.
static void pack_turned(float *to, Rows from, int64_t first, int64_t count, int64_t columns, int padded) {
    for (int r = 0; r < COLUMNS; r++) {
        const float *row = from.at + (first + r) * from.step;
        for (int c = 0; c < padded; c++) to[c * COLUMNS + r] = r < count && c < columns ? row[c] : 0.0f;
    }
}

// sums += a b, where `a` has `rows` rows of `inner`, and `columns` is a multiple of a vector. Four
// rows and four vectors at once.
static inline __attribute__((always_inline)) void multiply_add(int rows, int inner, int columns, const float *restrict a,
                                                                const float *restrict b, float *restrict sums) {
    for (int c = 0; c < columns; c += 4 * LANES) {
        const int vectors = (columns - c) / LANES < 4 ? (columns - c) / LANES : 4;
        for (int r = 0; r < rows; r += 4) {
            vf sum[4][4];
            for (int i = 0; i < 4; i++)
                for (int v = 0; v < vectors; v++) sum[i][v] = v_load(sums + (r + i) * columns + c + v * LANES);
            for (int k = 0; k < inner; k++) {
                vf with[4];
                for (int v = 0; v < vectors; v++) with[v] = v_load(b + k * columns + c + v * LANES);
                for (int i = 0; i < 4; i++)
                    for (int v = 0; v < vectors; v++) sum[i][v] += v_all(a[(r + i) * inner + k]) * with[v];
            }
            for (int i = 0; i < 4; i++)
                for (int v = 0; v < vectors; v++) v_store(sums + (r + i) * columns + c + v * LANES, sum[i][v]);
        }
    }
}

static inline void zero(float *to, int count) {
    for (int i = 0; i < count; i++) to[i] = 0.0f;
}

static inline float greatest_of(vf x) {
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
}
static inline float sum_of(vf x) {
    float sum = 0.0f;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
}

// Columns of a row from `from` on are not seen.
static inline void hide(float *row, int64_t from, float as) {
    for (int64_t c = from < 0 ? 0 : from; c < COLUMNS; c++) row[c] = as;
}

// Writes rows of the result, times a factor each.
static void put(float *to, const float *rows, int64_t count, int64_t columns, int padded, const float *factors) {
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < columns; c++) to[r * columns + c] = rows[r * padded + c] * factors[r];
}

// Turns a row of scores into weights relative to the greatest so far; the factor of those before.
static float weigh(float *scores, float *greatest, float *sum) {
    vf most = v_load(scores);
    for (int c = LANES; c < COLUMNS; c += LANES) most = v_max(most, v_load(scores + c));
    float now = greatest_of(most);
    if (*greatest > now) now = *greatest;
    vf sums = v_all(0.0f);
    for (int c = 0; c < COLUMNS; c += LANES) {
        const vf weight = v_exp(v_load(scores + c) - now);
        v_store(scores + c, weight);
        sums += weight;
    }
    const float before = v_exp(v_all(*greatest - now))[0];
    *sum = *sum * before + sum_of(sums);
    *greatest = now;
    return before;
}

KERNEL(attention, args, block) {
    const int reads = WRITES_OUT ? 3 : 2;
    const Head h = head_of(args, reads + WRITES_OUT + WRITES_LOG_SUM_EXP, reads, block, 0);
    const int64_t count = lesser(ROWS, h.queries - h.first);
    float q[ROWS * DEPTH], turned[DEPTH * COLUMNS], scores[ROWS * COLUMNS];
    float values[COLUMNS * WIDTH], out[ROWS * WIDTH], greatest[ROWS], sum[ROWS], factors[ROWS];
    pack(q, h.q, h.first, count, ROWS, h.depth, DEPTH, h.scale);
    zero(out, ROWS * WIDTH);
    for (int r = 0; r < ROWS; r++) greatest[r] = NEVER, sum[r] = 0.0f;
    int64_t end = h.keys;
#if CAUSAL
    end = lesser(end, h.first + ROWS);
#endif
    for (int64_t first = 0; first < end; first += COLUMNS) {
        const int64_t columns = lesser(COLUMNS, h.keys - first);
        pack_turned(turned, h.k, first, columns, h.depth, DEPTH);
        if (WRITES_OUT) pack(values, h.v, first, columns, COLUMNS, h.width, WIDTH, 1.0f);
        zero(scores, ROWS * COLUMNS);
        multiply_add(ROWS, DEPTH, COLUMNS, q, turned, scores);
        for (int r = 0; r < ROWS; r++) {
            float *row = scores + r * COLUMNS;
            hide(row, columns, NEVER);
#if CAUSAL
            hide(row, h.first + r - first + 1, NEVER);
#endif
            const float before = weigh(row, &greatest[r], &sum[r]);
            for (int c = 0; c < WIDTH; c += LANES) v_store(out + r * WIDTH + c, v_load(out + r * WIDTH + c) * before);
        }
        if (WRITES_OUT) multiply_add(ROWS, COLUMNS, WIDTH, scores, values, out);
    }
    const int64_t row = h.head * h.queries + h.first;
    for (int r = 0; r < ROWS; r++) factors[r] = 1.0f / sum[r];
    if (WRITES_OUT) put(ARG_WRITE(args, reads, float) + row * h.width, out, count, h.width, WIDTH, factors);
    if (WRITES_LOG_SUM_EXP) {
        float *logs = ARG_WRITE(args, reads + WRITES_OUT, float) + row;
        for (int64_t r = 0; r < count; r++) logs[r] = greatest[r] + v_log(v_all(sum[r]))[0];
    }
}

KERNEL(attention_grad_q, args, block) {
    const Head h = head_of(args, 7, 4, block, 0);
    const int64_t count = lesser(ROWS, h.queries - h.first), row = h.head * h.queries + h.first;
    const float *logs = ARG_READ(args, 4, float) + row, *delta = ARG_READ(args, 5, float) + row;
    float q[ROWS * DEPTH], grad_out[ROWS * WIDTH], scores[ROWS * COLUMNS], of_weights[ROWS * COLUMNS];
    float turned_k[DEPTH * COLUMNS], k[COLUMNS * DEPTH], turned_v[WIDTH * COLUMNS], grad[ROWS * DEPTH], factors[ROWS];
    pack(q, h.q, h.first, count, ROWS, h.depth, DEPTH, h.scale);
    pack(grad_out, h.grad_out, h.first, count, ROWS, h.width, WIDTH, 1.0f);
    zero(grad, ROWS * DEPTH);
    int64_t end = h.keys;
#if CAUSAL
    end = lesser(end, h.first + ROWS);
#endif
    for (int64_t first = 0; first < end; first += COLUMNS) {
        const int64_t columns = lesser(COLUMNS, h.keys - first);
        pack_turned(turned_k, h.k, first, columns, h.depth, DEPTH);
        pack(k, h.k, first, columns, COLUMNS, h.depth, DEPTH, 1.0f);
        pack_turned(turned_v, h.v, first, columns, h.width, WIDTH);
        zero(scores, ROWS * COLUMNS);
        zero(of_weights, ROWS * COLUMNS);
        multiply_add(ROWS, DEPTH, COLUMNS, q, turned_k, scores);
        multiply_add(ROWS, WIDTH, COLUMNS, grad_out, turned_v, of_weights);
        for (int r = 0; r < ROWS; r++) {
            float *of_scores = scores + r * COLUMNS;
            const float log = r < count ? logs[r] : 0.0f, less = r < count ? delta[r] : 0.0f;
            for (int c = 0; c < COLUMNS; c += LANES) {
                const vf weight = v_exp(v_load(of_scores + c) - log);
                v_store(of_scores + c, weight * (v_load(of_weights + r * COLUMNS + c) - less));
            }
            hide(of_scores, columns, 0.0f);
#if CAUSAL
            hide(of_scores, h.first + r - first + 1, 0.0f);
#endif
        }
        multiply_add(ROWS, COLUMNS, DEPTH, scores, k, grad);
    }
    for (int r = 0; r < ROWS; r++) factors[r] = h.scale;
    put(ARG_WRITE(args, 6, float) + row * h.depth, grad, count, h.depth, DEPTH, factors);
}

// Rows are keys, columns queries.
KERNEL(attention_grad_kv, args, block) {
    const Head h = head_of(args, 6 + WRITES_GRAD_K + WRITES_GRAD_V, 4, block, 1);
    const int64_t count = lesser(ROWS, h.keys - h.first), row = h.head * h.keys + h.first;
    const float *logs = ARG_READ(args, 4, float) + h.head * h.queries;
    const float *delta = ARG_READ(args, 5, float) + h.head * h.queries;
    float k[ROWS * DEPTH], v[ROWS * WIDTH], weights[ROWS * COLUMNS], of_weights[ROWS * COLUMNS], factors[ROWS];
    float turned_q[DEPTH * COLUMNS], q[COLUMNS * DEPTH], turned_grad[WIDTH * COLUMNS], grad_out[COLUMNS * WIDTH];
    float grad_k[ROWS * DEPTH], grad_v[ROWS * WIDTH], log[COLUMNS], less[COLUMNS];
    pack(k, h.k, h.first, count, ROWS, h.depth, DEPTH, h.scale);
    pack(v, h.v, h.first, count, ROWS, h.width, WIDTH, 1.0f);
    zero(grad_k, ROWS * DEPTH);
    zero(grad_v, ROWS * WIDTH);
    int64_t begin = 0;
#if CAUSAL
    begin = h.first / COLUMNS * COLUMNS;
#endif
    for (int64_t first = begin; first < h.queries; first += COLUMNS) {
        const int64_t columns = lesser(COLUMNS, h.queries - first);
        pack_turned(turned_q, h.q, first, columns, h.depth, DEPTH);
        pack_turned(turned_grad, h.grad_out, first, columns, h.width, WIDTH);
        pack(q, h.q, first, columns, COLUMNS, h.depth, DEPTH, 1.0f);
        pack(grad_out, h.grad_out, first, columns, COLUMNS, h.width, WIDTH, 1.0f);
        for (int c = 0; c < COLUMNS; c++) log[c] = c < columns ? logs[first + c] : 0.0f;
        for (int c = 0; c < COLUMNS; c++) less[c] = c < columns ? delta[first + c] : 0.0f;
        zero(weights, ROWS * COLUMNS);
        zero(of_weights, ROWS * COLUMNS);
        multiply_add(ROWS, DEPTH, COLUMNS, k, turned_q, weights);
        multiply_add(ROWS, WIDTH, COLUMNS, v, turned_grad, of_weights);
        for (int r = 0; r < ROWS; r++) {
            float *weight = weights + r * COLUMNS, *of_scores = of_weights + r * COLUMNS;
            for (int c = 0; c < COLUMNS; c += LANES) v_store(weight + c, v_exp(v_load(weight + c) - v_load(log + c)));
            hide(weight, columns, 0.0f);
#if CAUSAL
            for (int64_t c = 0; c < lesser(COLUMNS, h.first + r - first); c++) weight[c] = 0.0f;
#endif
            for (int c = 0; c < COLUMNS; c += LANES)
                v_store(of_scores + c, v_load(weight + c) * (v_load(of_scores + c) - v_load(less + c)));
        }
        if (WRITES_GRAD_V) multiply_add(ROWS, COLUMNS, WIDTH, weights, grad_out, grad_v);
        if (WRITES_GRAD_K) multiply_add(ROWS, COLUMNS, DEPTH, of_weights, q, grad_k);
    }
    for (int r = 0; r < ROWS; r++) factors[r] = h.scale;
    if (WRITES_GRAD_K) put(ARG_WRITE(args, 6, float) + row * h.depth, grad_k, count, h.depth, DEPTH, factors);
    for (int r = 0; r < ROWS; r++) factors[r] = 1.0f;
    if (WRITES_GRAD_V)
        put(ARG_WRITE(args, 6 + WRITES_GRAD_K, float) + row * h.width, grad_v, count, h.width, WIDTH, factors);
}
