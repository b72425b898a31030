// row_sum, rsqrt, mul, sub, add.
#include "functions.cuh"

constexpr int ROW_THREADS = 32, ROW_GROUPS = 1, VECTORS = 2, ROWS_PER_WARP = 4;
constexpr int THREADS = ROW_THREADS * ROW_GROUPS;

KERNEL(row_sum_rsqrt_mul_119a07bd, THREADS, 28)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *__restrict__ in0, int64 in0_row_0, const float *__restrict__ in1, const float *__restrict__ in2, float *__restrict__ out3, int64 out3_row_0, float *__restrict__ out4, int64 out4_row_0, float *__restrict__ out5, int64 out5_row_0, float number_0, float number_1) {
    constexpr bool is_vectorized = true;
    const int lane = threadIdx.x % ROW_THREADS;
    constexpr int64 first_column = 0;
    constexpr int extent = 4 * ROW_THREADS * VECTORS;
    const int64 begin = (int64)blockIdx.x * ROWS_PER_WARP;
    const float scalar_3 = number_0;
    const float scalar_4 = number_1;
    const float *at_1 = in1 + first_column;
    float x_1[VECTORS][4];
    load_vectors<ROW_THREADS>(x_1, at_1, lane, extent, is_vectorized);
    const float *at_2 = in2 + first_column;
    float x_2[VECTORS][4];
    load_vectors<ROW_THREADS>(x_2, at_2, lane, extent, is_vectorized);
    {
        float *to_0[ROWS_PER_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            to_0[i] = out3 + row_0 * out3_row_0 + first_column;
        }
        const float *at_0[ROWS_PER_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            at_0[i] = in0 + row_0 * in0_row_0 + first_column;
        }
        float sum_5[ROWS_PER_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            sum_5[i] = 0.0f;
        }
        float x_0[ROWS_PER_WARP][VECTORS][4];
        {
#pragma unroll
            for (int i = 0; i < ROWS_PER_WARP; i++) {
                load_vectors<ROW_THREADS>(x_0[i], at_0[i], lane, extent, is_vectorized);
            }
#pragma unroll
            for (int i = 0; i < ROWS_PER_WARP; i++) {
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        if (c < extent) sum_5[i] = sum_5[i] + x_0[i][k][j];
                    }
                }
            }
        }
        reduce_lanes<Sum, ROW_THREADS>(sum_5);
        float mul_6[ROWS_PER_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            mul_6[i] = sum_5[i] * scalar_3;
        }
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            if (lane == 0 && first_column == 0) *(out4 + row_0 * out4_row_0) = mul_6[i];
        }
        float sum_9[ROWS_PER_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            sum_9[i] = 0.0f;
        }
        {
#pragma unroll
            for (int i = 0; i < ROWS_PER_WARP; i++) {
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        const float sub_7 = x_0[i][k][j] - mul_6[i];
                        const float mul_8 = sub_7 * sub_7;
                        if (c < extent) sum_9[i] = sum_9[i] + mul_8;
                    }
                }
            }
        }
        reduce_lanes<Sum, ROW_THREADS>(sum_9);
        float mul_10[ROWS_PER_WARP];
        float add_11[ROWS_PER_WARP];
        float rsqrt_12[ROWS_PER_WARP];
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            mul_10[i] = sum_9[i] * scalar_3;
            add_11[i] = mul_10[i] + scalar_4;
            rsqrt_12[i] = rsqrt_fast(add_11[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS_PER_WARP; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            if (lane == 0 && first_column == 0) *(out5 + row_0 * out5_row_0) = rsqrt_12[i];
        }
        {
#pragma unroll
            for (int i = 0; i < ROWS_PER_WARP; i++) {
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
                    float vector_0[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float sub_7 = x_0[i][k][j] - mul_6[i];
                        const float mul_13 = sub_7 * rsqrt_12[i];
                        const float mul_14 = mul_13 * x_1[k][j];
                        const float add_15 = mul_14 + x_2[k][j];
                        vector_0[j] = add_15;
                    }
                    store_vector<ROW_THREADS>(to_0[i], vector_0, lane, k, extent, is_vectorized);
                }
            }
        }
    }
}
