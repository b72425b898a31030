// The floor of the log semiring over materialized edges: every edge that the forward pass needs is
// read once, and its exponential taken once. What a forward pass takes beyond this is its overhead.
#include "cpu.h"
#include "elementary.h"

enum { ARG_DURATIONS, ARG_LABELS, ARG_LONGEST, ARG_FIRST_INDEX, ARG_ENDS, ARG_EDGES, ARG_SUMS };

KERNEL(semicrf_exp_floor, args, block) {
    const int64_t cell = ARG_INT(args, ARG_LABELS) * ARG_INT(args, ARG_LABELS);
    const int64_t step = ARG_INT(args, ARG_DURATIONS) * cell, end = ARG_INT(args, ARG_ENDS);
    const int64_t longest = ARG_INT(args, ARG_LONGEST), first = ARG_INT(args, ARG_FIRST_INDEX) * cell;
    const float *edges = ARG_READ(args, ARG_EDGES, float) + block * end * step;
    vf sums[4] = {};
    for (int64_t n = 0; n < end; n++) {
        const int64_t count = (longest < end - n ? longest : end - n) * cell;
        const float *from = edges + n * step + first;
        int64_t i = 0;
        for (; i + 4 * LANES <= count; i += 4 * LANES)
            for (int j = 0; j < 4; j++) sums[j] += v_exp_within(v_load(from + i + j * LANES));
        for (; i + LANES <= count; i += LANES) sums[0] += v_exp_within(v_load(from + i));
        if (i < count) sums[1] += v_exp_within(v_load_part(from + i, count - i, EXP_LEAST));
    }
    ARG_WRITE(args, ARG_SUMS, float)[block] = v_sum(sums[0] + sums[1] + sums[2] + sums[3]);
}
