// 4 kernels side by side.
#include "functions.cuh"

// column_sum, add.
struct m0 {
    // What one of several kernels with this text is given, after the block at which it begins.
    struct Given { int64 start; int64 columns; int64 rows; int64 block_rows; int64 block_columns; int64 pieces; const float *in0; int64 in0_row_0; const float *in1; float *out2; };
    static constexpr int WIDTH = 8, GROUPS = 64, CHUNKS = 1;
    static constexpr int THREADS = WIDTH * GROUPS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *in0, int64 in0_row_0, const float *in1, float *__restrict__ out2) {
        const bool is_wide = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && is_aligned(out2);
        const int lane = threadIdx.x % WIDTH, group = threadIdx.x / WIDTH;
        const unsigned piece = block % (unsigned)pieces, share = block / (unsigned)pieces;
        const int64 first = piece * block_columns, begin = share * block_rows;
        const int here = (int)min(columns - first, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        float sum_1[CHUNKS][4];
#pragma unroll
        for (int i = 0; i < 4 * CHUNKS; i++) sum_1[i / 4][i % 4] = 0.0f;
#pragma unroll 2
        for (int64 base = begin; base < end; base += GROUPS) {
            const bool is_own = base + group < end;
            const int64 r = is_own ? base + group : end - 1;
            const int64 row_0 = r;
            const float *at_0 = in0 + row_0 * in0_row_0 + first;
            {
                float x_0[CHUNKS][4];
                load_chunks<WIDTH>(x_0, at_0, lane, here, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        if (is_own && c < here) sum_1[k][j] = sum_1[k][j] + x_0[k][j];
                    }
                }
            }
        }
        reduce_groups<Sum, WIDTH, GROUPS, CHUNKS>(sum_1, shared, lane, group);
        if (group > 0) return;
        float *to_0 = out2 + first;
        const float *at_2 = in1 + first;
        {
            float x_2[CHUNKS][4];
            load_chunks<WIDTH>(x_2, at_2, lane, here, is_wide);
#pragma unroll
            for (int k = 0; k < CHUNKS; k++) {
                float chunk_0[4];
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float add_3 = x_2[k][j] + sum_1[k][j];
                    chunk_0[j] = add_3;
                }
                store_chunk<WIDTH>(to_0, chunk_0, lane, k, here, is_wide);
            }
        }
    }
};

// mul, sub.
struct m1 {
    // What one of several kernels with this text is given, after the block at which it begins.
    struct Given { int64 start; int64 columns; int64 rows; int64 block_rows; int64 block_columns; int64 pieces; const float *in0; int64 in0_row_0; const float *in1; int64 in1_row_0; float *out2; int64 out2_row_0; float number_0; };
    static constexpr int WIDTH = 512, GROUPS = 1, CHUNKS = 2;
    static constexpr int THREADS = WIDTH * GROUPS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *in0, int64 in0_row_0, const float *in1, int64 in1_row_0, float *__restrict__ out2, int64 out2_row_0, float number_0) {
        const bool is_wide = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && in1_row_0 % 4 == 0 && is_aligned(out2) && out2_row_0 % 4 == 0;
        const int lane = threadIdx.x % WIDTH;
        const unsigned piece = block % (unsigned)pieces, share = block / (unsigned)pieces;
        const int64 first = piece * block_columns, begin = share * block_rows;
        const int here = (int)min(columns - first, block_columns);
        const int64 end = min(begin + block_rows, rows);
        const float scalar_2 = number_0;
#pragma unroll 1
        for (int64 r = begin; r < end; r += 1) {
            const int64 row_0 = r;
            float *to_0 = out2 + row_0 * out2_row_0 + first;
            const float *at_0 = in0 + row_0 * in0_row_0 + first;
            const float *at_1 = in1 + row_0 * in1_row_0 + first;
            {
                float x_0[CHUNKS][4];
                float x_1[CHUNKS][4];
                load_chunks<WIDTH>(x_0, at_0, lane, here, is_wide);
                load_chunks<WIDTH>(x_1, at_1, lane, here, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
                    float chunk_0[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const float mul_3 = x_1[k][j] * scalar_2;
                        const float sub_4 = x_0[k][j] - mul_3;
                        chunk_0[j] = sub_4;
                    }
                    store_chunk<WIDTH>(to_0, chunk_0, lane, k, here, is_wide);
                }
            }
        }
    }
};

KERNEL(pack_4_column_sum_add_mul_7ba6ad6f, m0::THREADS)(int64 end_0, int64 end_1, int64 end_2, int64 m0_columns, int64 m0_rows, int64 m0_block_rows, int64 m0_block_columns, int64 m0_pieces, const float *m0_in0, int64 m0_in0_row_0, const float *m0_in1, float *__restrict__ m0_out2, int64 m1_columns, int64 m1_rows, int64 m1_block_rows, int64 m1_block_columns, int64 m1_pieces, const float *m1_in0, int64 m1_in0_row_0, const float *m1_in1, int64 m1_in1_row_0, float *__restrict__ m1_out2, int64 m1_out2_row_0, float m1_number_0, int64 m2_columns, int64 m2_rows, int64 m2_block_rows, int64 m2_block_columns, int64 m2_pieces, const float *m2_in0, int64 m2_in0_row_0, const float *m2_in1, int64 m2_in1_row_0, float *__restrict__ m2_out2, int64 m2_out2_row_0, float m2_number_0, int64 m3_columns, int64 m3_rows, int64 m3_block_rows, int64 m3_block_columns, int64 m3_pieces, const float *m3_in0, int64 m3_in0_row_0, const float *m3_in1, int64 m3_in1_row_0, float *__restrict__ m3_out2, int64 m3_out2_row_0, float m3_number_0) {
    await_launches();
    const int64 block = blockIdx.x;
    if (block < end_0) {
        m0::Given given;
        given = {0, m0_columns, m0_rows, m0_block_rows, m0_block_columns, m0_pieces, m0_in0, m0_in0_row_0, m0_in1, m0_out2};
        m0::run((unsigned)(block - given.start), given.columns, given.rows, given.block_rows, given.block_columns, given.pieces, given.in0, given.in0_row_0, given.in1, given.out2);
        return;
    }
    {
        m1::Given given;
        if (block < end_1) given = {end_0, m1_columns, m1_rows, m1_block_rows, m1_block_columns, m1_pieces, m1_in0, m1_in0_row_0, m1_in1, m1_in1_row_0, m1_out2, m1_out2_row_0, m1_number_0};
        else if (block < end_2) given = {end_1, m2_columns, m2_rows, m2_block_rows, m2_block_columns, m2_pieces, m2_in0, m2_in0_row_0, m2_in1, m2_in1_row_0, m2_out2, m2_out2_row_0, m2_number_0};
        else given = {end_2, m3_columns, m3_rows, m3_block_rows, m3_block_columns, m3_pieces, m3_in0, m3_in0_row_0, m3_in1, m3_in1_row_0, m3_out2, m3_out2_row_0, m3_number_0};
        m1::run((unsigned)(block - given.start), given.columns, given.rows, given.block_rows, given.block_columns, given.pieces, given.in0, given.in0_row_0, given.in1, given.in1_row_0, given.out2, given.out2_row_0, given.number_0);
    }
}
