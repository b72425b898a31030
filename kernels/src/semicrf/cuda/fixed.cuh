// Longer segments with a fixed transition: all from one step share its message, and differ by a bias.
#ifndef SWEEPER_SEMICRF_FIXED_CUH
#define SWEEPER_SEMICRF_FIXED_CUH

#include "chain.cuh"

constexpr int AT_ONCE = HAS_ENTROPY ? 2 : 4;

// Adds the message of `step` to the cells of the steps it reaches by more than one boundary. The
// threads of a label take every `stride`-th duration, from `first` on. Cells are a ring of `longest`
// rows; the first term of a cell begins it.
DEVICE void push_message(const Sequence &s, const Board &board, const float *biases, Cell *ring, int slot,
                         int step, int o, int first, int stride) {
    if (o >= s.labels) return;
    const Published from = board.published[(step & 1) * CHAIN + o];
    const int scores = (step & 3) * CHAIN + o;
    Term x;
    x.whole = (float)from.exponent - board.factors[scores].whole;
    if (HAS_ENTROPY) {
        x.entropy_whole = board.entropy_wholes[step & 1];
        x.entropy = board.published_entropies[(step & 1) * CHAIN + o];
    }
    const float part = (IS_MAX ? from.sum : log2_fast(from.sum)) - board.parts[scores];
    const int last = min(s.longest, s.end - step);
    const float *bias = biases + o - WIDTH;
    Cell *own = ring + o;
    for (int k = first; k <= last; k += AT_ONCE * stride) {
        Cell cells[AT_ONCE];
        float parts[AT_ONCE];
        int at[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int mine = k + j * stride;
            at[j] = (slot + mine - (slot + mine >= s.longest ? s.longest : 0)) * WIDTH;
            if (mine > last) continue;
            cells[j] = own[at[j]];
            parts[j] = part + bias[mine * WIDTH];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const int mine = k + j * stride;
            if (mine > last) break;
            x.part = parts[j];
            if (mine == s.longest || step == 0) begin_cell(cells[j], x);
            else add_to_cell(cells[j], x);
            own[at[j]] = cells[j];
        }
    }
}

#endif
