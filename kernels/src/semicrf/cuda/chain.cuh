// From one step to the next: what must wait for the step before, so all that is fast.
//
// The threads of the chain hold one label each. A step's weights are a sum of two: a cell, where longer
// segments were summed meanwhile, and the message of segments of one boundary. They stay linear: the
// greatest exponent of the row is taken out, and the product with a table of 2^score is a sum of
// products. Where that leaves the range of f32 it is done again with logarithms, label by label.
#ifndef SWEEPER_SEMICRF_CHAIN_CUH
#define SWEEPER_SEMICRF_CHAIN_CUH

#include "sequence.cuh"

constexpr float LEAST_PRODUCT = 8e-28f, MOST_PRODUCT = 1e27f, LEAST_NORMAL = 1.17549435e-38f;

// A label's weight: local * 2^exponent. Max: `local` relative to the last row's offset.
struct Weight {
    float local, entropy;
    int exponent;
};

// What a step tells the next: sum * 2^exponent. Max: `sum` relative to the row's offset.
struct Message {
    float sum, entropy;
    int exponent;
};

// A message as the other threads read it: its score is taken off.
struct alignas(16) Published {
    float sum, whole, part, exponent;
};

// Shared by the block. Arrays with [2] alternate from step to step.
struct Board {
    float *linear, *moments;        // the row that is multiplied
    float *logs, *entropies;        // [2], of the row
    Published *published;           // [2]
    float *published_entropies;     // [2]
    float *table;                   // [2][i][o], of edges
    float *scores;                  // rows of scores that come ahead of time
    int *exponents;                 // [2], of the row
    float *entropy_wholes;          // [2]
    int *scratch;                   // [64]
};

struct Chain {
    int label, exponent;       // of the row: greatest exponent; max: offset
    float entropy_whole;
    bool counts;               // is a label
    bool is_dead;              // nothing leads to this label: with a fixed transition
    Weight weight;
    Message message;
    Split score;               // of the step, on the way in
};

DEVICE void sync_chain() {
    if (CHAIN == 32) __syncwarp();
    else sync_some(1, CHAIN);
}

DEVICE int chain_max(const Board &board, int label, int x) {
    x = warp_max(x);
    if (CHAIN == 32) return x;
    if (label % 32 == 0) board.scratch[label / 32] = x;
    sync_chain();
    for (int i = 0; i < CHAIN / 32; i++) x = max(x, board.scratch[i]);
    sync_chain();
    return x;
}

// Orders floats as whole numbers.
DEVICE int ordered(float x) {
    const int bits = __float_as_int(x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

// An entry of a table. What would overflow with a factor of its logarithm is infinite already, so that
// whatever it takes part in is done again with logarithms.
DEVICE float table_weight(float log) { return exp2_fast(log > 100.0f ? 200.0f : log); }

// The weight of the next step's label, from a cell and the message. `factor` and `by` are the score of
// the segment of one boundary, `next` that of the next step.
DEVICE Weight combine(const Chain &chain, const Cell &cell, bool has_cell, float factor, int by, Split next) {
    Weight w;
    w.entropy = 0.0f;
    if (IS_MAX) {
        w.exponent = 0;
        w.local = fmaxf(chain.message.sum + factor, 4.0f * NOTHING);
        if (has_cell)
            w.local = fmaxf(w.local, ((cell.whole + next.whole) - (float)chain.exponent) + cell.sum + next.part);
        return w;
    }
    const float first = chain.message.sum * factor;
    const float rest = has_cell ? cell.sum * exp2_fast(next.part) : 0.0f;
    const int first_exponent = chain.message.exponent + by;
    const int rest_exponent = int_of(cell.whole + next.whole);
    const int a = first > 0.0f ? first_exponent + exponent_of(first) : NEVER;
    const int b = rest > 0.0f ? rest_exponent + exponent_of(rest) : NEVER;
    w.exponent = max(a, b);
    const float p = a > NEVER ? first * power(first_exponent - w.exponent) : 0.0f;
    const float q = b > NEVER ? rest * power(rest_exponent - w.exponent) : 0.0f;
    w.local = p + q;
#if SEMIRING == ENTROPY
    float sum = 0.0f;
    if (p >= LEAST_NORMAL) sum += p * (chain.message.entropy - LN2 * log2_fast(p));
    if (q >= LEAST_NORMAL) {
        const float own = cell.moment / cell.sum + LN2 * log2_fast(cell.sum);
        sum += q * ((cell.entropy - chain.entropy_whole) + own - LN2 * log2_fast(q));
    }
    if (w.local > 0.0f) w.entropy = sum / w.local + LN2 * log2_fast(w.local);
#endif
    return w;
}

// The message term by term, in log space. `exponent` is relative to the row's.
DEVICE_APART Message message_in_logs(const Sequence &s, const Board &board, int step, int o) {
    const float *logs = board.logs + (step & 1) * CHAIN, *entropies = board.entropies + (step & 1) * CHAIN;
    Message m = {IS_MAX ? 4.0f * NOTHING : 0.0f, 0.0f, 0};
    float most = 4.0f * NOTHING;
    for (int i = 0; i < s.labels; i++) most = fmaxf(most, logs[i] + s.edge(step, 1, o, i));
    if (IS_MAX) m.sum = most;
    if (IS_MAX || most < NEXT_TO_NOTHING) return m;
    const float by = rintf(most);
    float moment = 0.0f;
    for (int i = 0; i < s.labels; i++) {
        const float x = logs[i] + s.edge(step, 1, o, i) - by, p = exp2_fast(x);
        m.sum += p;
        if (HAS_ENTROPY && p > 0.0f) moment += p * (entropies[i] - LN2 * x);
    }
    m.exponent = (int)by;
    if (HAS_ENTROPY) m.entropy = moment / m.sum + LN2 * log2_fast(m.sum);
    return m;
}

// The product of the row and a table whose column is in registers.
DEVICE Message product(const Board &board, const float (&table)[TABLE], const float (&moments)[HAS_ENTROPY ? TABLE : 1],
                       int step) {
    Message m = {0.0f, 0.0f, 0};
    float sums[4];
    for (int j = 0; j < 4; j++) sums[j] = IS_MAX ? 4.0f * NOTHING : 0.0f;
    const float *row = IS_MAX ? board.logs + (step & 1) * CHAIN : board.linear;
#pragma unroll
    for (int i = 0; i < TABLE; i += 4) {
        const float4 x = *(const float4 *)(row + i);
        const float values[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            sums[j] = IS_MAX ? fmaxf(sums[j], values[j] + table[i + j]) : fmaf(values[j], table[i + j], sums[j]);
    }
    m.sum = IS_MAX ? fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3])) : (sums[0] + sums[1]) + (sums[2] + sums[3]);
#if SEMIRING == ENTROPY
    float moment = 0.0f;
#pragma unroll
    for (int i = 0; i < TABLE; i++) moment += board.moments[i] * table[i] - board.linear[i] * moments[i];
    m.entropy = m.sum > 0.0f ? moment / m.sum + LN2 * log2_fast(m.sum) : 0.0f;
#endif
    return m;
}

