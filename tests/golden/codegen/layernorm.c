// row_sum, rsqrt, mul, sub, add.
#include "cpu.h"
#include "functions.h"

// Values of a row.
typedef struct {
    int64_t index, first_column;
    float scalar_3;
    float scalar_4;
    float sum_5;
    float mul_6;
    float sum_9;
    float mul_10;
    float add_11;
    float rsqrt_12;
    const float *at_0;
    const float *at_1;
    const float *at_2;
    float *to_0;
    int large, nontemporal;
} Row;

INLINE void pass_0(const Row *row, int64_t c, int64_t count, vf *sum_5) {
    v_prefetch(row->at_0 + c, row->large);
    const vf x_0 = v_load_first(row->at_0 + c, count);
    *sum_5 += v_first_of(x_0, count, 0.0f);
}

INLINE void pass_1(const Row *row, int64_t c, int64_t count, vf *sum_9) {
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf sub_7 = x_0 - row->mul_6;
    const vf mul_8 = sub_7 * sub_7;
    *sum_9 += v_first_of(mul_8, count, 0.0f);
}

INLINE void pass_2(const Row *row, int64_t c, int64_t count) {
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf sub_7 = x_0 - row->mul_6;
    const vf mul_13 = sub_7 * row->rsqrt_12;
    const vf x_1 = v_load_first(row->at_1 + c, count);
    const vf mul_14 = mul_13 * x_1;
    const vf x_2 = v_load_first(row->at_2 + c, count);
    const vf add_15 = mul_14 + x_2;
    v_store_past(row->to_0 + c, add_15, count, row->nontemporal);
}

KERNEL(row_sum_rsqrt_mul_7c8059f3, args, block) {
    const int64_t columns = ARG_INT(args, 0);
    const int64_t rows = ARG_INT(args, 1);
    const int64_t block_rows = ARG_INT(args, 2);
    const int64_t block_columns = ARG_INT(args, 3);
    const int64_t column_blocks = ARG_INT(args, 4);
    const float *in0 = ARG_READ(args, 5, float);
    const int64_t in0_row_0 = ARG_INT(args, 6);
    const float *in1 = ARG_READ(args, 7, float);
    const float *in2 = ARG_READ(args, 8, float);
    float *out3 = ARG_WRITE(args, 9, float);
    const int64_t out3_row_0 = ARG_INT(args, 10);
    float *out4 = ARG_WRITE(args, 11, float);
    const int64_t out4_row_0 = ARG_INT(args, 12);
    float *out5 = ARG_WRITE(args, 13, float);
    const int64_t out5_row_0 = ARG_INT(args, 14);
    const float number_0 = ARG_FLOAT(args, 15);
    const float number_1 = ARG_FLOAT(args, 16);
    const int64_t column_block = block % column_blocks, row_block = block / column_blocks;
    const int64_t first_column = column_block * block_columns, begin = row_block * block_rows;
    const int64_t extent = columns - first_column < block_columns ? columns - first_column : block_columns;
    const int64_t end = rows - begin < block_rows ? rows : begin + block_rows;
    Row row = {.first_column = first_column};
    row.large = is_large(rows * columns);
    row.nontemporal = row.large && is_lines(out3 + first_column, rows > 1 ? out3_row_0 : 0);
    row.scalar_3 = number_0;
    row.scalar_4 = number_1;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out3 + row_0 * out3_row_0 + row.first_column;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        vf sum_5[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
        {
            int64_t c = 0;
            for (; c + 4 * LANES <= extent; c += 4 * LANES)
                for (int i = 0; i < 4; i++) pass_0(&row, c + i * LANES, LANES, &sum_5[i]);
            for (; c + LANES <= extent; c += LANES) pass_0(&row, c, LANES, &sum_5[0]);
            if (c < extent) pass_0(&row, c, extent - c, &sum_5[0]);
        }
        row.sum_5 = v_sum_wide((sum_5[0] + sum_5[1]) + (sum_5[2] + sum_5[3]));
        row.mul_6 = row.sum_5 * row.scalar_3;
        if (first_column == 0) *(out4 + row_0 * out4_row_0) = row.mul_6;
        vf sum_9[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
        {
            int64_t c = 0;
            for (; c + 4 * LANES <= extent; c += 4 * LANES)
                for (int i = 0; i < 4; i++) pass_1(&row, c + i * LANES, LANES, &sum_9[i]);
            for (; c + LANES <= extent; c += LANES) pass_1(&row, c, LANES, &sum_9[0]);
            if (c < extent) pass_1(&row, c, extent - c, &sum_9[0]);
        }
        row.sum_9 = v_sum_wide((sum_9[0] + sum_9[1]) + (sum_9[2] + sum_9[3]));
        row.mul_10 = row.sum_9 * row.scalar_3;
        row.add_11 = row.mul_10 + row.scalar_4;
        row.rsqrt_12 = s_rsqrt(row.add_11);
        if (first_column == 0) *(out5 + row_0 * out5_row_0) = row.rsqrt_12;
        row.at_1 = in1 + row.first_column;
        row.at_2 = in2 + row.first_column;
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) pass_2(&row, c, LANES);
            if (c < extent) pass_2(&row, c, extent - c);
        }
    }
    if (row.nontemporal) v_fence();
}
