// tanh.
#include "cpu.h"
#include "functions.h"

// Values of a row.
typedef struct {
    int64_t index, first_column;
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

KERNEL(tanh_a9a2646c, args, block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t column_blocks = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    float *out1 = ARG_WRITE(args, 7, float);
    const int64_t out1_row_0 = ARG_INT(args, 8);
    const int64_t column_block = block % column_blocks, row_block = block / column_blocks;
    const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;
    const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    Row row = {.first_column = first_column};
    row.large = is_large(rows * columns);
    row.nontemporal = row.large && is_lines(out1 + first_column, rows > 1 ? out1_row_0 : 0);
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out1 + row_0 * out1_row_0 + row.first_column;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) pass_0(&row, c, LANES);
            if (c < extent) pass_0(&row, c, extent - c);
        }
    }
    if (row.nontemporal) v_fence();
}
