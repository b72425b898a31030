// From one step to the next: what must wait for the step before, so all that is fast.
//
// The threads of the chain hold one label each. A step's weights are a sum of two: a cell, where
// longer segments were summed meanwhile, and the message of segments of one boundary. They stay
// linear, relative to the greatest exponent of the row before, and the product with a table of
// 2^score is a sum of products. What leaves the range of f32 is done again with logarithms, label
// by label: for that, each weight is also kept with an exponent of its own.
#ifndef SWEEPER_SEMICRF_CHAIN_CUH
#define SWEEPER_SEMICRF_CHAIN_CUH

#include "sequence.cuh"

constexpr float LEAST_PRODUCT = 8e-28f, MOST_PRODUCT = 1e27f, LEAST_NORMAL = 1.17549435e-38f;

// A label's weight: local * 2^exponent. Max: `local` relative to the row's offset.
struct Weight {
    float local, entropy;
    int exponent;
};

// What a step tells the next: sum * 2^exponent. Max: `sum` relative to the row's offset.
struct Message {
    float sum, entropy;
    int exponent;
};

// The scores of one step and label on the way in, made ahead of time: the segment of one boundary
// has the weight factor * 2^by (max: factor), and what is added to cells is 2^whole * rest (max:
// rest).
struct alignas(16) Factors {
    float factor, rest, whole;
    int by;
};

// A message as the other threads read it.
struct alignas(8) Published {
    float sum;
    int exponent;
};

// A weight as the other threads read it.
struct alignas(8) Raw {
    float local;
    int exponent;
};

// Shared by the block. Arrays with [2] and [4] alternate from step to step.
struct Board {
    float *linear, *moments;     // the row that is multiplied; max: its logs
    Raw *raw;                    // [2], of the row
    float *entropies;            // [2]
    float *published_logs;       // [2], of the row, where edges have messages of their own
    Published *published;        // [2]
    float *published_entropies;  // [2]
    float *table;                // [2][i][o], of edges
    Factors *factors;            // [4]
    float *parts;                // [4], of scores
    float *scores;               // rows of scores that come ahead of time
    int *exponents;              // [2], of the row
    float *entropy_wholes;       // [2]
    int *scratch;                // [64]
    Cell *due;                   // [2], cells that others hold in registers

    // The log weight of a row's label relative to the row's exponent.
    METHOD float log(int step, int o) const {
        const Raw r = raw[(step & 1) * CHAIN + o];
        if (IS_MAX) return r.local;
        return r.local > 0.0f ? log2_fast(r.local) + (float)(r.exponent - exponents[step & 1]) : NOTHING;
    }
};

struct Chain {
    int label, exponent;       // what the row is relative to
    float entropy_whole;
    bool counts;               // is a label
    bool is_dead;              // nothing leads to this label: with a fixed transition
    Weight weight;
    float linear;              // the weight relative to the row
    Message message;
};

