// Longer segments whose edges depend on the duration and both labels: each has a message of its
// own.
#ifndef SWEEPER_SEMICRF_EDGES_CUH
#define SWEEPER_SEMICRF_EDGES_CUH

#include "chain.cuh"

// Blocks of edges come ahead of time: CHUNKS chunks of some durations each, and the blocks of
// duration 1, which the chain needs sooner, in a ring of their own: that of a step comes with the
// first chunk of the step FIRST_AHEAD before.
constexpr int CHUNKS = 8, FIRST_BLOCKS = 16, FIRST_AHEAD = 2;

struct Stage {
    float *chunks, *first_blocks;
    int pitch;      // floats of a block, with room to keep the alignment it has in memory
    int durations;  // of a chunk
    int count;      // chunks of a step
    int step, chunk, issued, taken;  // the next to issue, and how many were used
};

DEVICE int misalignment(const float *from) { return (int)(((unsigned long long)from >> 2) & 3); }

// Copies what may reach the end of the tensor, whose last piece is not whole.
DEVICE_APART void copy_last_floats(float *to, const float *from, int count, int left, int lane, int lanes) {
#pragma unroll 1
    for (int i = 4 * lane; i < count; i += 4 * lanes) copy_16_part(to + i, from + i, min(16, 4 * (left - i)));
}

// Threads `lane`, `lane + lanes`, ... copy `floats` floats.
DEVICE void copy_floats(const Sequence &s, float *to, const float *from, int floats, int lane, int lanes) {
    const int off = misalignment(from), count = off + floats;
    const float *start = from - off;
    if (start + count + 3 <= s.scores_end) {
#pragma unroll 2
        for (int i = 4 * lane; i < count; i += 4 * lanes) copy_16(to + i, start + i);
        return;
    }
    copy_last_floats(to, start, count, (int)(s.scores_end - start), lane, lanes);
}

DEVICE void copy_first_block(const Sequence &s, const Stage &stage, int step, int thread, int threads) {
    if (step + 1 <= s.end)
        copy_floats(s, stage.first_blocks + step % FIRST_BLOCKS * stage.pitch, s.block(step, 1), s.labels * s.labels,
                    thread, threads);
}

// Copies `count` blocks that lie `apart` floats from each other, `pitch` floats apart: all lanes
// are at work, whatever the size of a block.
DEVICE void copy_blocks(const Sequence &s, float *to, const float *from, int pitch, int count, int thread,
                        int threads) {
    const int apart = s.apart(), pieces = pitch / 4, rows = threads / pieces, rest = threads % pieces;
    int k = thread / pieces, piece = thread % pieces;
#pragma unroll 1
    while (k < count) {
        const float *block = from + (int64)k * apart;
        const int off = misalignment(block);
        const float *piece_from = block - off + 4 * piece;
        float *piece_to = to + k * pitch + 4 * piece;
        const int left = off + s.labels * s.labels - 4 * piece;  // floats of the block from here on
        if (left > 0) {
            if (piece_from + 4 <= s.scores_end) copy_16(piece_to, piece_from);
            else copy_16_part(piece_to, piece_from, 4 * (int)(s.scores_end - piece_from));
        }
        k += rows, piece += rest;
        if (piece >= pieces) piece -= pieces, k++;
    }
}

// Issues the next chunk as one group of copies, which may be empty.
DEVICE void issue_chunk(const Sequence &s, Stage &stage, int thread, int threads) {
    const int first = 2 + stage.chunk * stage.durations, size = s.labels * s.labels, apart = s.apart();
    const int count = min(min(s.longest, s.end - stage.step), first + stage.durations - 1) - first + 1;
    float *to = stage.chunks + stage.issued % CHUNKS * stage.durations * stage.pitch;
    const float *from = s.origin(stage.step) + (int64)first * apart;
    if (apart == stage.pitch) {  // one stretch
        if (count > 0) copy_floats(s, to, from, count * size, thread, threads);
    } else {
        copy_blocks(s, to, from, stage.pitch, count, thread, threads);
    }
    if (stage.chunk == 0) copy_first_block(s, stage, stage.step + FIRST_AHEAD, thread, threads);
    copies_commit();
    stage.issued++;
    if (++stage.chunk == stage.count) stage.chunk = 0, stage.step++;
}

