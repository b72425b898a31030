// row_sum, column_sum, sub, mul.
#include "functions.cuh"

constexpr int ROW_THREADS = 64, ROW_GROUPS = 4, VECTORS = 2;
constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
constexpr int WARPS = (THREADS + 31) / 32;

KERNEL(row_sum_column_sum_sub_081aa070, THREADS, 3)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, int64 in0_row_0, const float *in1, int64 in1_row_0, const float *in2, const float *in3, int64 in3_row_0, const float *in4, int64 in4_row_0, float *__restrict__ out5, int64 out5_row_0, float *__restrict__ out6, float *__restrict__ out7, float number_0) {
    grid_dependency_wait();
    constexpr bool is_vectorized = true;
    const int lane = threadIdx.x % ROW_THREADS, group = threadIdx.x / ROW_THREADS;
    constexpr int64 first_column = 0;
    constexpr int extent = 4 * ROW_THREADS * VECTORS;
    const int64 begin = (int64)blockIdx.x * ROW_GROUPS, end = rows;
    const int64 step = (int64)gridDim.x * ROW_GROUPS;
    const unsigned row_block = blockIdx.x;
    SHARED(shared);
    constexpr int SLOTS = 2 * WARPS;
    int set = 0;
    const float scalar_5 = number_0;
    float sum_19[VECTORS][4];
#pragma unroll
    for (int i = 0; i < 4 * VECTORS; i++) sum_19[i / 4][i % 4] = 0.0f;
    float sum_20[VECTORS][4];
#pragma unroll
    for (int i = 0; i < 4 * VECTORS; i++) sum_20[i / 4][i % 4] = 0.0f;
    const float *at_2 = in2 + first_column;
    float x_2[VECTORS][4];
    load_vectors<ROW_THREADS>(x_2, at_2, lane, extent, is_vectorized);
    float next_0[VECTORS][4];
    float next_1[VECTORS][4];
    float next_3;
    float next_4;
    {
        const int64 r = min(begin + group, end - 1);
        const int64 row_0 = r;
        const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
        load_vectors<ROW_THREADS>(next_0, at_0, lane, extent, is_vectorized);
        const float *at_1 = in1 + row_0 * in1_row_0 + first_column;
        load_vectors<ROW_THREADS>(next_1, at_1, lane, extent, is_vectorized);
        next_3 = *(in3 + row_0 * in3_row_0);
        next_4 = *(in4 + row_0 * in4_row_0);
    }
    for (int64 base = begin; base < end; base += step) {
        const bool is_in_range = base + group < end;
        const int64 r = is_in_range ? base + group : end - 1;
        float x_0[VECTORS][4];
        copy_vectors(x_0, next_0);
        float x_1[VECTORS][4];
        copy_vectors(x_1, next_1);
        const float x_3 = next_3;
        const float x_4 = next_4;
        const int64 row_0 = r;
        if (const int64 next = min(base + step + group, end - 1); base + step < end) {
            const int64 r = next;
            const int64 row_0 = r;
            const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
            load_vectors<ROW_THREADS>(next_0, at_0, lane, extent, is_vectorized);
            const float *at_1 = in1 + row_0 * in1_row_0 + first_column;
            load_vectors<ROW_THREADS>(next_1, at_1, lane, extent, is_vectorized);
            next_3 = *(in3 + row_0 * in3_row_0);
            next_4 = *(in4 + row_0 * in4_row_0);
        }
        float *to_0 = out5 + row_0 * out5_row_0 + first_column;
        float sum_10 = 0.0f;
        float sum_11 = 0.0f;
        {
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int c = 4 * (lane + ROW_THREADS * k) + j;
                    const float mul_8 = x_1[k][j] * x_2[k][j];
                    const float sub_6 = x_0[k][j] - x_3;
                    const float mul_7 = sub_6 * x_4;
                    const float mul_9 = mul_8 * mul_7;
                    const float mul_18 = x_1[k][j] * mul_7;
                    if (c < extent) sum_10 = sum_10 + mul_8;
                    if (c < extent) sum_11 = sum_11 + mul_9;
                    if (is_in_range && c < extent) sum_19[k][j] = sum_19[k][j] + mul_18;
                    if (is_in_range && c < extent) sum_20[k][j] = sum_20[k][j] + x_1[k][j];
                }
            }
        }
        sum_10 = reduce_lanes<Sum, ROW_THREADS>(sum_10);
        sum_11 = reduce_lanes<Sum, ROW_THREADS>(sum_11);
        {
            float *slots = shared + set;
            set ^= SLOTS;
            if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = sum_10;
            if (threadIdx.x % 32 == 0) slots[1 * WARPS + threadIdx.x / 32] = sum_11;
            named_barrier_sync(1 + group, ROW_THREADS);
            sum_10 = reduce_warps<Sum, ROW_THREADS>(slots + 0 * WARPS);
            sum_11 = reduce_warps<Sum, ROW_THREADS>(slots + 1 * WARPS);
        }
        const float mul_12 = sum_10 * scalar_5;
        const float mul_13 = sum_11 * scalar_5;
        {
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
                float vector_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float mul_8 = x_1[k][j] * x_2[k][j];
                    const float sub_15 = mul_8 - mul_12;
                    const float sub_6 = x_0[k][j] - x_3;
                    const float mul_7 = sub_6 * x_4;
                    const float mul_14 = mul_7 * mul_13;
                    const float sub_16 = sub_15 - mul_14;
                    const float mul_17 = sub_16 * x_4;
                    vector_0[j] = mul_17;
                }
                store_vector<ROW_THREADS>(to_0, vector_0, lane, k, is_in_range ? extent : 0, is_vectorized);
            }
        }
    }
    reduce_groups<Sum, ROW_THREADS, ROW_GROUPS, VECTORS>(sum_19, shared, lane, group);
    reduce_groups<Sum, ROW_THREADS, ROW_GROUPS, VECTORS>(sum_20, shared, lane, group);
    if (group > 0) return;
#pragma unroll
    for (int k = 0; k < VECTORS; k++) {
        store_strided<ROW_THREADS>(out6 + row_block * columns + first_column, 1, sum_19[k], lane, k, extent);
        store_strided<ROW_THREADS>(out7 + row_block * columns + first_column, 1, sum_20[k], lane, k, extent);
    }
}
