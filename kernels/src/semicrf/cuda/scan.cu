// The scan of sequences, one a block: forward for blocks below `batch`, then from the end.
//
// A scan may begin and end anywhere: its state can be kept and taken up again by another launch. So a
// scan keeps all rows, or states at every `interval`-th boundary from which rows are made again.
#include "fixed.cuh"
#include "edges.cuh"
#include "state.cuh"

constexpr int MOST_THREADS = WIDTH <= 64 ? 512 : 1024;

// What a block works on, from the launch's arguments.
struct Work {
    Rows rows;
    Board board;
    Stage stage;
    Cell *ring;
    float *biases;
    int helper, helpers;    // this thread's number among those beside the chain
    int first, last;        // steps
    bool goes_on;           // another launch takes the state up after the last step
    int64 base;             // all exponents are relative to it
};

// The column of the chain's table that this thread needs.
DEVICE void load_table(const Sequence &s, const Board &board, const Chain &chain, float (&table)[TABLE],
                       float (&moments)[HAS_ENTROPY ? TABLE : 1], int step) {
    if (!IS_TABLED) return;
#pragma unroll
    for (int i = 0; i < TABLE; i++) {
        const bool counts = chain.counts && i < s.labels;
        const float log = !counts ? NOTHING
                          : IS_FULL ? board.table[((step & 1) * WIDTH + i) * WIDTH + chain.label]
                                    : s.edge(step, 1, chain.label, i);
        // Of edges in the log semiring the table holds weights already.
        table[i] = IS_MAX || (IS_FULL && !HAS_ENTROPY && counts) ? log : table_weight(log);
        if (HAS_ENTROPY) moments[i] = table[i] > 0.0f ? table[i] * log * LN2 : 0.0f;
    }
}

// Score of the segment of one boundary from `step`, beside the table: a factor and an exponent.
struct Factor {
    float factor;
    int by;
};
DEVICE Factor factor_of(const Sequence &s, const Chain &chain, float bias, Split next, int step) {
    if (FORM == MATERIALIZED) return {IS_MAX ? 0.0f : 1.0f, 0};
    float part = chain.counts ? s.outside(step, 1, chain.label) : 0.0f, whole = 0.0f;
    if (FORM == FIXED) part = bias + (next.part - chain.score.part), whole = next.whole - chain.score.whole;
    if (IS_MAX) return {part + whole, 0};
    const float by = rintf(part);
    return {part > NEXT_TO_NOTHING ? exp2_fast(part - by) : 0.0f, part > NEXT_TO_NOTHING ? int_of(by + whole) : 0};
}

// Rows of scores come several steps ahead, each label by the thread that needs it.
DEVICE void ask_score(const Sequence &s, const Work &w, const Chain &chain, int step) {
    if (FORM != FIXED) return;
    if (chain.counts && step <= s.end)
        copy_4(w.board.scores + (step & (SCORES_AHEAD - 1)) * CHAIN + chain.label, s.score_row(step) + chain.label);
    copies_commit();
}
DEVICE Split take_score(const Sequence &s, const Work &w, const Chain &chain, int step) {
    if (FORM != FIXED) return {0.0f, 0.0f};
    copies_wait<SCORES_AHEAD - 2>();
    const float nats = chain.counts ? w.board.scores[(step & (SCORES_AHEAD - 1)) * CHAIN + chain.label] : 0.0f;
    ask_score(s, w, chain, step + SCORES_AHEAD - 1);
    return s.score(nats);
}

// Keeps the row of a step.
DEVICE void keep_row(const Sequence &s, const Work &w, int step) {
    const Board &b = w.board;
    const int64 index = w.rows.index(s.boundary(step));
    for (int o = w.helper; o < s.labels; o += w.helpers) {
        float *row = w.rows.values + index * PLANES * s.labels + o;
        const int at = (step & 1) * CHAIN + o;
        row[0] = b.logs[at];
        if (HAS_ENTROPY) row[PLANES / 2 * s.labels] = b.entropies[at];
        if (FORM == FIXED) {
            const Published m = b.published[at];
            const float sum = IS_MAX ? m.sum : log2_fast(m.sum);
            row[s.labels] = fmaxf(sum + (m.exponent - (float)b.exponents[step & 1]), 4.0f * NOTHING);
            if (HAS_ENTROPY) row[3 * s.labels] = b.published_entropies[at];
        }
    }
    if (w.helper == 0) {
        w.rows.offsets[2 * index] = (double)(w.base + b.exponents[step & 1]);
        w.rows.offsets[2 * index + 1] = HAS_ENTROPY ? (double)b.entropy_wholes[step & 1] : 0.0;
    }
}