// A message is a sum of weights, and so is a cell: where nothing but the message is added, it needs
// no logarithm on the way from one to the other.
constexpr bool IS_LINEAR = SEMIRING == LOG && FORM == MATERIALIZED;

// Weight 2^whole * sum, where `part` of other semirings and forms is the logarithm of the sum.
DEVICE Term linear_term(float whole, float sum) { return {whole, sum, 0.0f, 0.0f}; }

// How far a term's scale is above a cell's. What is less than that is nothing beside the cell's
// first term.
DEVICE int shift_of(const Term &x, const Cell &cell) { return int_of(fmaxf(x.whole - cell.whole, -250.0f)); }

// Adds a linear term to a cell.
DEVICE void add_linear(Cell &cell, const Term &x) {
    int shift = shift_of(x, cell);
    const int above = shift + exponent_of(x.part);
    if (above > (int)MOST_ROOM) {
        cell = lifted_apart(cell, rintf(0.5f * ((float)above + ROOM)));
        shift = shift_of(x, cell);
    }
    // In two steps, each of which is in range: sums are from LEAST_PRODUCT to MOST_PRODUCT.
    const int half = shift >> 1, rest = shift - half;
    cell.sum += x.part * __int_as_float((half + 127) << 23) * __int_as_float((rest + 127) << 23);
}

// An empty cell for a linear term: `cell_for`.
DEVICE Cell linear_cell_for(const Term &x) {
    Cell cell = {};
    cell.whole = fmaxf(x.whole + (float)exponent_of(x.part) + ROOM, EMPTY);
    return cell;
}

// The sum over i with a shift, for sums that are out of range.
DEVICE_APART Term message_of_lost_edges(Sequence s, Board board, const float *row, int stride, int step, int k,
                                        int o) {
    const float *entropies = board.entropies + (step & 1) * CHAIN;
    const auto term = [&](int i) {
        return (FORM == MATERIALIZED ? row[i * stride] * UNITS : s.edge(step, k, o, i)) + board.log(step, i);
    };
    Term x = IS_LINEAR ? linear_term(NOTHING, 0.0f) : Term{0.0f, NOTHING, 0.0f, 0.0f};
    float most = 4.0f * NOTHING, sum = 0.0f, moment = 0.0f;
#pragma unroll 1
    for (int i = 0; i < s.labels; i++) most = fmaxf(most, term(i));
    if (most < NEXT_TO_NOTHING) return x;
    const float by = rintf(most);
#pragma unroll 1
    for (int i = 0; i < s.labels; i++) {
        const float t = term(i) - by, p = exp2_fast(t);
        sum += p;
        if (HAS_ENTROPY && p > 0.0f) moment += p * (entropies[i] - LN2 * t);
    }
    if (IS_LINEAR) return linear_term(by, sum);
    const float log = log2_fast(sum);
    x.part = by + log;
    if (HAS_ENTROPY) x.entropy = moment / sum + LN2 * log;
    return x;
}

// A sum of weights that is made four terms at a time.
struct Sum {
    float sums[4], moments[HAS_ENTROPY ? 4 : 1];

    METHOD void begin() {
        for (int j = 0; j < 4; j++) {
            sums[j] = IS_MAX ? 4.0f * NOTHING : 0.0f;
            if (HAS_ENTROPY) moments[j] = 0.0f;
        }
    }
    // `edges` are in nats where they are a tensor's, else in units.
    METHOD void add(const float (&edges)[4], const float *logs, const float *entropies) {
        const float4 four = *(const float4 *)logs;
        const float l[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float t = FORM == MATERIALIZED ? fmaf(edges[j], UNITS, l[j]) : edges[j] + l[j];
            if (IS_MAX) {
                sums[j] = fmaxf(sums[j], t);
                continue;
            }
            const float p = exp2_fast(t);
            sums[j] += p;
            if (HAS_ENTROPY) moments[j] += p * (entropies[j] - LN2 * t);
        }
    }
};

