// out[v] = sum of values[i] over all i with indices[i] = v; a block owns `block_rows` rows of the
// result.
#include "cpu.h"

KERNEL(scatter_add, args, block) {
    const float *restrict values = ARG_READ(args, 0, float);
    const int64_t *restrict indices = ARG_READ(args, 1, int64_t);
    float *restrict out = ARG_WRITE(args, 2, float);
    const int64_t count = ARG_INT(args, 3), rows = ARG_INT(args, 4);
    const int64_t columns = ARG_INT(args, 5), block_rows = ARG_INT(args, 6);
    const int64_t first = (int64_t)block * block_rows;
    const int64_t end = first + block_rows < rows ? first + block_rows : rows;
    for (int64_t i = first * columns; i < end * columns; i++) out[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] < first || indices[i] >= end) continue;
        const float *restrict from = values + i * columns;
        float *restrict to = out + indices[i] * columns;
        for (int64_t column = 0; column < columns; column++) to[column] += from[column];
    }
}
