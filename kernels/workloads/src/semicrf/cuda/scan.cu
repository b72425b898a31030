// The scan of sequences, one a block: forward for blocks below `batch`, then from the end.
//
// A scan keeps all rows, or HAS_STATES: it may begin and end anywhere, as its state can be kept and
// taken up again by another launch, and keeps states at every `interval`-th boundary from which
// rows are made again.
//
// Loops that run once are not unrolled, and there is no code for states where there are none:
// compiling it is what the first result waits for.
#include "edges.cuh"
#include "state.cuh"

// A sum of many labels' edges is worth more threads than registers.
constexpr int MOST_THREADS = WIDTH > 64 ? 1024 : IS_STAGED && WIDTH > 16 ? 768 : 512;
// The largest blocks have no threads but the chain's: they do everything.
constexpr bool ROLES_SHARE_THREADS = WIDTH >= 512;

// What a block works on, from the launch's arguments.
struct Work {
    Rows rows;
    Board board;
    Stage stage;
    Cell *ring;
    float *biases;
    // This thread's number among those beside the chain: porters bring and keep rows, scores and
    // edges, pushers sum. Negative, or not below the count, if it is none.
    int porter, porters, pusher, pushers;
    // Of a pusher: its label, its first duration from 2 on, and how far the next one is.
    int label, turn, turns;
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
        const float log = IS_FULL ? board.table[((step & 1) * WIDTH + i) * WIDTH + chain.label % WIDTH]
                          : chain.counts && i < s.labels ? s.edge(step, 1, chain.label, i)
                                                         : NOTHING;
        // Of edges in the log semiring the table holds weights already.
        table[i] = IS_MAX || (IS_FULL && !HAS_ENTROPY) ? log : table_weight(log);
        if (HAS_ENTROPY) moments[i] = table[i] > 0.0f ? table[i] * log * LN2 : 0.0f;
    }
}

// Rows of scores come several steps ahead, each label by the thread that needs it.
DEVICE void ask_score(const Sequence &s, const Work &w, int o, int step) {
    if (FORM != FIXED) return;
    if (o < s.labels && step <= s.end)
        copy_4(w.board.scores + (step & (SCORES_AHEAD - 1)) * CHAIN + o, s.score_row(step) + o);
    copies_commit();
}

// Makes the factors of a step from its score and the one before, which is replaced.
DEVICE void prepare_factors(const Sequence &s, const Work &w, Split &last, int o, int step) {
    if (FORM == MATERIALIZED) return;
    const bool counts = o < s.labels && step <= s.end;
    Split next = {0.0f, 0.0f};
    if (FORM == FIXED) {
        copies_wait<SCORES_AHEAD - 2>();
        if (counts) next = s.score(w.board.scores[(step & (SCORES_AHEAD - 1)) * CHAIN + o]);
        ask_score(s, w, o, step + SCORES_AHEAD - 1);
    }
    float part = 0.0f, whole = 0.0f;
    if (FORM == FIXED && counts)
        part = w.biases[FIRST_BIAS * WIDTH + o] + (next.part - last.part), whole = next.whole - last.whole;
    if (FORM == PER_DURATION && counts) part = s.outside(step - 1, 1, o);
    const bool is_some = part > NEXT_TO_NOTHING;
    const float by = rintf(part);
    Factors f;
    f.factor = IS_MAX ? part + whole : is_some ? exp2_fast(part - by) : 0.0f;
    f.by = is_some && !IS_MAX ? int_of(by + whole) : 0;
    f.rest = IS_MAX ? next.part : exp2_fast(next.part);
    f.whole = next.whole;
    w.board.factors[(step & 3) * CHAIN + o] = f;
    w.board.parts[(step & 3) * CHAIN + o] = next.part;
    last = next;
}

// Keeps the row of a step.
DEVICE void keep_row(const Sequence &s, const Work &w, int step) {
    const Board &b = w.board;
    const int64 index = w.rows.index(s.boundary(step));
#pragma unroll 1
    for (int o = w.porter; o < s.labels; o += w.porters) {
        float *row = w.rows.values + index * PLANES * s.labels + o;
        const int at = (step & 1) * CHAIN + o;
        row[0] = b.log(step, o);
        if (HAS_ENTROPY) row[PLANES / 2 * s.labels] = b.entropies[at];
        if (FORM == FIXED) {
            const Published m = b.published[at];
            const float sum = IS_MAX ? m.sum : log2_fast(m.sum);
            row[s.labels] = fmaxf(sum + (float)(m.exponent - b.exponents[step & 1]), 4.0f * NOTHING);
            if (HAS_ENTROPY) row[3 * s.labels] = b.published_entropies[at];
        }
    }
    if (w.porter == 0) {
        w.rows.offsets[2 * index] = (double)(w.base + b.exponents[step & 1]);
        w.rows.offsets[2 * index + 1] = HAS_ENTROPY ? (double)b.entropy_wholes[step & 1] : 0.0;
    }
}

