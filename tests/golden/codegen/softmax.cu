// row_max, exp, row_sum, sub, div.
#include "functions.cuh"

constexpr int WIDTH = 64, GROUPS = 2, CHUNKS = 2;
constexpr int THREADS = WIDTH * GROUPS;
constexpr int WARPS = (THREADS + 31) / 32;

KERNEL(row_max_exp_row_sum_6afa4fa1, THREADS)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *in0, int64 in0_row_0, float *__restrict__ out1, int64 out1_row_0) {
    await_launches();
    constexpr bool is_wide = true;
    const int lane = threadIdx.x % WIDTH, group = threadIdx.x / WIDTH;
    constexpr int64 first = 0;
    const int here = (int)columns;
    const int64 begin = (int64)blockIdx.x * GROUPS, end = rows;
    SHARED(shared);
    constexpr int SLOTS = 1 * WARPS;
    int turn = 0;
    const int64 base = begin;
    if (base < end) {
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
        {
            float *cells = shared + turn;
            turn ^= SLOTS;
            if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = amax_1;
            __syncthreads();
            amax_1 = reduce_warps<Max, WIDTH>(cells + 0 * WARPS);
        }
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
            float *cells = shared + turn;
            turn ^= SLOTS;
            if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_4;
            __syncthreads();
            sum_4 = reduce_warps<Sum, WIDTH>(cells + 0 * WARPS);
        }
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
