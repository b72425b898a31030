// The memory that a block shares, and the state of a scan between launches.
#ifndef SWEEPER_SEMICRF_STATE_CUH
#define SWEEPER_SEMICRF_STATE_CUH

#include "held.cuh"

// Steps after which exponents are made small again: whole numbers in f32 are exact to 2^22.
constexpr int STEPS_OF_BASE = 4096;
constexpr int CELL_FLOATS = sizeof(Cell) / sizeof(float);
constexpr bool IS_HELD = HELD > 0;  // cells are in registers
// A state: what the chain has in common, its rows, the cells. `state_floats` in cuda/layout.rs.
constexpr int STATE_HEAD = 4, STATE_ROWS = 3;

DEVICE float *carve(float *&free, int64 floats) {
    float *part = free;
    free += (floats + 3) / 4 * 4;
    return part;
}

// In the order of `board_floats` in cuda/layout.rs.
DEVICE Board board_of(float *&free) {
    Board b;
    b.linear = carve(free, CHAIN);
    b.moments = carve(free, HAS_ENTROPY ? CHAIN : 0);
    b.raw = (Raw *)carve(free, 4 * CHAIN);
    b.entropies = carve(free, HAS_ENTROPY ? 2 * CHAIN : 0);
    b.published_logs = carve(free, IS_FULL ? 2 * CHAIN : 0);
    b.published = (Published *)carve(free, IS_FULL ? 0 : 4 * CHAIN);
    b.published_entropies = carve(free, !IS_FULL && HAS_ENTROPY ? 2 * CHAIN : 0);
    b.factors = (Factors *)carve(free, 16 * CHAIN);
    b.parts = carve(free, 4 * CHAIN);
    b.exponents = (int *)carve(free, 2);
    b.entropy_wholes = carve(free, 2);
    b.scratch = (int *)carve(free, 64);
    b.table = carve(free, IS_TABLED && IS_FULL ? 2 * WIDTH * WIDTH : 0);
    b.scores = carve(free, IS_FULL ? 0 : SCORES_AHEAD * CHAIN);
    b.due = (Cell *)carve(free, IS_HELD ? 2 * CHAIN * CELL_FLOATS : 0);
    return b;
}

// Where the cells of a state are.
DEVICE const float *cells_of(const float *state) { return state + STATE_HEAD + STATE_ROWS * CHAIN; }
DEVICE float *cells_of(float *state) { return state + STATE_HEAD + STATE_ROWS * CHAIN; }

// By all threads, between barriers. Cells in registers are kept by who has them.
DEVICE void save_state(const Sequence &s, float *state, const Chain &chain, const Cell *ring, int64 base) {
    const int thread = threadIdx.x;
    if (thread == 0) {
        *(int64 *)state = base;
        state[2] = __int_as_float(chain.exponent);
        state[3] = chain.entropy_whole;
    }
    float *rows = state + STATE_HEAD;
    if (thread < CHAIN) {
        rows[thread] = chain.weight.local;
        rows[CHAIN + thread] = __int_as_float(chain.weight.exponent);
        rows[2 * CHAIN + thread] = chain.weight.entropy;
    }
    if (IS_HELD) return;
    const float *from = (const float *)ring;
    float *to = cells_of(state);
#pragma unroll 1
    for (int i = thread; i < s.longest * WIDTH * CELL_FLOATS; i += blockDim.x) to[i] = from[i];
}

// The state before `step`.
DEVICE void load_state(const Sequence &s, const Board &board, const float *state, Chain &chain, Cell *ring,
                       int64 &base, int step) {
    const int thread = threadIdx.x;
    base = *(const int64 *)state;
    chain.exponent = __float_as_int(state[2]);
    chain.entropy_whole = state[3];
    const float *rows = state + STATE_HEAD;
    if (thread < CHAIN) {
        chain.weight.local = rows[thread];
        chain.weight.exponent = __float_as_int(rows[CHAIN + thread]);
        chain.weight.entropy = rows[2 * CHAIN + thread];
    }
    const float *from = cells_of(state);
    if (IS_HELD) {
        // The cells of the next step were complete.
        const Cell *next = (const Cell *)from + (step + 1) % s.longest * WIDTH;
        if (thread < WIDTH) board.due[((step + 1) & 1) * CHAIN + thread] = next[thread];
        return;
    }
    float *to = (float *)ring;
#pragma unroll 1
    for (int i = thread; i < s.longest * WIDTH * CELL_FLOATS; i += blockDim.x) to[i] = from[i];
}

#endif