// Longer segments from `step`, by the pushers. Where blocks of edges are copied ahead of time, a
// step's first chunk is there before it begins, and porters wait for the others one by one. In the
// step before the first, they bring what is ahead, and nothing else is done.
template <bool PORTS, bool PUSHES> DEVICE void help(const Sequence &s, Work &w, Held &held, int slot, int step) {
    const int o = w.label, first = 2 + w.turn, stride = w.turns;
#if FORM == FIXED
    if (PUSHES && IS_HELD) push_held(s, w.board, w.biases, held, step);
    if (PUSHES && !IS_HELD) push_message(s, w.board, w.biases, w.ring, slot, step, o, first, stride);
#else
    constexpr int TABLERS = 64;  // porters that make tables where the others copy edges
    const bool is_before = IS_STAGED && PORTS && step < w.first;
    const int last = min(s.longest, s.end - step), chunks = IS_STAGED && !is_before ? w.stage.count : 1;
    Stage &stage = w.stage;
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int base = 2 + chunk * stage.durations;
        const float *edges = 0;
        if (IS_STAGED) {
            if (chunk > 0) {
                if (PORTS) copies_wait<CHUNKS - 2>();
                named_barrier_sync(2, blockDim.x - CHAIN);
            }
            edges = stage.chunks + stage.taken % CHUNKS * stage.durations * stage.pitch;
            stage.taken += !is_before;
        }
        if (PORTS) {
            const int copier = w.porter - TABLERS;
            if (IS_STAGED && copier >= 0) {
#pragma unroll 1
                for (int left = is_before ? CHUNKS - 1 : 1; left > 0; left--)
                    issue_chunk(s, stage, copier, w.porters - TABLERS);
            } else if (chunk == 0 && !is_before) {
                const float *block = stage.first_blocks + (step + 2) % FIRST_BLOCKS * stage.pitch;
                if (IS_STAGED && step + 3 <= s.end) block += s.misaligned(step + 2, 1);
                if (IS_STAGED) prepare_table(s, w.board, block, step + 2, w.porter, TABLERS);
                else read_table(s, w.board, step + 2, w.porter, w.porters);
            }
        }
        if (PUSHES)
            push_edges(s, w.board, w.ring, slot, step, o, first + chunk * stage.durations,
                       IS_STAGED ? min(last, base + stage.durations - 1) : last, stride, edges, base, stage.pitch);
    }
    // The first chunk of the next step is there when everybody meets.
    if (IS_STAGED && PORTS) copies_wait<CHUNKS - 2>();
#endif
}

