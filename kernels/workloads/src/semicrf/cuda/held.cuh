// Cells in registers, for longer segments with a fixed transition.
//
// A row of cells belongs to one boundary of the next `longest`. Rows are dealt out to groups of
// WIDTH threads, a label a thread, so that a thread has up to HELD cells whose durations change
// from step to step while the cells stay where they are. A row that is complete is left in shared
// memory for the chain.
#ifndef SWEEPER_SEMICRF_HELD_CUH
#define SWEEPER_SEMICRF_HELD_CUH

#include "fixed.cuh"

constexpr int ROWS_HELD = HELD > 0 ? HELD : 1;
constexpr float SOON_FAR = 0.6f * MOST_ROOM;
constexpr float OUT_OF_REACH = 1e30f;  // scale of cells that do not exist: nothing is near it

// A place that goes around the rows: slot = row * groups + group.
struct Cursor {
    int slot, row, group;

    METHOD void set(int to, int groups) { slot = to, row = to / groups, group = to % groups; }
    METHOD void advance(int longest, int groups) {
        group++, slot++;
        if (group == groups) group = 0, row++;
        if (slot == longest) slot = row = group = 0;
    }
};

// What a thread holds.
struct Held {
    Cell cells[ROWS_HELD];
    int label, group, groups;
    Cursor fresh, due;  // the row that begins in a step, and the one that is complete after it
};

// Biases go around the rows, too: that of the segment from a step to slot j is in row j - the
// step's slot + `longest`, so that no thread has to find out its duration.
DEVICE int bias_rows(const Sequence &s, int pushers) { return s.longest + HELD * (pushers / WIDTH); }
constexpr int FIRST_BIAS = HELD > 0;  // the row of duration 1
DEVICE int duration_of_row(const Sequence &s, int row) { return (row + s.longest - 1) % s.longest + 1; }

// A row's cell among those of a thread. Not by index: what has one is not in a register.
DEVICE Cell chosen(const Cell (&cells)[ROWS_HELD], int row) {
    Cell cell;
    int whole = 0, sum = 0;
#if SEMIRING == ENTROPY
    int entropy = 0, moment = 0;
#endif
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        const int mask = r == row ? -1 : 0;
        whole |= __float_as_int(cells[r].whole) & mask;
        sum |= __float_as_int(cells[r].sum) & mask;
#if SEMIRING == ENTROPY
        entropy |= __float_as_int(cells[r].entropy) & mask;
        moment |= __float_as_int(cells[r].moment) & mask;
#endif
    }
    cell.whole = __int_as_float(whole), cell.sum = __int_as_float(sum);
#if SEMIRING == ENTROPY
    cell.entropy = __int_as_float(entropy), cell.moment = __int_as_float(moment);
#endif
    return cell;
}

// Takes up the cells of a scan that goes on at `step`, or none.
DEVICE void begin_held(const Sequence &s, Held &h, const float *rows, int pusher, int pushers, int step) {
    h.label = pusher % WIDTH, h.group = pusher / WIDTH, h.groups = pushers / WIDTH;
    h.fresh.set(step % s.longest, h.groups);
    h.due.set((step + 2) % s.longest, h.groups);
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        const int slot = r * h.groups + h.group;
        h.cells[r] = {};
        h.cells[r].whole = OUT_OF_REACH;
        if (rows != 0 && slot < s.longest) h.cells[r] = ((const Cell *)rows)[slot * WIDTH + h.label];
    }
}

// Leaves all cells in memory.
DEVICE void keep_held(const Sequence &s, const Held &h, float *rows) {
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        const int slot = r * h.groups + h.group;
        if (slot < s.longest) ((Cell *)rows)[slot * WIDTH + h.label] = h.cells[r];
    }
}

// Weights of labels grow alike, so the cells of a row need greater scales at about the same step:
// where one needs it, all do that will soon. By whole warps.
DEVICE void lift_together(Cell (&cells)[ROWS_HELD], const Term &x, const float (&parts)[ROWS_HELD]) {
    if (IS_MAX) return;
    bool is_far = false;
#pragma unroll
    for (int r = 0; r < HELD; r++) is_far |= (x.whole - cells[r].whole) + parts[r] > MOST_ROOM;
    if (!warp_any(is_far)) return;
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        const float d = (x.whole - cells[r].whole) + parts[r];
        cells[r] = lifted(cells[r], d > SOON_FAR ? rintf(0.5f * (d + ROOM)) : 0.0f);
    }
}

// Adds the message of `step` to all cells, and leaves those of the step after the next. Threads of
// labels that do not exist take part, with nothing. The row of the next step is complete: what it
// is added does not count, as it begins anew when it is next reached.
DEVICE void push_held(const Sequence &s, const Board &board, const float *biases, Held &h, int step) {
    const Term x = term_of(s, board, step, h.label);
    const float *bias = biases + (h.group + s.longest - h.fresh.slot) * WIDTH + h.label;
    const int stride = h.groups * WIDTH;
    float parts[ROWS_HELD];
#pragma unroll
    for (int r = 0; r < HELD; r++) parts[r] = x.part + bias[r * stride];
    if (step == 0 || h.fresh.group == h.group) {
        Term first = x;
#pragma unroll
        for (int r = 0; r < HELD; r++) {
            first.part = parts[r];
            const bool begins = step == 0 ? r * h.groups + h.group < s.longest : r == h.fresh.row;
            if (begins) h.cells[r] = cell_for(first);
        }
    }
    lift_together(h.cells, x, parts);
    add_terms(h.cells, x, parts);
    if (h.due.group == h.group) board.due[(step & 1) * CHAIN + h.label] = chosen(h.cells, h.due.row);
    h.fresh.advance(s.longest, h.groups);
    h.due.advance(s.longest, h.groups);
}

#endif
