// row_sum, column_sum, sub, mul.
#include "cpu.h"
#include "functions.h"

// Values of a row.
typedef struct {
    int64_t index, first_column;
    float scalar_5;
    float x_3;
    float x_4;
    float sum_10;
    float sum_11;
    float mul_12;
    float mul_13;
    const float *at_0;
    const float *at_1;
    const float *at_2;
    float *to_0;
    float *partials_19;
    float *partials_20;
    int large, nontemporal;
} Row;

INLINE void pass_0(const Row *row, int64_t c, int64_t count, vf *sum_10, vf *sum_11) {
    v_prefetch(row->at_1 + c, row->large);
    v_prefetch(row->at_0 + c, row->large);
    const vf x_1 = v_load_first(row->at_1 + c, count);
    const vf x_2 = v_load_first(row->at_2 + c, count);
    const vf mul_8 = x_1 * x_2;
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf sub_6 = x_0 - row->x_3;
    const vf mul_7 = sub_6 * row->x_4;
    const vf mul_9 = mul_8 * mul_7;
    const vf mul_18 = x_1 * mul_7;
    *sum_10 += v_first_of(mul_8, count, 0.0f);
    *sum_11 += v_first_of(mul_9, count, 0.0f);
    v_store_first(row->partials_19 + c, v_load_first(row->partials_19 + c, count) + mul_18, count);
    v_store_first(row->partials_20 + c, v_load_first(row->partials_20 + c, count) + x_1, count);
}

INLINE void pass_1(const Row *row, int64_t c, int64_t count) {
    const vf x_1 = v_load_first(row->at_1 + c, count);
    const vf x_2 = v_load_first(row->at_2 + c, count);
    const vf mul_8 = x_1 * x_2;
    const vf sub_15 = mul_8 - row->mul_12;
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf sub_6 = x_0 - row->x_3;
    const vf mul_7 = sub_6 * row->x_4;
    const vf mul_14 = mul_7 * row->mul_13;
    const vf sub_16 = sub_15 - mul_14;
    const vf mul_17 = sub_16 * row->x_4;
    v_store_past(row->to_0 + c, mul_17, count, row->nontemporal);
}

KERNEL(row_sum_column_sum_sub_a8615c8c, args, block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t column_blocks = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    const float *in1 = ARG_READ(args, 7, float);
    const int64_t in1_row_0 = ARG_INT(args, 8);
    const float *in2 = ARG_READ(args, 9, float);
    const float *in3 = ARG_READ(args, 10, float);
    const int64_t in3_row_0 = ARG_INT(args, 11);
    const float *in4 = ARG_READ(args, 12, float);
    const int64_t in4_row_0 = ARG_INT(args, 13);
    float *out5 = ARG_WRITE(args, 14, float);
    const int64_t out5_row_0 = ARG_INT(args, 15);
    float *out6 = ARG_WRITE(args, 16, float);
    float *out7 = ARG_WRITE(args, 17, float);
    const float number_0 = ARG_FLOAT(args, 18);
    const int64_t column_block = block % column_blocks, row_block = block / column_blocks;
    const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;
    const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    Row row = {.first_column = first_column};
    row.large = is_large(rows * columns);
    row.nontemporal = row.large && is_lines(out5 + first_column, rows > 1 ? out5_row_0 : 0);
    row.scalar_5 = number_0;
    row.partials_19 = out6 + row_block * columns + first_column;
    for (int64_t c = 0; c < extent; c++) row.partials_19[c] = 0.0f;
    row.partials_20 = out7 + row_block * columns + first_column;
    for (int64_t c = 0; c < extent; c++) row.partials_20[c] = 0.0f;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out5 + row_0 * out5_row_0 + row.first_column;
        row.x_3 = *(in3 + row_0 * in3_row_0);
        row.x_4 = *(in4 + row_0 * in4_row_0);
        row.at_1 = in1 + row_0 * in1_row_0 + row.first_column;
        row.at_2 = in2 + row.first_column;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        vf sum_10[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
        vf sum_11[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
        {
            int64_t c = 0;
            for (; c + 4 * LANES <= extent; c += 4 * LANES)
                for (int i = 0; i < 4; i++) pass_0(&row, c + i * LANES, LANES, &sum_10[i], &sum_11[i]);
            for (; c + LANES <= extent; c += LANES) pass_0(&row, c, LANES, &sum_10[0], &sum_11[0]);
            if (c < extent) pass_0(&row, c, extent - c, &sum_10[0], &sum_11[0]);
        }
        row.sum_10 = v_sum_wide((sum_10[0] + sum_10[1]) + (sum_10[2] + sum_10[3]));
        row.sum_11 = v_sum_wide((sum_11[0] + sum_11[1]) + (sum_11[2] + sum_11[3]));
        row.mul_12 = row.sum_10 * row.scalar_5;
        row.mul_13 = row.sum_11 * row.scalar_5;
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) pass_1(&row, c, LANES);
            if (c < extent) pass_1(&row, c, extent - c);
        }
    }
    if (row.nontemporal) v_fence();
}