// Longer segments from `step`, by all threads beside the chain.
DEVICE void help(const Sequence &s, Work &w, int slot, int step) {
    const int o = w.helper % WIDTH, first = 2 + w.helper / WIDTH, stride = w.helpers / WIDTH;
#if FORM == FIXED
    push_message(s, w.board, w.biases, w.ring, slot, step, o, first, stride);
#else
    const int last = min(s.longest, s.end - step);
    Stage &stage = w.stage;
    if (stage.count == 0) {
        prepare_table(s, w.board, 0, step + 2, w.helper, w.helpers);
        push_edges(s, w.board, w.ring, slot, step, o, first, last, stride, 0, 0, 0);
        return;
    }
    for (int chunk = 0; chunk < stage.count; chunk++) {
        const int base = 2 + chunk * stage.durations, number = stage.issued - (CHUNKS - 1);
        copies_wait<CHUNKS - 2>();
        sync_some(2, w.helpers);
        if (chunk == 0) {
            const float *block = stage.first_blocks + (step + 2) % FIRST_BLOCKS * stage.pitch;
            if (step + 3 <= s.end) block += misalignment(s.block(step + 2, 1));
            prepare_table(s, w.board, block, step + 2, w.helper, w.helpers);
        }
        issue_chunk(s, stage, w.helper, w.helpers);
        const float *edges = stage.chunks + number % CHUNKS * stage.durations * stage.pitch;
        push_edges(s, w.board, w.ring, slot, step, o, first + chunk * stage.durations,
                   min(last, base + stage.durations - 1), stride, edges, base, stage.pitch);
    }
#endif
}

// The first step's row, made or taken up, and all tables. Ends with everything visible.
DEVICE void begin(const Sequence &s, Work &w, Chain &chain, const float *state) {
    const int thread = threadIdx.x;
    const bool is_chain = thread < CHAIN;
    if (FORM == FIXED) {
        for (int i = thread; i < s.longest * WIDTH; i += blockDim.x) {
            const int o = i % WIDTH;
            const float *from = s.bias + (i / WIDTH + s.first_index) * s.labels + o;
            w.biases[i] = o < s.labels ? *from * UNITS : NOTHING;
        }
    } else {
        prepare_table(s, w.board, 0, w.first, thread, blockDim.x);
        prepare_table(s, w.board, 0, w.first + 1, thread, blockDim.x);
    }
    chain.label = thread;
    chain.counts = is_chain && thread < s.labels;
    chain.exponent = 0;
    chain.entropy_whole = 0.0f;
    chain.weight = {IS_MAX ? 0.0f : 1.0f, 0.0f, 0};
    chain.message = {1.0f, 0.0f, 0};
    if (state != 0) load_state(s, state, chain, w.ring, w.base);
    chain.score = s.score(FORM == FIXED && chain.counts ? s.score_row(w.first)[thread] : 0.0f);
    chain.is_dead = FORM == FIXED;
    if (FORM == FIXED && chain.counts)
        for (int i = 0; i < s.labels; i++) chain.is_dead &= s.edge(0, 1, thread, i) <= NEXT_TO_NOTHING;
    if (is_chain) {
        for (int i = 1; i < SCORES_AHEAD; i++) ask_score(s, w, chain, w.first + i);
    } else if (w.stage.count > 0) {
        copy_first_block(s, w.stage, w.first + 2, w.helper, w.helpers);
        for (int i = 0; i < CHUNKS - 1; i++) issue_chunk(s, w.stage, w.helper, w.helpers);
    }
    __syncthreads();
}

