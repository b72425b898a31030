// erf, add, mul.
#include "cpu.h"
#include "functions.h"

// Values of a row.
typedef struct {
    int64_t index, first_column;
    const float *at_0;
    const float *at_1;
    float *to_0;
    int large, nontemporal;
} Row;

INLINE void pass_0(const Row *row, int64_t c, int64_t count) {
    v_prefetch(row->at_0 + c, row->large);
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf x_1 = v_load_first(row->at_1 + c, count);
    const vf add_2 = x_0 + x_1;
    const vf mul_9 = add_2 * 0.5f;
    const vf mul_6 = add_2 * 0.70710677f;
    const vf erf_7 = v_erf(mul_6);
    const vf add_8 = erf_7 + 1.0f;
    const vf mul_10 = mul_9 * add_8;
    v_store_past(row->to_0 + c, mul_10, count, row->nontemporal);
}

KERNEL(erf_add_mul_cf1e4d0e, args, block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t column_blocks = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    const float *in1 = ARG_READ(args, 7, float);
    float *out2 = ARG_WRITE(args, 8, float);
    const int64_t out2_row_0 = ARG_INT(args, 9);
    const int64_t column_block = block % column_blocks, row_block = block / column_blocks;
    const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;
    const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    Row row = {.first_column = first_column};
    row.large = is_large(rows * columns);
    row.nontemporal = row.large && is_lines(out2 + first_column, rows > 1 ? out2_row_0 : 0);
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out2 + row_0 * out2_row_0 + row.first_column;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        row.at_1 = in1 + row.first_column;
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) pass_0(&row, c, LANES);
            if (c < extent) pass_0(&row, c, extent - c);
        }
    }
    if (row.nontemporal) v_fence();
}
