// Longer segments whose edges depend on the duration and both labels: each has a message of its own.
#ifndef SWEEPER_SEMICRF_EDGES_CUH
#define SWEEPER_SEMICRF_EDGES_CUH

#include "chain.cuh"

// Blocks of edges come ahead of time: CHUNKS chunks of some durations each, and the blocks of duration
// 1, which the chain needs sooner, in a ring of their own.
constexpr int CHUNKS = 8, FIRST_BLOCKS = 16, FIRST_AHEAD = 3;

struct Stage {
    float *chunks, *first_blocks;
    int pitch;      // floats of a block, with room to keep the alignment it has in memory
    int durations;  // of a chunk
    int count;      // chunks of a step
    int step, chunk, issued;  // the next to issue
};

DEVICE int misalignment(const float *from) { return (int)(((unsigned long long)from >> 2) & 3); }

// Threads `lane`, `lane + lanes`, ... copy a block.
DEVICE void copy_block(const Sequence &s, float *to, const float *from, int lane, int lanes) {
    const int off = misalignment(from), pieces = (off + s.labels * s.labels + 3) / 4;
    const float *start = from - off;
    for (int i = lane; i < pieces; i += lanes) {
        const int64 left = s.scores_end - (start + 4 * i);
        copy_16(to + 4 * i, start + 4 * i, left >= 4 ? 16 : (int)left * 4);
    }
}

DEVICE void copy_first_block(const Sequence &s, const Stage &stage, int step, int thread, int threads) {
    if (step + 1 <= s.end)
        copy_block(s, stage.first_blocks + step % FIRST_BLOCKS * stage.pitch, s.block(step, 1), thread, threads);
}

// Issues the next chunk as one group of copies, which may be empty.
DEVICE void issue_chunk(const Sequence &s, Stage &stage, int thread, int threads) {
    const int warp = thread / 32, warps = threads / 32;
    const int first = 2 + stage.chunk * stage.durations;
    const int last = min(min(s.longest, s.end - stage.step), first + stage.durations - 1);
    float *to = stage.chunks + stage.issued % CHUNKS * stage.durations * stage.pitch;
    for (int k = first + warp; k <= last; k += warps)
        copy_block(s, to + (k - first) * stage.pitch, s.block(stage.step, k), thread % 32, 32);
    if (stage.chunk == 0) copy_first_block(s, stage, stage.step + FIRST_AHEAD, thread, threads);
    copies_commit();
    stage.issued++;
    if (++stage.chunk == stage.count) stage.chunk = 0, stage.step++;
}

// The sum over i of one segment's edges, with the row of the step.
DEVICE Term message_of_edges(const Sequence &s, const float *logs, const float *entropies, const float *edges,
                             int step, int k, int o) {
    const float *row = edges + o * s.out_stride();
    const int stride = s.in_stride();
    const auto term = [&](int i) {
        return edges != 0 ? fmaf(row[i * stride], UNITS, logs[i]) : s.edge(step, k, o, i) + logs[i];
    };
    Term x = {0.0f, 0.0f, 0.0f, 0.0f};
    if (IS_MAX) {
        float most = 4.0f * NOTHING;
        for (int i = 0; i < s.labels; i++) most = fmaxf(most, term(i));
        x.part = most;
        return x;
    }
    float sum = 0.0f, moment = 0.0f;
    if (stride == 1 && s.labels % 4 == 0 && edges != 0) {
        for (int i = 0; i < s.labels; i += 4) {
            const float4 e = *(const float4 *)(row + i), l = *(const float4 *)(logs + i);
            const float terms[4] = {fmaf(e.x, UNITS, l.x), fmaf(e.y, UNITS, l.y), fmaf(e.z, UNITS, l.z),
                                    fmaf(e.w, UNITS, l.w)};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float p = exp2_fast(terms[j]);
                sum += p;
                if (HAS_ENTROPY) moment += p * (entropies[i + j] - LN2 * terms[j]);
            }
        }
    } else {
#pragma unroll 4
        for (int i = 0; i < s.labels; i++) {
            const float t = term(i), p = exp2_fast(t);
            sum += p;
            if (HAS_ENTROPY) moment += p * (entropies[i] - LN2 * t);
        }
    }
    float by = 0.0f;
    if (!(sum >= LEAST_PRODUCT && sum <= MOST_PRODUCT)) {
        float most = 4.0f * NOTHING;
        for (int i = 0; i < s.labels; i++) most = fmaxf(most, term(i));
        x.part = NOTHING;
        if (most < NEXT_TO_NOTHING) return x;
        by = rintf(most);
        sum = 0.0f, moment = 0.0f;
        for (int i = 0; i < s.labels; i++) {
            const float t = term(i) - by, p = exp2_fast(t);
            sum += p;
            if (HAS_ENTROPY && p > 0.0f) moment += p * (entropies[i] - LN2 * t);
        }
    }
    const float log = log2_fast(sum);
    x.part = by + log;
    if (HAS_ENTROPY) x.entropy = moment / sum + LN2 * log;
    return x;
}

// Adds the messages of `step` with durations first, first + stride, ... to last. `edges` holds their
// blocks from duration `base` on, `pitch` floats apart, or is null.
DEVICE void push_edges(const Sequence &s, const Board &board, Cell *ring, int slot, int step, int o, int first,
                       int last, int stride, const float *edges, int base, int pitch) {
    if (o >= s.labels) return;
    const float *logs = board.logs + (step & 1) * CHAIN, *entropies = board.entropies + (step & 1) * CHAIN;
    const float whole = (float)board.exponents[step & 1];
    for (int k = first; k <= last; k += stride) {
        const float *own = edges == 0 ? 0 : edges + (k - base) * pitch + misalignment(s.block(step, k));
        Term x = message_of_edges(s, logs, entropies, own, step, k, o);
        x.whole = whole;
        x.part += s.outside(step, k, o);
        if (HAS_ENTROPY) x.entropy_whole = board.entropy_wholes[step & 1];
        int to = slot + k;
        if (to >= s.longest) to -= s.longest;
        Cell &cell = ring[to * WIDTH + o];
        if (k == s.longest || step == 0) {
            begin_cell(cell, x);
        } else {
            Cell sum = cell;
            add_to_cell(sum, x);
            cell = sum;
        }
    }
}

// The table of the edges of duration 1 from `step`: weights, for max and entropy log weights.
DEVICE void prepare_table(const Sequence &s, const Board &board, const float *block, int step, int thread,
                          int threads) {
    if (!IS_TABLED || step + 1 > s.end) return;
    float *table = board.table + (step & 1) * WIDTH * WIDTH;
    const int o = thread % WIDTH;
    if (o >= s.labels) return;
    for (int i = thread / WIDTH; i < s.labels; i += threads / WIDTH) {
        const float log = block == 0 ? s.edge(step, 1, o, i)
                                     : block[o * s.out_stride() + i * s.in_stride()] * UNITS;
        table[i * WIDTH + o] = SEMIRING == LOG ? table_weight(log) : log;
    }
}

#endif