// The first step's row, made or taken up, and all tables. Ends with everything visible.
DEVICE void begin(const Sequence &s, Work &w, Chain &chain, Split &last, const float *state) {
    const int thread = threadIdx.x;
    const bool is_chain = thread < CHAIN;
    if (FORM == FIXED) {
        const int rows = IS_HELD ? bias_rows(s, w.pushers) : s.longest;
#pragma unroll 1
        for (int i = thread; i < rows * WIDTH; i += blockDim.x) {
            const int o = i % WIDTH, row = i / WIDTH, k = IS_HELD ? duration_of_row(s, row) : row + 1;
            const float *from = s.bias + (k - 1 + s.first_index) * s.labels + o;
            w.biases[i] = o < s.labels ? *from * UNITS : NOTHING;
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < 2; i++) read_table(s, w.board, w.first + i, thread, blockDim.x);
    }
#pragma unroll 1
    for (int i = thread; i < 4 * CHAIN; i += blockDim.x) w.board.factors[i] = {IS_MAX ? 0.0f : 1.0f, IS_MAX ? 0.0f : 1.0f, 0.0f, 0};
    chain.label = thread;
    chain.counts = is_chain && thread < s.labels;
    chain.exponent = 0;
    chain.entropy_whole = 0.0f;
    chain.weight = {IS_MAX ? 0.0f : 1.0f, 0.0f, 0};
    chain.message = {1.0f, 0.0f, 0};
    if (HAS_STATES && state != 0) load_state(s, w.board, state, chain, w.ring, w.base, w.first);
    chain.linear = chain.weight.local * power(chain.weight.exponent - chain.exponent);
    chain.is_dead = FORM == FIXED;
    if (FORM == FIXED && chain.counts)
#pragma unroll 1
        for (int i = 0; i < s.labels; i++) chain.is_dead &= s.edge(0, 1, thread, i) <= NEXT_TO_NOTHING;
    __syncthreads();
    const int scored = w.porter;
    if (scored >= 0 && scored < CHAIN) {
        if (FORM == FIXED) {
            last = s.score(scored < s.labels ? s.score_row(w.first)[scored] : 0.0f);
            w.board.factors[(w.first & 3) * CHAIN + scored].whole = last.whole;
            w.board.parts[(w.first & 3) * CHAIN + scored] = last.part;
        }
#pragma unroll 1
        for (int i = 1; i < SCORES_AHEAD; i++) ask_score(s, w, scored, w.first + i);
        prepare_factors(s, w, last, scored, w.first + 1);
    }
    __syncthreads();
}

// The sum over all labels at the end.
DEVICE void write_totals(const Sequence &s, const Work &w, double *totals, float *value, float *entropy, int step) {
    const Board &b = w.board;
    const double offset = (double)(w.base + b.exponents[step & 1]);
    float sum = 0.0f, moment = 0.0f, most = 4.0f * NOTHING;
#pragma unroll 1
    for (int o = 0; o < s.labels; o++) most = fmaxf(most, b.log(step, o));
#pragma unroll 1
    for (int o = 0; o < s.labels && !IS_MAX; o++) {
        const float log = b.log(step, o) - most, p = exp2_fast(log);
        sum += p;
        if (HAS_ENTROPY && p > 0.0f) moment += p * (b.entropies[(step & 1) * CHAIN + o] - LN2 * log);
    }
    const bool is_some = most > NEXT_TO_NOTHING;
    const double units = offset + (double)(IS_MAX ? most : most + log2_fast(sum));
    *value = (float)(IS_MAX ? units : is_some ? units * 0.6931471805599453 : (double)NOTHING);
    totals[0] = is_some ? units : (double)NOTHING;
    totals[1] = 0.0;
    if (HAS_ENTROPY) {
        totals[1] = (double)b.entropy_wholes[step & 1] + (double)(moment / sum + LN2 * log2_fast(sum));
        *entropy = (float)(is_some ? totals[1] : 0.0);
    }
}

// Where results go that are not rows.
struct Results {
    float *states, *carry;
    int64 state_floats;
    int interval;  // between states
    double *totals;
    float *value, *entropy;
};

// The next step after which there is more to do than to go on: see `pause`.
DEVICE int next_pause(const Work &w, const Results &r, int step) {
    int at = min(w.last, step | (STEPS_OF_BASE - 1));
    if (HAS_STATES && r.interval > 0) at = min(at, step + r.interval - 1 - step % r.interval);
    return at;
}

// Keeps the state after a step, and makes all exponents relative to that of its row, which nobody
// reads any more: each role what it has. True if it was the last.
template <bool CHAINS, bool PUSHES>
DEVICE bool pause(const Sequence &s, Work &w, const Results &r, Chain &chain, Held &held, int step) {
    const bool is_last = step == w.last;
    float *state = !HAS_STATES                                     ? 0
                   : is_last                                       ? r.carry
                   : r.interval > 0 && (step + 1) % r.interval == 0 ? r.states + ((step + 1) / r.interval - 1) * r.state_floats
                                                                    : 0;
    __syncthreads();
    if (HAS_STATES && state != 0) {
        save_state(s, state, chain, w.ring, w.base);
        if (IS_HELD && PUSHES) keep_held(s, held, cells_of(state));
    }
    if (is_last || (step + 1) % STEPS_OF_BASE != 0) return is_last;
    __syncthreads();
    const int shift = w.board.exponents[step & 1];
    // By those who push; with states or entropies by all, or the compiler spills registers.
    constexpr bool ALL_SHIFT = HAS_STATES || HAS_ENTROPY;
    if (PUSHES || ALL_SHIFT) {
        Cell *cells = IS_HELD ? w.board.due : w.ring;
        const int own = ALL_SHIFT ? threadIdx.x : w.pusher, all = ALL_SHIFT ? blockDim.x : w.pushers;
#pragma unroll 1
        for (int i = own; i < (IS_HELD ? 2 * CHAIN : s.longest * WIDTH); i += all) cells[i].whole -= (float)shift;
    }
    if (IS_HELD && PUSHES) {
#pragma unroll
        for (int i = 0; i < HELD; i++) held.cells[i].whole -= (float)shift;
    }
    if (CHAINS) {
        chain.exponent -= shift;
        chain.message.exponent -= shift;
        chain.weight.exponent -= shift;
    }
    w.base += shift;
    __syncthreads();
    return false;
}

