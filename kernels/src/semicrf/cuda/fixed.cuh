// Longer segments with a fixed transition: all from one step share its message, and differ by a bias.
#ifndef SWEEPER_SEMICRF_FIXED_CUH
#define SWEEPER_SEMICRF_FIXED_CUH

#include "chain.cuh"

// Adds the message of `step` to the cells of the steps it reaches by more than one boundary. The
// threads of a label take every `stride`-th duration, from `first` on. Cells are a ring of `longest`
// rows; the first term of a cell begins it.
DEVICE void push_message(const Sequence &s, const Board &board, const float *biases, Cell *ring, int slot,
                         int step, int o, int first, int stride) {
    if (o >= s.labels) return;
    const Published from = board.published[(step & 1) * CHAIN + o];
    Term x = {from.whole, from.part, 0.0f, 0.0f};
    x.part += IS_MAX ? from.sum : log2_fast(from.sum);
    if (HAS_ENTROPY) {
        x.entropy_whole = board.entropy_wholes[step & 1];
        x.entropy = board.published_entropies[(step & 1) * CHAIN + o];
    }
    const float part = x.part;
    const int last = min(s.longest, s.end - step);
#pragma unroll 4
    for (int k = first; k <= last; k += stride) {
        int to = slot + k;
        if (to >= s.longest) to -= s.longest;
        Cell &cell = ring[to * WIDTH + o];
        x.part = part + biases[(k - 1) * WIDTH + o];
        if (k == s.longest || step == 0) {
            begin_cell(cell, x);
        } else {
            Cell sum = cell;
            add_to_cell(sum, x);
            cell = sum;
        }
    }
}

#endif