// The sum over i of one segment's edges, with the row of the step, of which `logs` are the log
// weights.
DEVICE Term message_of_edges(const Sequence &s, const Board &board, const float *logs, const float *edges,
                             int step, int k, int o) {
    const float *row = edges + o * s.out_stride();
    const float *entropies = board.entropies + (step & 1) * CHAIN;
    const int stride = s.in_stride(), labels = s.labels;
    const bool is_vectorized = FORM == MATERIALIZED && stride == 1 && labels % 4 == 0;
    Sum sum;
    sum.begin();
#pragma unroll(IS_STAGED ? WIDTH / 4 : 1)
    for (int i = 0; i < (IS_STAGED ? WIDTH : labels); i += 4) {
        if (i >= labels) break;
        float four[4];
        if (is_vectorized) {
            const float4 e = *(const float4 *)(row + i);
            four[0] = e.x, four[1] = e.y, four[2] = e.z, four[3] = e.w;
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                four[j] = i + j >= labels         ? 4.0f * NOTHING
                          : FORM == MATERIALIZED ? row[(i + j) * stride]
                                                 : s.edge(step, k, o, i + j);
        }
        sum.add(four, logs + i, entropies + i);
    }
    Term x = {0.0f, 0.0f, 0.0f, 0.0f};
    const float *p = sum.sums;
    if (IS_MAX) {
        x.part = fmaxf(fmaxf(p[0], p[1]), fmaxf(p[2], p[3]));
        return x;
    }
    const float total = (p[0] + p[1]) + (p[2] + p[3]);
    if (!(total >= LEAST_PRODUCT && total <= MOST_PRODUCT))
        return message_of_lost_edges(s, board, row, stride, step, k, o);
    if (IS_LINEAR) return linear_term(0.0f, total);
    x.part = log2_fast(total);
#if SEMIRING == ENTROPY
    const float *m = sum.moments;
    x.entropy = ((m[0] + m[1]) + (m[2] + m[3])) / total + LN2 * x.part;
#endif
    return x;
}

// Adds the messages of `step` with durations first, first + stride, ... to last. `edges` holds
// their blocks from duration `base` on, `pitch` floats apart; if not staged, they are read where
// they lie.
DEVICE void push_edges(const Sequence &s, const Board &board, Cell *ring, int slot, int step, int o, int first,
                       int last, int stride, const float *edges, int base, int pitch) {
    if (o >= s.labels) return;
    const float *logs = board.published_logs + (step & 1) * CHAIN;
    const float whole = (float)board.exponents[step & 1];
#pragma unroll 1
    for (int k = first; k <= last; k += stride) {
        const float *own = IS_STAGED ? edges + (k - base) * pitch + s.misaligned(step, k) : s.block(step, k);
        Term x = message_of_edges(s, board, logs, own, step, k, o);
        int to = slot + k;
        if (to >= s.longest) to -= s.longest;
        Cell &cell = ring[to * WIDTH + o];
        const bool begins = k == s.longest || step == 0;
        if (IS_LINEAR) {
            x.whole += whole;
            Cell sum = begins ? linear_cell_for(x) : cell;
            add_linear(sum, x);
            cell = sum;
            continue;
        }
        x.whole = whole;
        x.part += s.outside(step, k, o);
        if (HAS_ENTROPY) x.entropy_whole = board.entropy_wholes[step & 1];
        Cell sums[1] = {begins ? cell_for(x) : cell};
        const float parts[1] = {x.part};
        add_to_cells(sums, x, parts);
        cell = sums[0];
    }
}

// The table of the edges of duration 1 from `step`: weights, for max and entropy log weights, and
// of labels that do not exist nothing. `log_of` yields the log weight of an edge (o, i).
template <class Edges>
DEVICE void fill_table(const Sequence &s, const Board &board, int step, int thread, int threads, const Edges &log_of) {
    if (!IS_TABLED || step + 1 > s.end) return;
    float *table = board.table + (step & 1) * WIDTH * WIDTH;
    const int o = thread % WIDTH, rows = threads / WIDTH;
#pragma unroll 1
    for (int i = thread / WIDTH; i < WIDTH; i += rows) {
        const float log = max(i, o) < s.labels ? log_of(o, i) : NOTHING;
        table[i * WIDTH + o] = SEMIRING == LOG ? table_weight(log) : log;
    }
}

// From edges where they lie.
DEVICE void read_table(const Sequence &s, const Board &board, int step, int thread, int threads) {
    fill_table(s, board, step, thread, threads, [&](int o, int i) { return s.edge(step, 1, o, i); });
}

// From a block that was copied.
DEVICE void prepare_table(const Sequence &s, const Board &board, const float *block, int step, int thread,
                          int threads) {
    const int out = s.out_stride(), in = s.in_stride();
    fill_table(s, board, step, thread, threads, [&](int o, int i) { return block[o * out + i * in] * UNITS; });
}

#endif