DEVICE void sync_chain() {
    if (CHAIN == 32) __syncwarp();
    else named_barrier_sync(1, CHAIN);
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

// Orders floats as whole numbers, and back.
DEVICE int ordered(float x) {
    const int bits = __float_as_int(x);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}
DEVICE float unordered(int x) { return __int_as_float(x < 0 ? x ^ 0x7fffffff : x); }

// 2^e, 0 or infinite out of range.
DEVICE float scale_of(int e) { return __int_as_float(max(min(e + 127, 255), 0) << 23); }

// An entry of a table. What would overflow with a factor of its logarithm is infinite already, so
// that whatever it takes part in is done again with logarithms.
DEVICE float table_weight(float log) { return exp2_fast(log > 100.0f ? 200.0f : log); }

// The linear weight of the next step's label, from a cell and the message: what the chain waits
// for.
DEVICE float combine_linear(const Chain &chain, const Cell &cell, bool has_cell, const Factors &f) {
    const float by_message = f.factor * scale_of(chain.message.exponent + f.by - chain.exponent);
    float linear = chain.message.sum * by_message;
    if (has_cell) linear += cell.sum * (f.rest * scale_of(int_of(cell.whole + f.whole) - chain.exponent));
    return linear;
}

// The same weight in a range of its own.
DEVICE Weight combine(const Chain &chain, const Cell &cell, bool has_cell, const Factors &f) {
    Weight w;
    w.entropy = 0.0f;
    if (IS_MAX) {
        w.exponent = 0;
        w.local = fmaxf(chain.message.sum + (float)(chain.message.exponent - chain.exponent) + f.factor, 4.0f * NOTHING);
        if (has_cell)
            w.local = fmaxf(w.local, ((cell.whole + f.whole) - (float)chain.exponent) + cell.sum + f.rest);
        return w;
    }
    const float first = chain.message.sum * f.factor, rest = has_cell ? cell.sum * f.rest : 0.0f;
    const int first_exponent = chain.message.exponent + f.by, rest_exponent = int_of(cell.whole + f.whole);
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
        const int by = exponent_of(cell.sum);
        const float log = ((float)by + ROOM) + log2_fast(cell.sum * power(-by));
        const float own = cell.moment / cell.sum + LN2 * log;
        sum += q * ((cell.entropy - chain.entropy_whole) + own - LN2 * log2_fast(q));
    }
    if (w.local > 0.0f) w.entropy = sum / w.local + LN2 * log2_fast(w.local);
#endif
    return w;
}

// The message term by term, in log space. `exponent` is relative to the row's. By value: what a
// call is given the address of is not in registers.
DEVICE_APART Message message_in_logs(Sequence s, Board board, int step, int o) {
    const float *entropies = board.entropies + (step & 1) * CHAIN;
    Message m = {IS_MAX ? 4.0f * NOTHING : 0.0f, 0.0f, 0};
    float most = 4.0f * NOTHING;
#pragma unroll 1
    for (int i = 0; i < s.labels; i++) most = fmaxf(most, board.log(step, i) + s.edge(step, 1, o, i));
    if (IS_MAX) m.sum = most;
    if (IS_MAX || most < NEXT_TO_NOTHING) return m;
    const float by = rintf(most);
    float moment = 0.0f;
#pragma unroll 1
    for (int i = 0; i < s.labels; i++) {
        const float x = board.log(step, i) + s.edge(step, 1, o, i) - by, p = exp2_fast(x);
        m.sum += p;
        if (HAS_ENTROPY && p > 0.0f) moment += p * (entropies[i] - LN2 * x);
    }
    m.exponent = (int)by;
    if (HAS_ENTROPY) m.entropy = moment / m.sum + LN2 * log2_fast(m.sum);
    return m;
}