// Takes the offset out of the row, and leaves the row for everybody.
DEVICE void settle(const Sequence &s, const Board &board, Chain &chain, int step) {
    const int o = chain.label, buffer = (step & 1) * CHAIN;
    Weight &w = chain.weight;
    float log;
    if (IS_MAX) {
        const float mine = chain.counts ? w.local : 4.0f * NOTHING;
        const int top = chain_max(board, o, ordered(mine));
        const float most = __int_as_float(top < 0 ? top ^ 0x7fffffff : top);
        const float by = most > NEXT_TO_NOTHING ? rintf(most) : 0.0f;
        chain.exponent += (int)by;
        log = chain.counts ? w.local - by : 4.0f * NOTHING;
        w.local = log;
    } else {
        const bool is_some = chain.counts && w.local > 0.0f;
        const int top = chain_max(board, o, is_some ? w.exponent : NEVER);
        // Where nothing is legal yet the offset stays: a legal source may be at any distance before.
        if (top > NEVER) chain.exponent = top;
        const int below = w.exponent - chain.exponent;
        const float linear = is_some ? w.local * power(below) : 0.0f;
        log = is_some ? log2_fast(w.local) + (float)below : NOTHING;
        board.linear[o] = linear;
        if (HAS_ENTROPY) {
            // Any label near the greatest will do as the reference.
            const int best = chain_max(board, o, is_some && w.exponent == top ? CHAIN - o : 0);
            if (CHAIN - o == best) board.scratch[32] = __float_as_int(rintf(w.entropy));
            sync_chain();
            const float by = top > NEVER ? __int_as_float(board.scratch[32]) : 0.0f;
            chain.entropy_whole += by;
            w.entropy = is_some ? w.entropy - by : 0.0f;
            board.entropies[buffer + o] = w.entropy;
            board.moments[o] = linear > 0.0f ? linear * (w.entropy - LN2 * log) : 0.0f;
        }
    }
    board.logs[buffer + o] = log;
    if (o == 0) {
        board.exponents[step & 1] = chain.exponent;
        if (HAS_ENTROPY) board.entropy_wholes[step & 1] = chain.entropy_whole;
    }
    sync_chain();
}

// The message of a row that is settled.
DEVICE void send(const Sequence &s, const Board &board, Chain &chain, const float (&table)[TABLE],
                 const float (&moments)[HAS_ENTROPY ? TABLE : 1], int step) {
    Message m = {0.0f, 0.0f, 0};
    if (IS_TABLED) m = product(board, table, moments, step);
    const bool is_sure = m.sum >= LEAST_PRODUCT && m.sum <= MOST_PRODUCT;
    const bool is_needed = chain.counts && (FORM == FIXED || step < s.end);
    if (is_needed && (!IS_TABLED || (!IS_MAX && !is_sure && !chain.is_dead)))
        m = message_in_logs(s, board, step, chain.label);
    m.exponent = chain.exponent + m.exponent;
    chain.message = m;
}

// Leaves the message for everybody: with a fixed transition all segments from here share it.
DEVICE void publish(const Board &board, const Chain &chain, int step) {
    const int at = (step & 1) * CHAIN + chain.label;
    const float exponent = (float)chain.message.exponent;
    board.published[at] = {chain.message.sum, exponent - chain.score.whole, -chain.score.part, exponent};
    if (HAS_ENTROPY) board.published_entropies[at] = chain.message.entropy;
}

#endif
