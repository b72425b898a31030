// Horizontal fusion of 4 kernels.
#include "functions.cuh"

// column_sum, add.
struct m0 {
    // Arguments of one of the kernels with this text, after the block at which it starts.
    struct Arguments { int64 start; int64 columns; int64 rows; int64 block_rows; int64 block_columns; int64 column_blocks; const float *in0; int64 in0_row_0; const float *in1; float *out2; };
    static constexpr int ROW_THREADS = 8, ROW_GROUPS = 64, VECTORS = 1;
    static constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, int64 in0_row_0, const float *in1, float *__restrict__ out2) {
        const bool is_vectorized = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && is_aligned(out2);
        const int lane = threadIdx.x % ROW_THREADS, group = threadIdx.x / ROW_THREADS;
        const unsigned column_block = block % (unsigned)column_blocks, row_block = block / (unsigned)column_blocks;
        const int64 first_column = column_block * block_columns, begin = row_block * block_rows;
        const int extent = (int)min(columns - first_column, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        float sum_1[VECTORS][4];
#pragma unroll
        for (int i = 0; i < 4 * VECTORS; i++) sum_1[i / 4][i % 4] = 0.0f;
#pragma unroll 2
        for (int64 base = begin; base < end; base += ROW_GROUPS) {
            const bool is_in_range = base + group < end;
            const int64 r = is_in_range ? base + group : end - 1;
            const int64 row_0 = r;
            const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
            {
                float x_0[VECTORS][4];
                load_vectors<ROW_THREADS>(x_0, at_0, lane, extent, is_vectorized);
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        if (is_in_range && c < extent) sum_1[k][j] = sum_1[k][j] + x_0[k][j];
                    }
                }
            }
        }
        reduce_groups<Sum, ROW_THREADS, ROW_GROUPS, VECTORS>(sum_1, shared, lane, group);
        if (group > 0) return;
        float *to_0 = out2 + first_column;
        const float *at_2 = in1 + first_column;
        {
            float x_2[VECTORS][4];
            load_vectors<ROW_THREADS>(x_2, at_2, lane, extent, is_vectorized);
#pragma unroll
            for (int k = 0; k < VECTORS; k++) {
                float vector_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float add_3 = x_2[k][j] + sum_1[k][j];
                    vector_0[j] = add_3;
                }
                store_vector<ROW_THREADS>(to_0, vector_0, lane, k, extent, is_vectorized);
            }
        }
    }
};

// mul, sub.
struct m1 {
    // Arguments of one of the kernels with this text, after the block at which it starts.
    struct Arguments { int64 start; int64 columns; int64 rows; int64 block_rows; int64 block_columns; int64 column_blocks; const float *in0; int64 in0_row_0; const float *in1; int64 in1_row_0; float *out2; int64 out2_row_0; float number_0; };
    static constexpr int ROW_THREADS = 512, ROW_GROUPS = 1, VECTORS = 2;
    static constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, int64 in0_row_0, const float *in1, int64 in1_row_0, float *__restrict__ out2, int64 out2_row_0, float number_0) {
        const bool is_vectorized = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && in1_row_0 % 4 == 0 && is_aligned(out2) && out2_row_0 % 4 == 0;
        const int lane = threadIdx.x % ROW_THREADS;
        const unsigned column_block = block % (unsigned)column_blocks, row_block = block / (unsigned)column_blocks;
        const int64 first_column = column_block * block_columns, begin = row_block * block_rows;
        const int extent = (int)min(columns - first_column, block_columns);
        const int64 end = min(begin + block_rows, rows);
        const float scalar_2 = number_0;
#pragma unroll 1
        for (int64 r = begin; r < end; r += 1) {
            const int64 row_0 = r;
            float *to_0 = out2 + row_0 * out2_row_0 + first_column;
            const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
            const float *at_1 = in1 + row_0 * in1_row_0 + first_column;
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
                        const float mul_3 = x_1[k][j] * scalar_2;
                        const float sub_4 = x_0[k][j] - mul_3;
                        vector_0[j] = sub_4;
                    }
                    store_vector<ROW_THREADS>(to_0, vector_0, lane, k, extent, is_vectorized);
                }
            }
        }
    }
};

KERNEL(horizontal_4_column_sum_add_mul_932ed2c9, m0::THREADS)(int64 end_0, int64 end_1, int64 end_2, int64 m0_columns, int64 m0_rows, int64 m0_block_rows, int64 m0_block_columns, int64 m0_column_blocks, const float *m0_in0, int64 m0_in0_row_0, const float *m0_in1, float *__restrict__ m0_out2, int64 m1_columns, int64 m1_rows, int64 m1_block_rows, int64 m1_block_columns, int64 m1_column_blocks, const float *m1_in0, int64 m1_in0_row_0, const float *m1_in1, int64 m1_in1_row_0, float *__restrict__ m1_out2, int64 m1_out2_row_0, float m1_number_0, int64 m2_columns, int64 m2_rows, int64 m2_block_rows, int64 m2_block_columns, int64 m2_column_blocks, const float *m2_in0, int64 m2_in0_row_0, const float *m2_in1, int64 m2_in1_row_0, float *__restrict__ m2_out2, int64 m2_out2_row_0, float m2_number_0, int64 m3_columns, int64 m3_rows, int64 m3_block_rows, int64 m3_block_columns, int64 m3_column_blocks, const float *m3_in0, int64 m3_in0_row_0, const float *m3_in1, int64 m3_in1_row_0, float *__restrict__ m3_out2, int64 m3_out2_row_0, float m3_number_0) {
    grid_dependency_wait();
    const int64 block = blockIdx.x;
    if (block < end_0) {
        m0::Arguments arguments;
        arguments = {0, m0_columns, m0_rows, m0_block_rows, m0_block_columns, m0_column_blocks, m0_in0, m0_in0_row_0, m0_in1, m0_out2};
        m0::run((unsigned)(block - arguments.start), arguments.columns, arguments.rows, arguments.block_rows, arguments.block_columns, arguments.column_blocks, arguments.in0, arguments.in0_row_0, arguments.in1, arguments.out2);
        return;
    }
    {
        m1::Arguments arguments;
        if (block < end_1) arguments = {end_0, m1_columns, m1_rows, m1_block_rows, m1_block_columns, m1_column_blocks, m1_in0, m1_in0_row_0, m1_in1, m1_in1_row_0, m1_out2, m1_out2_row_0, m1_number_0};
        else if (block < end_2) arguments = {end_1, m2_columns, m2_rows, m2_block_rows, m2_block_columns, m2_column_blocks, m2_in0, m2_in0_row_0, m2_in1, m2_in1_row_0, m2_out2, m2_out2_row_0, m2_number_0};
        else arguments = {end_2, m3_columns, m3_rows, m3_block_rows, m3_block_columns, m3_column_blocks, m3_in0, m3_in0_row_0, m3_in1, m3_in1_row_0, m3_out2, m3_out2_row_0, m3_number_0};
        m1::run((unsigned)(block - arguments.start), arguments.columns, arguments.rows, arguments.block_rows, arguments.block_columns, arguments.column_blocks, arguments.in0, arguments.in0_row_0, arguments.in1, arguments.in1_row_0, arguments.out2, arguments.out2_row_0, arguments.number_0);
    }
}
