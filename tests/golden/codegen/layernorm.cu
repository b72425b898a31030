// row_sum, rsqrt, mul, sub, add.
#include "functions.cuh"

constexpr int WIDTH = 32, GROUPS = 1, CHUNKS = 2, ROWS = 4;
constexpr int THREADS = WIDTH * GROUPS;

KERNEL(row_sum_rsqrt_mul_87d1a717, THREADS, 28)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *__restrict__ in0, int64 in0_row_0, const float *__restrict__ in1, const float *__restrict__ in2, float *__restrict__ out3, int64 out3_row_0, float *__restrict__ out4, int64 out4_row_0, float *__restrict__ out5, int64 out5_row_0, float number_0, float number_1) {
    constexpr bool is_wide = true;
    const int lane = threadIdx.x % WIDTH;
    constexpr int64 first = 0;
    constexpr int here = 4 * WIDTH * CHUNKS;
    const int64 begin = (int64)blockIdx.x * ROWS;
    const float scalar_3 = number_0;
    const float scalar_4 = number_1;
    const float *at_1 = in1 + first;
    float x_1[CHUNKS][4];
    load_chunks<WIDTH>(x_1, at_1, lane, here, is_wide);
    const float *at_2 = in2 + first;
    float x_2[CHUNKS][4];
    load_chunks<WIDTH>(x_2, at_2, lane, here, is_wide);
    {
        float *to_0[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            to_0[i] = out3 + row_0 * out3_row_0 + first;
        }
        const float *at_0[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            at_0[i] = in0 + row_0 * in0_row_0 + first;
        }
        float sum_5[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            sum_5[i] = 0.0f;
        }
        float x_0[ROWS][CHUNKS][4];
        {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                load_chunks<WIDTH>(x_0[i], at_0[i], lane, here, is_wide);
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        if (c < here) sum_5[i] = sum_5[i] + x_0[i][k][j];
                    }
                }
            }
        }
        reduce_lanes<Sum, WIDTH>(sum_5);
        float mul_6[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            mul_6[i] = sum_5[i] * scalar_3;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            if (lane == 0 && first == 0) *(out4 + row_0 * out4_row_0) = mul_6[i];
        }
        float sum_9[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            sum_9[i] = 0.0f;
        }
        {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        const float sub_7 = x_0[i][k][j] - mul_6[i];
                        const float mul_8 = sub_7 * sub_7;
                        if (c < here) sum_9[i] = sum_9[i] + mul_8;
                    }
                }
            }
        }
        reduce_lanes<Sum, WIDTH>(sum_9);
        float mul_10[ROWS];
        float add_11[ROWS];
        float rsqrt_12[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            mul_10[i] = sum_9[i] * scalar_3;
            add_11[i] = mul_10[i] + scalar_4;
            rsqrt_12[i] = rsqrt_fast(add_11[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const int64 r = begin + i;
            const int64 row_0 = r;
            if (lane == 0 && first == 0) *(out5 + row_0 * out5_row_0) = rsqrt_12[i];
        }
        {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
                    float chunk_0[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float sub_7 = x_0[i][k][j] - mul_6[i];
                        const float mul_13 = sub_7 * rsqrt_12[i];
                        const float mul_14 = mul_13 * x_1[k][j];
                        const float add_15 = mul_14 + x_2[k][j];
                        chunk_0[j] = add_15;
                    }
                    store_chunk<WIDTH>(to_0[i], chunk_0, lane, k, here, is_wide);
                }
            }
        }
    }
}
