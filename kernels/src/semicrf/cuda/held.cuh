// Cells in registers, for longer segments with a fixed transition.
//
// A row of cells belongs to one boundary of the next `longest`. Rows are dealt out to groups of WIDTH
// threads, a label a thread, so that a thread has up to HELD cells whose durations change from step to
// step while the cells stay where they are. A row that is complete is left in shared memory for the chain.
#ifndef SWEEPER_SEMICRF_HELD_CUH
#define SWEEPER_SEMICRF_HELD_CUH

#include "fixed.cuh"

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
    Cell cells[HELD > 0 ? HELD : 1];
    int label, group, groups;
    Cursor fresh, due;  // the row that begins in a step, and the one that is complete after it
};

// Takes up the cells of a scan that goes on at `step`, or none.
DEVICE void begin_held(const Sequence &s, Held &h, const float *rows, int pusher, int pushers, int step) {
    h.label = pusher % WIDTH, h.group = pusher / WIDTH, h.groups = pushers / WIDTH;
    h.fresh.set(step % s.longest, h.groups);
    h.due.set((step + 2) % s.longest, h.groups);
    if (rows == 0) return;
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        const int slot = r * h.groups + h.group;
        if (slot < s.longest) h.cells[r] = ((const Cell *)rows)[slot * WIDTH + h.label];
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

// Adds the message of `step` to the cells of the steps it reaches by more than one boundary, and leaves
// those of the step after the next.
DEVICE void push_held(const Sequence &s, const Board &board, const float *biases, Held &h, int step) {
    const Term x = term_of(s, board, step, h.label);
    const float *bias = biases + h.label - WIDTH;
    float parts[HELD > 0 ? HELD : 1];
#pragma unroll
    for (int r = 0; r < HELD; r++) {
        const int slot = r * h.groups + h.group, ahead = slot - h.fresh.slot;
        const int k = ahead > 0 ? ahead : ahead + s.longest;
        // The next row is complete, and rows beyond the last do not exist.
        const bool is_reached = k > 1 && slot < s.longest;
        parts[r] = is_reached ? x.part + bias[k * WIDTH] : 16.0f * NOTHING;
    }
    Term first = x;
    const bool begins = h.fresh.group == h.group;
    if (step == 0 || begins) {
#pragma unroll
        for (int r = 0; r < HELD; r++) {
            first.part = parts[r];
            if (step == 0 || r == h.fresh.row) h.cells[r] = cell_for(first);
        }
    }
    add_to_cells(h.cells, x, parts);
    if (h.due.group == h.group) {
#pragma unroll
        for (int r = 0; r < HELD; r++)
            if (r == h.due.row) board.due[(step & 1) * CHAIN + h.label] = h.cells[r];
    }
    h.fresh.advance(s.longest, h.groups);
    h.due.advance(s.longest, h.groups);
}

#endif
