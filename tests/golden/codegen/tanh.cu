// tanh.
#include "functions.cuh"

constexpr int ROW_THREADS = 128, ROW_GROUPS = 1, VECTORS = 1;
constexpr int THREADS = ROW_THREADS * ROW_GROUPS;

KERNEL(tanh_4bae78bd, THREADS, 12)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *__restrict__ in0, int64 in0_row_0, float *__restrict__ out1, int64 out1_row_0) {
    constexpr bool is_vectorized = true;
    const int lane = threadIdx.x % ROW_THREADS;
    const int64 first_column = (int64)blockIdx.x * (4 * ROW_THREADS * VECTORS);
    constexpr int extent = 4 * ROW_THREADS * VECTORS;
    {
        constexpr int64 r = 0;
        const int64 row_0 = r;
        float *to_0 = out1 + row_0 * out1_row_0 + first_column;
        const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
        {
            float x_0[VECTORS][4];
            load_vectors<ROW_THREADS>(x_0, at_0, lane, extent, is_vectorized);
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
                float vector_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float tanh_1 = tanhf(x_0[k][j]);
                    vector_0[j] = tanh_1;
                }
                store_vector<ROW_THREADS>(to_0, vector_0, lane, k, extent, is_vectorized);
            }
        }
    }
}
