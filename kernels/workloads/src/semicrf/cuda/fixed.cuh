// Longer segments with a fixed transition: all from one step share its message, and differ by a
// bias.
#ifndef SWEEPER_SEMICRF_FIXED_CUH
#define SWEEPER_SEMICRF_FIXED_CUH

#include "chain.cuh"

constexpr int AT_ONCE = HAS_ENTROPY ? 2 : 4;

// Adds a message to up to COUNT cells of a label, for durations k, k + stride, ... to `last`.
template <int COUNT>
DEVICE void push_some(Cell *own, const float *bias, unsigned slot, unsigned longest, bool is_start, Term x, float part,
                      int k, int stride, int last) {
    Cell cells[COUNT];
    float parts[COUNT];
    unsigned at[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        const int mine = COUNT == 1 ? k : min(k + j * stride, last);
        const unsigned to = slot + mine;
        at[j] = min(to, to - longest) * WIDTH;  // around the ring
        parts[j] = part + bias[mine * WIDTH];
        cells[j] = own[at[j]];
    }
    if (is_start || k + (COUNT - 1) * stride >= (int)longest) {
#pragma unroll
        for (int j = 0; j < COUNT; j++) {
            x.part = parts[j];
            if (is_start || k + j * stride >= (int)longest) cells[j] = cell_for(x);
        }
    }
    add_to_cells(cells, x, parts);
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        if (COUNT == 1 || k + j * stride <= last) own[at[j]] = cells[j];
}

// The message of `step` to label `o`, without the bias.
DEVICE Term term_of(const Sequence &s, const Board &board, int step, int o) {
    const Published from = board.published[(step & 1) * CHAIN + o];
    const int scores = (step & 3) * CHAIN + o;
    Term x = {(float)from.exponent - board.factors[scores].whole,
              (IS_MAX ? from.sum : log2_fast(from.sum)) - board.parts[scores], 0.0f, 0.0f};
    if (HAS_ENTROPY) {
        x.entropy_whole = board.entropy_wholes[step & 1];
        x.entropy = board.published_entropies[(step & 1) * CHAIN + o];
    }
    return x;
}

// Adds the message of `step` to the cells of the steps it reaches by more than one boundary. The
// threads of a label take every `stride`-th duration, from `first` on. Cells are a ring of
// `longest` rows; the first term of a cell begins it.
DEVICE void push_message(const Sequence &s, const Board &board, const float *biases, Cell *ring, int slot,
                         int step, int o, int first, int stride) {
    if (o >= s.labels) return;
    const Term x = term_of(s, board, step, o);
    const int last = min(s.longest, s.end - step);
    Cell *own = ring + o;
    const float *bias = biases + o - WIDTH;
    const unsigned longest = s.longest;
    if (first + stride > last) {
        if (first <= last) push_some<1>(own, bias, slot, longest, step == 0, x, x.part, first, stride, last);
        return;
    }
#pragma unroll 1
    for (int k = first; k <= last; k += AT_ONCE * stride)
        push_some<AT_ONCE>(own, bias, slot, longest, step == 0, x, x.part, k, stride, last);
}

#endif
