// row_max, exp, row_sum, sub, div.
#include "functions.cuh"

constexpr int ROW_THREADS = 64, ROW_GROUPS = 2, VECTORS = 2;
constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
constexpr int WARPS = (THREADS + 31) / 32;

KERNEL(row_max_exp_row_sum_1ad5b5fd, THREADS)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, int64 in0_row_0, float *__restrict__ out1, int64 out1_row_0) {
    grid_dependency_wait();
    constexpr bool is_vectorized = true;
    const int lane = threadIdx.x % ROW_THREADS, group = threadIdx.x / ROW_THREADS;
    constexpr int64 first_column = 0;
    const int extent = (int)columns;
    const int64 begin = (int64)blockIdx.x * ROW_GROUPS, end = rows;
    SHARED(shared);
    constexpr int SLOTS = 1 * WARPS;
    int set = 0;
    const int64 base = begin;
    if (base < end) {
        const bool is_in_range = base + group < end;
        const int64 r = is_in_range ? base + group : end - 1;
        const int64 row_0 = r;
        float *to_0 = out1 + row_0 * out1_row_0 + first_column;
        const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
        float amax_1 = Max::identity();
        float x_0[VECTORS][4];
        {
            load_vectors<ROW_THREADS>(x_0, at_0, lane, extent, is_vectorized);
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int c = 4 * (lane + ROW_THREADS * k) + j;
                    if (c < extent) amax_1 = f_max(amax_1, x_0[k][j]);
                }
            }
        }
        amax_1 = reduce_lanes<Max, ROW_THREADS>(amax_1);
        {
            float *slots = shared + set;
            set ^= SLOTS;
            if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = amax_1;
            __syncthreads();
            amax_1 = reduce_warps<Max, ROW_THREADS>(slots + 0 * WARPS);
        }
        float sum_4 = 0.0f;
        float exp_3[VECTORS][4];
        {
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int c = 4 * (lane + ROW_THREADS * k) + j;
                    const float sub_2 = x_0[k][j] - amax_1;
                    exp_3[k][j] = expf(sub_2);
                    if (c < extent) sum_4 = sum_4 + exp_3[k][j];
                }
            }
        }
        sum_4 = reduce_lanes<Sum, ROW_THREADS>(sum_4);
        {
            float *slots = shared + set;
            set ^= SLOTS;
            if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = sum_4;
            __syncthreads();
            sum_4 = reduce_warps<Sum, ROW_THREADS>(slots + 0 * WARPS);
        }
        {
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
                float vector_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float div_5 = divide(exp_3[k][j], sum_4);
                    vector_0[j] = div_5;
                }
                store_vector<ROW_THREADS>(to_0, vector_0, lane, k, is_in_range ? extent : 0, is_vectorized);
            }
        }
    }
}
