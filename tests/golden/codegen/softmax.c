// row_max, exp, row_sum, sub, div.
#include "cpu.h"
#include "functions.h"

// Values of a row.
typedef struct {
    int64_t index, first_column;
    float amax_1;
    float sum_4;
    const float *at_0;
    float *to_0;
    float *kept_3;
    int large, nontemporal;
} Row;

INLINE void pass_0(const Row *row, int64_t c, int64_t count, vf *amax_1) {
    v_prefetch(row->at_0 + c, row->large);
    const vf x_0 = v_load_first(row->at_0 + c, count);
    *amax_1 = v_max(v_first_of(x_0, count, -__builtin_inff()), *amax_1);
}

INLINE void pass_1(const Row *row, int64_t c, int64_t count, vf *sum_4) {
    const vf x_0 = v_load_first(row->at_0 + c, count);
    const vf sub_2 = x_0 - row->amax_1;
    const vf exp_3 = v_e_to(sub_2);
    v_store_first(row->kept_3 + c, exp_3, count);
    *sum_4 += v_first_of(exp_3, count, 0.0f);
}

INLINE void pass_2(const Row *row, int64_t c, int64_t count) {
    const vf exp_3 = v_load_first(row->kept_3 + c, count);
    const vf div_5 = exp_3 / row->sum_4;
    v_store_past(row->to_0 + c, div_5, count, row->nontemporal);
}

KERNEL(row_max_exp_row_sum_85d11cb8, args, block) {
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
    float kept_3[512];
    row.kept_3 = kept_3;
    for (int64_t r = begin; r < end; r++) {
        const int64_t row_0 = r;
        row.index = r;
        row.to_0 = out1 + row_0 * out1_row_0 + row.first_column;
        row.at_0 = in0 + row_0 * in0_row_0 + row.first_column;
        vf amax_1[4] = {v_all(-__builtin_inff()), v_all(-__builtin_inff()), v_all(-__builtin_inff()), v_all(-__builtin_inff())};
        {
            int64_t c = 0;
            for (; c + 4 * LANES <= extent; c += 4 * LANES)
                for (int i = 0; i < 4; i++) pass_0(&row, c + i * LANES, LANES, &amax_1[i]);
            for (; c + LANES <= extent; c += LANES) pass_0(&row, c, LANES, &amax_1[0]);
            if (c < extent) pass_0(&row, c, extent - c, &amax_1[0]);
        }
        row.amax_1 = v_greatest(v_max(v_max(amax_1[0], amax_1[1]), v_max(amax_1[2], amax_1[3])));
        vf sum_4[4] = {v_all(0.0f), v_all(0.0f), v_all(0.0f), v_all(0.0f)};
        {
            int64_t c = 0;
            for (; c + 4 * LANES <= extent; c += 4 * LANES)
                for (int i = 0; i < 4; i++) pass_1(&row, c + i * LANES, LANES, &sum_4[i]);
            for (; c + LANES <= extent; c += LANES) pass_1(&row, c, LANES, &sum_4[0]);
            if (c < extent) pass_1(&row, c, extent - c, &sum_4[0]);
        }
        row.sum_4 = v_sum_wide((sum_4[0] + sum_4[1]) + (sum_4[2] + sum_4[3]));
        {
            int64_t c = 0;
            for (; c + LANES <= extent; c += LANES) pass_2(&row, c, LANES);
            if (c < extent) pass_2(&row, c, extent - c);
        }
    }
    if (row.nontemporal) v_fence();
}
