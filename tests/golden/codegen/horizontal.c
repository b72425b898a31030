// Horizontal fusion of 4 kernels.
#include "cpu.h"
#include "functions.h"

// column_sum, add.
// Values of a row.
typedef struct {
    int64_t index, first_column;
    const float *at_0;
    const float *at_2;
    float *to_0;
    float *partials_1;
} m0_Row;

INLINE void m0_pass_0(const m0_Row *row, int64_t c, int64_t count) {
    const vf x_0 = v_load_first(row->at_0 + c, count);
    v_store_first(row->partials_1 + c, v_load_first(row->partials_1 + c, count) + x_0, count);
}

INLINE void m0_finish(const m0_Row *row, int64_t c, int64_t count) {
    const vf sum_1 = v_load_first(row->partials_1 + c, count);
    const vf x_2 = v_load_first(row->at_2 + c, count);
    const vf add_3 = x_2 + sum_1;
    v_store_first(row->to_0 + c, add_3, count);
}

static void m0_run(const uint64_t *args, uint32_t block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t column_blocks = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    const float *in1 = ARG_READ(args, 7, float);
    float *out2 = ARG_WRITE(args, 8, float);
    const int64_t column_block = block % column_blocks, row_block = block / column_blocks;
    const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;
    const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    m0_Row row = {.first_column = first_column};
    float part_1[1024];
    row.partials_1 = part_1;
    for (int64_t c = 0; c < extent; c++) row.partials_1[c] = 0.0f;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) m0_pass_0(&row, c, LANES);
            if (c < extent) m0_pass_0(&row, c, extent - c);
        }
    }
    row.to_0 = out2 + row.first_column;
    row.at_2 = in1 + row.first_column;
    int64_t c = 0;
    for (; c + LANES <= extent; c += LANES) m0_finish(&row, c, LANES);
    if (c < extent) m0_finish(&row, c, extent - c);
}

// mul, sub.
// Values of a row.
typedef struct {
    int64_t index, first_column;
    float scalar_2;
    const float *at_0;
    const float *at_1;
    float *to_0;
    int large, nontemporal;
} m1_Row;

INLINE void m1_pass_0(const m1_Row *row, int64_t c, int64_t count) {
    v_prefetch(row->at_0 + c, row->large);
    v_prefetch(row->at_1 + c, row->large);
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf x_1 = v_load_first(row->at_1 + c, count);
    const vf mul_3 = x_1 * row->scalar_2;
    const vf sub_4 = x_0 - mul_3;
    v_store_past(row->to_0 + c, sub_4, count, row->nontemporal);
}

static void m1_run(const uint64_t *args, uint32_t block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t column_blocks = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    const float *in1 = ARG_READ(args, 7, float);
    const int64_t in1_row_0 = ARG_INT(args, 8);
    float *out2 = ARG_WRITE(args, 9, float);
    const int64_t out2_row_0 = ARG_INT(args, 10);
    const float number_0 = ARG_FLOAT(args, 11);
    const int64_t column_block = block % column_blocks, row_block = block / column_blocks;
    const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;
    const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    m1_Row row = {.first_column = first_column};
    row.large = is_large(rows * columns);
    row.nontemporal = row.large && is_lines(out2 + first_column, rows > 1 ? out2_row_0 : 0);
    row.scalar_2 = number_0;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out2 + row_0 * out2_row_0 + row.first_column;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        row.at_1 = in1 + row_0 * in1_row_0 + row.first_column;
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) m1_pass_0(&row, c, LANES);
            if (c < extent) m1_pass_0(&row, c, extent - c);
        }
    }
    if (row.nontemporal) v_fence();
}

KERNEL(horizontal_4_column_sum_add_mul_f298cffd, args, block) {
    if (block < ARG_INT(args, 0)) { m0_run(args + 3, block); return; }
    if (block < ARG_INT(args, 1)) { m1_run(args + 12, block - (uint32_t)ARG_INT(args, 0)); return; }
    if (block < ARG_INT(args, 2)) { m1_run(args + 24, block - (uint32_t)ARG_INT(args, 1)); return; }
    m1_run(args + 36, block - (uint32_t)ARG_INT(args, 2));
}
