// erf, add, mul.
#include "functions.cuh"

constexpr int ROW_THREADS = 64, ROW_GROUPS = 2, VECTORS = 2;
constexpr int THREADS = ROW_THREADS * ROW_GROUPS;

KERNEL(erf_add_mul_b9f97d61, THREADS)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, int64 in0_row_0, const float *in1, float *__restrict__ out2, int64 out2_row_0) {
    grid_dependency_wait();
    const bool is_vectorized = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && is_aligned(out2) && out2_row_0 % 4 == 0;
    const int lane = threadIdx.x % ROW_THREADS, group = threadIdx.x / ROW_THREADS;
    constexpr int64 first_column = 0;
    const int extent = (int)columns;
    const int64 begin = (int64)blockIdx.x * ROW_GROUPS, end = rows;
    const int64 base = begin;
    if (base < end) {
        const bool is_in_range = base + group < end;
        const int64 r = is_in_range ? base + group : end - 1;
        const int64 row_0 = r;
        float *to_0 = out2 + row_0 * out2_row_0 + first_column;
        const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
        const float *at_1 = in1 + first_column;
        {
            float x_0[VECTORS][4];
            float x_1[VECTORS][4];
            load_vectors<ROW_THREADS>(x_0, at_0, lane, extent, is_vectorized);
            load_vectors<ROW_THREADS>(x_1, at_1, lane, extent, is_vectorized);
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
                float vector_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float add_2 = x_0[k][j] + x_1[k][j];
                    const float mul_9 = add_2 * 0.5f;
                    const float mul_6 = add_2 * 0.70710677f;
                    const float erf_7 = erff(mul_6);
                    const float add_8 = erf_7 + 1.0f;
                    const float mul_10 = mul_9 * add_8;
                    vector_0[j] = mul_10;
                }
                store_vector<ROW_THREADS>(to_0, vector_0, lane, k, is_in_range ? extent : 0, is_vectorized);
            }
        }
    }
}