// The chain's part of a step that is settled: the weights of the next.
DEVICE void advance(const Sequence &s, const Work &w, Chain &chain, int slot, int step) {
    const bool has_cell = chain.counts && step > 0 && s.longest > 1;
    Cell cell = {};
    if (has_cell && IS_HELD) cell = w.board.due[((step + 1) & 1) * CHAIN + chain.label];
    if (has_cell && !IS_HELD) cell = w.ring[(slot + 1 == s.longest ? 0 : slot + 1) * WIDTH + chain.label];
    Factors f = {IS_MAX ? 0.0f : 1.0f, IS_MAX ? 0.0f : 1.0f, 0.0f, 0};
    if (FORM != MATERIALIZED) f = w.board.factors[((step + 1) & 3) * CHAIN + chain.label];
    if (!IS_MAX) chain.linear = combine_linear(chain, cell, has_cell, f);
    chain.weight = combine(chain, cell, has_cell, f);
}

// All steps, by threads of some roles. Loops of their own keep the instructions of a role together,
// and its numbers in registers. Every role waits at the same barriers.
template <bool CHAINS, bool PORTS, bool PUSHES>
DEVICE void loop(const Sequence &s, Work &w, const Results &r, Chain &chain, Split last, const float *state) {
    float table[TABLE], moments[HAS_ENTROPY ? TABLE : 1];
    Held held;
    if (IS_HELD && PUSHES) begin_held(s, held, state == 0 ? 0 : cells_of(state), w.pusher, w.pushers, w.first);
    // Or the chain waits for the thread's number in every step.
    if (CHAINS) keep_in_register(chain.label);
    if (CHAINS) load_table(s, w.board, chain, table, moments, w.first);
    const bool scores = PORTS && w.porter < CHAIN, keeps = PORTS && w.rows.values != 0;
    // Where edges are copied ahead of time, those who copy them begin a step before the others.
    const int begin = w.first - (IS_STAGED && PORTS);
    int slot = (begin + s.longest) % s.longest, stop = next_pause(w, r, w.first);
    if (IS_STAGED && !PORTS) __syncthreads();
#pragma unroll 1
    for (int step = begin;; step++) {
        if (CHAINS && threadIdx.x < CHAIN) {
            send(s, w.board, chain, table, moments, step);
            // From the end, rows lie behind the transition: the first has gone through none.
            if (FORM == FIXED && !s.forward && step == 0) {
                chain.message = {1.0f, 0.0f, 0};
                w.board.published[chain.label] = {1.0f, 0};
                if (HAS_ENTROPY) w.board.published_entropies[chain.label] = 0.0f;
            }
            refer(w.board, chain);
        }
        __syncthreads();
        if (PORTS && keeps && step >= w.first) keep_row(s, w, step);
        if (step == stop && step == w.last && !w.goes_on) return;
        if (CHAINS && threadIdx.x < CHAIN) {
            if (IS_FULL) load_table(s, w.board, chain, table, moments, step + 1);
            advance(s, w, chain, slot, step);
        }
        if (PORTS && scores) prepare_factors(s, w, last, w.porter, step + 2);
        if (PORTS || PUSHES) help<PORTS, PUSHES>(s, w, held, slot, step);
        if (++slot == s.longest) slot = 0;
        if (step != stop) continue;
        if (pause<CHAINS, PUSHES>(s, w, r, chain, held, step)) return;
        stop = next_pause(w, r, step + 1);
    }
}