// The product of the row and a table whose column is in registers.
DEVICE Message product(const Board &board, const float (&table)[TABLE],
                       const float (&moments)[HAS_ENTROPY ? TABLE : 1]) {
    Message m = {0.0f, 0.0f, 0};
    float sums[4];
    for (int j = 0; j < 4; j++) sums[j] = IS_MAX ? 4.0f * NOTHING : 0.0f;
#pragma unroll
    for (int i = 0; i < TABLE; i += 4) {
        const float4 x = *(const float4 *)(board.linear + i);
        const float values[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            sums[j] = IS_MAX ? fmaxf(sums[j], values[j] + table[i + j]) : fmaf(values[j], table[i + j], sums[j]);
    }
    m.sum = IS_MAX ? fmaxf(fmaxf(sums[0], sums[1]), fmaxf(sums[2], sums[3]))
                   : (sums[0] + sums[1]) + (sums[2] + sums[3]);
#if SEMIRING == ENTROPY
    float moment = 0.0f;
#pragma unroll
    for (int i = 0; i < TABLE; i++) moment += board.moments[i] * table[i] - board.linear[i] * moments[i];
    m.entropy = m.sum > 0.0f ? moment / m.sum + LN2 * log2_fast(m.sum) : 0.0f;
#endif
    return m;
}

// Leaves the row for everybody, and makes its message.
DEVICE void send(const Sequence &s, const Board &board, Chain &chain, const float (&table)[TABLE],
                 const float (&moments)[HAS_ENTROPY ? TABLE : 1], int step) {
    const int o = chain.label, at = (step & 1) * CHAIN + o;
    const Weight &w = chain.weight;
    const bool is_some = chain.counts && w.local > 0.0f;
    if (IS_MAX) {
        board.linear[o] = chain.counts ? w.local : 4.0f * NOTHING;
    } else {
        // With entropies, what would overflow with a factor is infinite already, as in
        // `table_weight`.
        if (HAS_ENTROPY && chain.linear > 1e30f) chain.linear = exp2_fast(200.0f);
        board.linear[o] = chain.counts ? chain.linear : 0.0f;
    }
    if (HAS_ENTROPY) {
        const float log = is_some ? log2_fast(w.local) + (float)(w.exponent - chain.exponent) : 0.0f;
        board.moments[o] = is_some ? chain.linear * (w.entropy - LN2 * log) : 0.0f;
        board.entropies[at] = is_some ? w.entropy : 0.0f;
    }
    sync_chain();
    Message m = {0.0f, 0.0f, 0};
    if (IS_TABLED) m = product(board, table, moments);
    board.raw[at] = {IS_MAX ? (chain.counts ? w.local : 4.0f * NOTHING) : is_some ? w.local : 0.0f, w.exponent};
    if (IS_FULL) {
        const float log = is_some ? log2_fast(w.local) + (float)(w.exponent - chain.exponent) : NOTHING;
        board.published_logs[at] = IS_MAX ? (chain.counts ? w.local : 4.0f * NOTHING) : log;
    }
    if (o == 0) {
        board.exponents[step & 1] = chain.exponent;
        if (HAS_ENTROPY) board.entropy_wholes[step & 1] = chain.entropy_whole;
    }
    const bool is_sure = m.sum >= LEAST_PRODUCT && m.sum <= MOST_PRODUCT;
    const bool is_needed = chain.counts && (FORM == FIXED || step < s.end);
    const bool is_lost = is_needed && (!IS_TABLED || (!IS_MAX && !is_sure && !chain.is_dead));
    if (CHAIN > 32 || warp_any(is_lost)) {
        sync_chain();
        if (is_lost) m = message_in_logs(s, board, step, o);
    }
    m.exponent = chain.exponent + m.exponent;
    chain.message = m;
    if (FORM == FIXED) {
        board.published[at] = {m.sum, m.exponent};
        if (HAS_ENTROPY) board.published_entropies[at] = m.entropy;
    }
}

// What the next row is relative to. Where nothing is legal yet that stays: a legal source may be at
// any distance before.
DEVICE void refer(const Board &board, Chain &chain) {
    const Weight &w = chain.weight;
    const bool is_some = chain.counts && w.local > (IS_MAX ? NEXT_TO_NOTHING : 0.0f);
    if (IS_MAX) {
        const int top = chain_max(board, chain.label, is_some ? ordered(w.local) : ordered(4.0f * NOTHING));
        const float most = unordered(top);
        if (most > NEXT_TO_NOTHING) chain.exponent += (int)rintf(most);
        return;
    }
    const int top = chain_max(board, chain.label, is_some ? w.exponent : NEVER);
    if (top <= NEVER) return;
    chain.exponent = top;
    if (HAS_ENTROPY) {
        // Any label near the greatest will do.
        const int best = chain_max(board, chain.label, is_some && w.exponent == top ? CHAIN - chain.label : 0);
        if (CHAIN - chain.label == best) board.scratch[32] = __float_as_int(rintf(w.entropy));
        sync_chain();
        const float by = __int_as_float(board.scratch[32]);
        chain.message.entropy -= by;
        chain.entropy_whole += by;
        sync_chain();
    }
}

#endif
