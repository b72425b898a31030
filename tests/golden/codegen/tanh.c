// tanh.
#include "cpu.h"
#include "functions.h"

// What a row's columns have in common.
typedef struct {
    int64_t index, first;
    const float *at_0;
    float *to_0;
    int large, nontemporal;
} Row;

INLINE void pass_0(const Row *row, int64_t c, int64_t count) {
    v_prefetch(row->at_0 + c, row->large);
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf tanh_1 = v_tanh(x_0);
    v_store_past(row->to_0 + c, tanh_1, count, row->nontemporal);
}

KERNEL(tanh_58f93f89, args, block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t pieces = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    float *out1 = ARG_WRITE(args, 7, float);
    const int64_t out1_row_0 = ARG_INT(args, 8);
    const int64_t piece = block % pieces, share = block / pieces;
    const int64_t first = piece * block_columns, begin = share * block_rows;
    const int64_t here = columns - first < block_columns ? columns - first : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    Row row = {.first = first};
    row.large = is_large(rows * columns);
    row.nontemporal = row.large && is_lines(out1 + first, rows > 1 ? out1_row_0 : 0);
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out1 + row_0 * out1_row_0 + row.first;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first;
        {
            int64_t c = 0;
            for (; c + LANES <= here; c += LANES) pass_0(&row, c, LANES);
            if (c < here) pass_0(&row, c, here - c);
        }
    }
    if (row.nontemporal) v_fence();
}
