// Gradients of transition and bias: the sequences' parts, added in order.
#include "cpu.h"

enum {
    ARG_BATCH, ARG_DURATIONS, ARG_LABELS, ARG_LONGEST, ARG_FIRST_INDEX, ARG_TABLES, ARG_PITCH,
    ARG_PARTS, ARG_TRANSITION = ARG_PARTS + 2, ARG_BIAS,
};

// Parts are rows of whole vectors: of destinations by duration, then by (table,) destination of
// sources.
KERNEL(semicrf_reduce, args, block) {
    (void)block;
    const int64_t batch = ARG_INT(args, ARG_BATCH), labels = ARG_INT(args, ARG_LABELS);
    const int64_t durations = ARG_INT(args, ARG_DURATIONS), longest = ARG_INT(args, ARG_LONGEST);
    const int64_t first = ARG_INT(args, ARG_FIRST_INDEX), tables = ARG_INT(args, ARG_TABLES);
    const int64_t pitch = ARG_INT(args, ARG_PITCH), part = ARG_INT(args, ARG_PARTS + 1);
    const float *parts = ARG_READ(args, ARG_PARTS, float);
    float *transition = ARG_WRITE(args, ARG_TRANSITION, float);
    float *bias = ARG_WRITE(args, ARG_BIAS, float);
    for (int64_t i = 0; i < durations * labels; i++) bias[i] = 0.0f;
    // One table, or one for each index of the duration axis.
    const int64_t kept = tables > 0 ? durations : 1, shift = tables > 0 ? first : 0;
    for (int64_t i = 0; i < kept * labels * labels; i++) transition[i] = 0.0f;
    for (int64_t b = 0; b < batch; b++) {
        const float *own = parts + b * part, *matrix = own + longest * pitch;
        for (int64_t k = 0; k < longest; k++)
            for (int64_t dst = 0; dst < labels; dst++)
                bias[(k + first) * labels + dst] += own[k * pitch + dst];
        for (int64_t table = 0; table < (tables > 0 ? longest : 1); table++)
            for (int64_t dst = 0; dst < labels; dst++)
                for (int64_t src = 0; src < labels; src++)
                    transition[((table + shift) * labels + src) * labels + dst] +=
                        matrix[(table * labels + dst) * pitch + src];
    }
}
