// The forward pass of one sequence a block: values, and what the backward pass needs, which is the
// rows of all boundaries, or with an interval the rows before each multiple of it.
#include "scan.h"

#include "forward.h"

enum { ARG_VALUE = ARG_PASS, ARG_ENTROPY };

// Keeps the `longest` rows before boundary t as checkpoint number t / interval.
static void keep_checkpoint(const Scan *s, int64_t t) {
    const int64_t floats = row_floats(s), first = (t / s->interval - 1) * s->longest;
    for (int64_t i = 0; i < s->longest; i++) {
        const int64_t n = t - s->longest + i;
        memcpy(s->checkpoints + (first + i) * floats, row_of(s, n), floats * sizeof(float));
        memcpy(s->checkpoint_offsets + 2 * (first + i), offset_of(s, n), 2 * sizeof(double));
    }
}

static void write_value(const Scan *s, const uint64_t *args, uint32_t block) {
    const float *row = row_of(s, s->end);
    const double *offset = offset_of(s, s->end);
    float total = 0.0f, moment = 0.0f, most = 2 * ZERO;
    for (int64_t c = 0; c < s->labels; c++) most = row[c] > most ? row[c] : most;
    for (int64_t c = 0; SEMIRING != MAX && c < s->labels; c++) {
        const float l = row[c] - most, p = exp_one(l);
        total += p;
        if (SEMIRING == ENTROPY) moment += p * (row[s->pitch + c] - l);
    }
    const float log = SEMIRING == MAX ? 0.0f : log_one(total);
    ARG_WRITE(args, ARG_VALUE, float)[block] = (float)(offset[0] + most + log);
    if (SEMIRING == ENTROPY)
        ARG_WRITE(args, ARG_ENTROPY, float)[block] = (float)(offset[1] + (moment / total + log));
}

KERNEL(semicrf_forward, args, block) {
    Scan s = scan_of(args, block);
    place_messages(&s);
    prepare_tables(&s);
    begin(&s);
    for (int64_t t = 1; t <= s.end; t++) {
        advance(&s, t);
        if (s.checkpoints != 0 && (t + 1) % s.interval == 0 && t < s.end) keep_checkpoint(&s, t + 1);
    }
    write_value(&s, args, block);
}