// The sum over all labels at the end.
DEVICE void write_totals(const Sequence &s, const Work &w, double *totals, float *value, float *entropy, int step) {
    const Board &b = w.board;
    const float *logs = b.logs + (step & 1) * CHAIN;
    const double offset = (double)(w.base + b.exponents[step & 1]);
    float sum = 0.0f, moment = 0.0f, most = 4.0f * NOTHING;
    for (int o = 0; o < s.labels; o++) {
        most = fmaxf(most, logs[o]);
        if (IS_MAX) continue;
        sum += b.linear[o];
        if (HAS_ENTROPY) moment += b.moments[o];
    }
    const double total = IS_MAX ? offset + (double)most
                         : sum > 0.0f ? (offset + (double)log2_fast(sum)) * 0.6931471805599453 : (double)NOTHING;
    *value = (float)total;
    totals[0] = IS_MAX ? total : offset + (double)log2_fast(fmaxf(sum, 1e-30f));
    totals[1] = 0.0;
    if (HAS_ENTROPY) {
        const double h = sum > 0.0f ? (double)b.entropy_wholes[step & 1] + (double)(moment / sum + LN2 * log2_fast(sum)) : 0.0;
        totals[1] = h;
        *entropy = (float)h;
    }
}

// Makes all exponents relative to that of the step's row.
DEVICE void rebase(const Sequence &s, Work &w, Chain &chain, int step) {
    __syncthreads();
    const int shift = w.board.exponents[step & 1];
    for (int i = threadIdx.x; i < s.longest * WIDTH; i += blockDim.x) w.ring[i].whole -= (float)shift;
    chain.exponent -= shift;
    chain.message.exponent -= shift;
    chain.weight.exponent -= shift;
    w.base += shift;
    __syncthreads();
    if (threadIdx.x < CHAIN) {
        if (FORM == FIXED) publish(w.board, chain, step);
        if (threadIdx.x == 0) w.board.exponents[step & 1] = chain.exponent;
    }
}

DEVICE void scan(const Sequence &s, Work &w, float *states, int64 state_floats, int interval, float *carry,
                 double *totals, float *value, float *entropy, const float *state) {
    const bool is_chain = threadIdx.x < CHAIN, is_helper = w.helpers == (int)blockDim.x || !is_chain;
    Chain chain;
    begin(s, w, chain, state);
    float table[TABLE], moments[HAS_ENTROPY ? TABLE : 1];
    const float bias = FORM == FIXED && chain.counts ? w.biases[threadIdx.x] : 0.0f;
    if (is_chain) {
        load_table(s, w.board, chain, table, moments, w.first);
        settle(s, w.board, chain, w.first);
        // From the end, rows lie behind the transition: the first has gone through none.
        if (IS_FULL || s.forward || w.first > 0) send(s, w.board, chain, table, moments, w.first);
        if (FORM == FIXED) publish(w.board, chain, w.first);
    }
    int slot = w.first % s.longest;
    for (int step = w.first;; step++) {
        __syncthreads();
        const bool is_last = step == w.last;
        if (is_helper && w.rows.values != 0) keep_row(s, w, step);
        if (is_last && !w.goes_on) {
            if (s.forward && step == s.end && threadIdx.x == 0) write_totals(s, w, totals, value, entropy, step);
            return;
        }
        if (is_chain) {
            if (IS_FULL && !is_last) load_table(s, w.board, chain, table, moments, step + 1);
            const bool has_cell = chain.counts && step > 0 && s.longest > 1;
            Cell cell;
            if (has_cell) cell = w.ring[(slot + 1 == s.longest ? 0 : slot + 1) * WIDTH + chain.label];
            const Split next = take_score(s, w, chain, step + 1);
            const Factor f = factor_of(s, chain, bias, next, step);
            chain.weight = combine(chain, cell, has_cell, f.factor, f.by, next);
            chain.score = next;
            if (!is_last) {
                settle(s, w.board, chain, step + 1);
                send(s, w.board, chain, table, moments, step + 1);
                if (FORM == FIXED) publish(w.board, chain, step + 1);
            }
        }
        if (is_helper) help(s, w, slot, step);
        if (++slot == s.longest) slot = 0;
        if (is_last) {
            __syncthreads();
            save_state(s, carry, chain, w.ring, w.base);
            return;
        }
        if ((step + 1) % STEPS_OF_BASE == 0) rebase(s, w, chain, step + 1);
        if (interval > 0 && (step + 1) % interval == 0) {
            __syncthreads();
            save_state(s, states + ((step + 1) / interval - 1) * state_floats, chain, w.ring, w.base);
        }
    }
}

