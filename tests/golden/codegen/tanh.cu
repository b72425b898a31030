// tanh.
#include "functions.cuh"

constexpr int WIDTH = 128, GROUPS = 1, CHUNKS = 1;
constexpr int THREADS = WIDTH * GROUPS;

KERNEL(tanh_df263321, THREADS, 12)(int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *__restrict__ in0, int64 in0_row_0, float *__restrict__ out1, int64 out1_row_0) {
    constexpr bool is_wide = true;
    const int lane = threadIdx.x % WIDTH;
    const int64 first = (int64)blockIdx.x * (4 * WIDTH * CHUNKS);
    constexpr int here = 4 * WIDTH * CHUNKS;
    {
        constexpr int64 r = 0;
        const int64 row_0 = r;
        float *to_0 = out1 + row_0 * out1_row_0 + first;
        const float *at_0 = in0 + row_0 * in0_row_0 + first;
        {
            float x_0[CHUNKS][4];
            load_chunks<WIDTH>(x_0, at_0, lane, here, is_wide);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                float chunk_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float tanh_1 = tanhf(x_0[k][j]);
                    chunk_0[j] = tanh_1;
                }
                store_chunk<WIDTH>(to_0, chunk_0, lane, k, here, is_wide);
            }
        }
    }
}
