// row_max, exp, row_sum, sub, div.
#include "functions.cuh"

constexpr int WIDTH = 32, GROUPS = 4, CHUNKS = 4;
constexpr int THREADS = WIDTH * GROUPS;

KERNEL(row_max_exp_row_sum_26355482, THREADS)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *__restrict__ in0, int64 in0_row_0, float *__restrict__ out1, int64 out1_row_0) {
    await_launches();
    const bool is_wide = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(out1) && out1_row_0 % 4 == 0;
    const int lane = threadIdx.x % WIDTH, group = threadIdx.x / WIDTH;
    const unsigned piece = blockIdx.x % (unsigned)pieces, share = blockIdx.x / (unsigned)pieces;
    const int64 first = piece * block_columns, begin = share * block_rows;
    const int here = (int)min(columns - first, block_columns);
    const int64 end = min(begin + block_rows, rows);
    for (int64 base = begin; base < end; base += GROUPS) {
        const bool is_own = base + group < end;
        const int64 r = is_own ? base + group : end - 1;
        const int64 row_0 = r;
        float *to_0 = out1 + row_0 * out1_row_0 + first;
        const float *at_0 = in0 + row_0 * in0_row_0 + first;
        float amax_1 = Max::none();
        float x_0[CHUNKS][4];
        {
            load_chunks<WIDTH>(x_0, at_0, lane, here, is_wide);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int c = 4 * (lane + WIDTH * k) + j;
                    if (c < here) amax_1 = f_max(amax_1, x_0[k][j]);
                }
            }
        }
        amax_1 = reduce_lanes<Max, WIDTH>(amax_1);
        float sum_4 = 0.0f;
        float exp_3[CHUNKS][4];
        {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int c = 4 * (lane + WIDTH * k) + j;
                    const float sub_2 = x_0[k][j] - amax_1;
                    exp_3[k][j] = expf(sub_2);
                    if (c < here) sum_4 = sum_4 + exp_3[k][j];
                }
            }
        }
        sum_4 = reduce_lanes<Sum, WIDTH>(sum_4);
        {
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                float chunk_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float div_5 = divide(exp_3[k][j], sum_4);
                    chunk_0[j] = div_5;
                }
                store_chunk<WIDTH>(to_0, chunk_0, lane, k, is_own ? here : 0, is_wide);
            }
        }
    }
}