KERNEL(semicrf_scan, MOST_THREADS)
(int64 positions, int64 durations, int64 labels, int64 longest, int64 first_index, int64 batch, int64 first_role,
 int64 low, int64 high, int64 interval, const int64 *lengths, const float *scores, int64 scores_len,
 const float *transition, const float *bias, float *rows, double *offsets, int64 capacity, float *suffixes,
 double *suffix_offsets, int64 suffix_capacity, float *states, int64 state_count, int64 state_floats, float *carries,
 float *cells, int64 chunk_durations, double *totals, float *value, float *entropy) {
    SHARED(shared);
    const int sequence = blockIdx.x % batch;
    Sequence s;
    s.forward = blockIdx.x / batch + first_role == 0;
    s.labels = (int)labels, s.longest = (int)longest, s.durations = (int)durations;
    s.first_index = (int)first_index;
    s.end = (int)lengths[sequence] - (FORM == MATERIALIZED);
    const int64 size = labels * (FORM == MATERIALIZED ? durations * labels * (positions - 1) : positions + 1);
    s.scores = scores + sequence * size, s.scores_end = scores + scores_len;
    s.transition = transition, s.bias = bias;
    if (low > s.end) return;
    Work w;
    w.rows = s.forward ? Rows{rows, offsets, (int)capacity} : Rows{suffixes, suffix_offsets, (int)suffix_capacity};
    w.rows.values += w.rows.values == 0 ? 0 : (int64)sequence * w.rows.capacity * PLANES * labels;
    w.rows.offsets += w.rows.values == 0 ? 0 : (int64)sequence * w.rows.capacity * 2;
    const int top = high - 1 < s.end ? (int)high - 1 : s.end;
    w.first = s.forward ? (int)low : s.end - top;
    w.last = s.forward ? top : s.end - (int)low;
    w.goes_on = !s.forward && low > 0;
    w.base = 0;
    w.helpers = blockDim.x > CHAIN ? blockDim.x - CHAIN : blockDim.x;
    w.helper = blockDim.x > CHAIN ? (int)threadIdx.x - CHAIN : threadIdx.x;
    float *free = shared;
    w.board = board_of(free);
    w.biases = carve(free, FORM == FIXED && cells == 0 ? longest * WIDTH : 0);
    w.ring = (Cell *)carve(free, cells == 0 ? longest * WIDTH * CELL_FLOATS : 0);
    if (cells != 0) {
        float *own = cells + blockIdx.x * longest * WIDTH * (CELL_FLOATS + (FORM == FIXED));
        w.ring = (Cell *)own;
        w.biases = own + longest * WIDTH * CELL_FLOATS;
    }
    w.stage.pitch = ((int)(labels * labels) + 6) / 4 * 4;
    w.stage.durations = (int)chunk_durations;
    w.stage.count = chunk_durations == 0 ? 0 : max(1, (int)((longest - 2 + chunk_durations) / chunk_durations));
    w.stage.step = w.first, w.stage.chunk = 0, w.stage.issued = 0;
    w.stage.first_blocks = carve(free, chunk_durations == 0 ? 0 : FIRST_BLOCKS * w.stage.pitch);
    w.stage.chunks = free;
    float *own_states = states + sequence * state_count * state_floats, *carry = carries + sequence * state_floats;
    const float *state = w.first == 0 ? 0 : s.forward ? own_states + (low / interval - 1) * state_floats : carry;
    const int saving = s.forward && w.rows.values == 0 ? (int)interval : 0;
    scan(s, w, own_states, state_floats, saving, carry, totals + 2 * sequence, value + sequence, entropy + sequence,
         state);
}
