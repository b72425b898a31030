// Single-pass reduction: the finalizer block combines the partials of all blocks.
#include "functions.cuh"

// exp, total, greatest, add, mul.
struct first {
    static constexpr int ROW_THREADS = 32, ROW_GROUPS = 8, VECTORS = 1;
    static constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int TILE = 4 * ROW_THREADS * VECTORS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, int64 in0_row_0, const float *in1, float *__restrict__ out2, int64 out2_row_0, Partial *out3, Partial *out4) {
        const bool is_vectorized = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && is_aligned(out2) && out2_row_0 % 4 == 0;
        const int lane = threadIdx.x % ROW_THREADS, group = threadIdx.x / ROW_THREADS;
        const unsigned column_block = block % (unsigned)column_blocks, row_block = block / (unsigned)column_blocks;
        const int64 first_column = column_block * block_columns, begin = row_block * block_rows;
        const int extent = (int)min(columns - first_column, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        float sum_5 = 0.0f;
        float amax_6 = Max::identity();
        for (int64 base = begin; base < end; base += ROW_GROUPS) {
            const bool is_in_range = base + group < end;
            const int64 r = is_in_range ? base + group : end - 1;
            const int64 row_0 = r;
            float *to_0 = out2 + row_0 * out2_row_0 + first_column;
            const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
            const float *at_1 = in1 + first_column;
            for (int offset = 0; offset < extent; offset += TILE) {
                float x_0[VECTORS][4];
                float x_1[VECTORS][4];
                load_vectors<ROW_THREADS>(x_0, at_0 + offset, lane, extent - offset, is_vectorized);
                load_vectors<ROW_THREADS>(x_1, at_1 + offset, lane, extent - offset, is_vectorized);
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
                    float vector_0[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        const float add_2 = x_0[k][j] + x_1[k][j];
                        const float mul_4 = add_2 * add_2;
                        const float exp_3 = expf(add_2);
                        if (is_in_range && c < extent - offset) sum_5 = sum_5 + mul_4;
                        if (is_in_range && c < extent - offset) amax_6 = f_max(amax_6, add_2);
                        vector_0[j] = exp_3;
                    }
                    store_vector<ROW_THREADS>(to_0 + offset, vector_0, lane, k, is_in_range ? extent - offset : 0, is_vectorized);
                }
            }
        }
        sum_5 = reduce_lanes<Sum, 32>(sum_5);
        amax_6 = reduce_lanes<Max, 32>(amax_6);
        float *slots = shared;
        if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = sum_5;
        if (threadIdx.x % 32 == 0) slots[1 * WARPS + threadIdx.x / 32] = amax_6;
        __syncthreads();
        sum_5 = reduce_warps<Sum, THREADS>(slots + 0 * WARPS);
        amax_6 = reduce_warps<Max, THREADS>(slots + 1 * WARPS);
        if (threadIdx.x == 0) out3[block] = sum_5;
        if (threadIdx.x == 0) out4[block] = amax_6;
    }
};

// total, greatest, sqrt, div.
struct last {
    static constexpr int ROW_THREADS = 256, ROW_GROUPS = 1, VECTORS = 1;
    static constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int TILE = 4 * ROW_THREADS * VECTORS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, const float *in1, float *__restrict__ out2, float *__restrict__ out3) {
        const bool is_vectorized = columns % 4 == 0 && is_aligned(in0) && is_aligned(in1);
        const int lane = threadIdx.x % ROW_THREADS;
        const unsigned column_block = block % (unsigned)column_blocks, row_block = block / (unsigned)column_blocks;
        const int64 first_column = column_block * block_columns, begin = row_block * block_rows;
        const int extent = (int)min(columns - first_column, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        float sum_2 = 0.0f;
        float amax_3 = Max::identity();
        for (int64 r = begin; r < end; r += 1) {
            const float *at_0 = in0 + first_column;
            const float *at_1 = in1 + first_column;
            for (int offset = 0; offset < extent; offset += TILE) {
                float x_0[VECTORS][4];
                float x_1[VECTORS][4];
                load_vectors<ROW_THREADS>(x_0, at_0 + offset, lane, extent - offset, is_vectorized);
                load_vectors<ROW_THREADS>(x_1, at_1 + offset, lane, extent - offset, is_vectorized);
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        if (c < extent - offset) sum_2 = sum_2 + x_0[k][j];
                        if (c < extent - offset) amax_3 = f_max(amax_3, x_1[k][j]);
                    }
                }
            }
        }
        sum_2 = reduce_lanes<Sum, 32>(sum_2);
        amax_3 = reduce_lanes<Max, 32>(amax_3);
        float *slots = shared;
        if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = sum_2;
        if (threadIdx.x % 32 == 0) slots[1 * WARPS + threadIdx.x / 32] = amax_3;
        __syncthreads();
        sum_2 = reduce_warps<Sum, THREADS>(slots + 0 * WARPS);
        amax_3 = reduce_warps<Max, THREADS>(slots + 1 * WARPS);
        const float sqrt_4 = sqrt_fast(sum_2);
        const float div_5 = divide(sqrt_4, amax_3);
        if (threadIdx.x == 0) *out2 = div_5;
        if (threadIdx.x == 0) *out3 = amax_3;
    }
};

// Partials of each reduction, one a block.
static __device__ Partial partials_0[32768];
static __device__ Partial partials_1[32768];

KERNEL(single_pass_exp_total_greatest_e5b03cc0, first::THREADS)(int64 first_columns, int64 first_rows, int64 first_block_rows, int64 first_block_columns, int64 first_column_blocks, const float *first_in0, int64 first_in0_row_0, const float *first_in1, float *__restrict__ first_out2, int64 first_out2_row_0, int64 last_columns, int64 last_rows, int64 last_block_rows, int64 last_block_columns, int64 last_column_blocks, float *__restrict__ last_out2, float *__restrict__ last_out3) {
    grid_dependency_wait();
    first::run(blockIdx.x, first_columns, first_rows, first_block_rows, first_block_columns, first_column_blocks, first_in0, first_in0_row_0, first_in1, first_out2, first_out2_row_0, partials_0, partials_1);
    if (blockIdx.x != gridDim.x - 1) return;
    SHARED_ARRAY(combined_0, last::THREADS);
    combined_0[threadIdx.x] = combine_partials<Sum, last::THREADS>(partials_0, gridDim.x);
    SHARED_ARRAY(combined_1, last::THREADS);
    combined_1[threadIdx.x] = combine_partials<Max, last::THREADS>(partials_1, gridDim.x);
    __syncthreads();
    last::run(0, last_columns, last_rows, last_block_rows, last_block_columns, last_column_blocks, combined_0, combined_1, last_out2, last_out3);
}