DEVICE void scan(const Sequence &s, Work &w, const Results &r, const float *state) {
    Chain chain;
    Split last = {0.0f, 0.0f};
    begin(s, w, chain, last, state);
    if constexpr (ROLES_SHARE_THREADS) loop<true, true, true>(s, w, r, chain, last, state);
    else if (threadIdx.x < CHAIN) loop<true, false, false>(s, w, r, chain, last, state);
    else if (w.porter < w.porters) loop<false, true, false>(s, w, r, chain, last, state);
    else loop<false, false, true>(s, w, r, chain, last, state);
    if (threadIdx.x == 0 && s.forward && w.last == s.end)
        write_totals(s, w, r.totals, r.value, r.entropy, w.last);
}

KERNEL(semicrf_scan, MOST_THREADS)
(int64 positions, int64 durations, int64 labels, int64 longest, int64 first_index, int64 batch, int64 first_role,
 int64 low, int64 high, int64 interval, const int64 *lengths, const float *scores, int64 scores_len,
 const float *transition, const float *bias, float *rows, double *offsets, int64 capacity, float *suffixes,
 double *suffix_offsets, int64 suffix_capacity, float *states, int64 state_count, int64 state_floats, float *carries,
 float *cells, int64 chunk_durations, int64 porters, double *totals, float *value, float *entropy) {
    SHARED(shared);
    const int sequence = blockIdx.x % (unsigned)batch;
    Sequence s;
    s.forward = blockIdx.x / (unsigned)batch + first_role == 0;
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
    w.goes_on = HAS_STATES && !s.forward && low > 0;
    w.base = 0;
    const int thread = threadIdx.x, threads = blockDim.x, all = ROLES_SHARE_THREADS;
    w.porters = all ? threads : (int)porters;
    w.porter = all ? thread : thread - CHAIN;
    w.pushers = all ? threads : threads - CHAIN - w.porters;
    w.pusher = all ? thread : thread - CHAIN - w.porters;
    // Where cells are in memory, no lane is left without a label, if labels are few.
    const int columns = IS_STAGED ? s.labels : WIDTH;
    w.turns = max(1, w.pushers / columns);
    w.turn = w.pusher / columns;
    w.label = w.pusher >= 0 && w.turn < w.turns ? w.pusher % columns : s.labels;
    float *free = shared;
    keep_shared_in_register(free);
    w.board = board_of(free);
    const int64 ring_floats = IS_HELD ? 0 : longest * WIDTH * CELL_FLOATS;
    const int64 bias_floats = FORM != FIXED ? 0 : IS_HELD ? bias_rows(s, w.pushers) * WIDTH : longest * WIDTH;
    if (CELLS_ARE_SHARED) {
        w.biases = carve(free, bias_floats);
        w.ring = (Cell *)carve(free, ring_floats);
    } else {
        float *own = cells + blockIdx.x * (ring_floats + bias_floats);
        w.ring = (Cell *)own;
        w.biases = own + ring_floats;
    }
    w.stage.pitch = (int)(labels % 2 == 0 ? labels * labels : (labels * labels + 6) / 4 * 4);
    w.stage.durations = (int)chunk_durations;
    w.stage.count = chunk_durations == 0 ? 0 : max(1, (s.longest - 2 + w.stage.durations) / w.stage.durations);
    w.stage.step = w.first, w.stage.chunk = 0, w.stage.issued = 0, w.stage.taken = 0;
    w.stage.first_blocks = carve(free, chunk_durations == 0 ? 0 : FIRST_BLOCKS * w.stage.pitch);
    w.stage.chunks = free;
    float *own_states = states + sequence * state_count * state_floats, *carry = carries + sequence * state_floats;
    const float *state = !HAS_STATES || w.first == 0 ? 0 : s.forward ? own_states + ((int)low / (int)interval - 1) * state_floats : carry;
    const int saving = s.forward && w.rows.values == 0 ? (int)interval : 0;
    const Results r = {own_states, carry, state_floats, saving, totals + 2 * sequence, value + sequence,
                       entropy + sequence};
    // Or the compiler makes them again from the arguments in every step.
    keep_in_register(s.labels), keep_in_register(s.longest), keep_in_register(s.end);
    keep_in_register(w.rows.values), keep_in_register(w.rows.offsets), keep_in_register(w.rows.capacity);
    keep_in_register(s.scores), keep_in_register(s.durations), keep_in_register(s.first_index);
    keep_in_register(w.porters), keep_in_register(w.pushers), keep_in_register(w.last);
    scan(s, w, r, state);
}
