// Single-pass reduction: the finalizer block combines the partials of all blocks.
#include "functions.cuh"

// row_max, exp, row_sum, ln, select, total, sub, equal.
struct first {
    static constexpr int ROW_THREADS = 8, ROW_GROUPS = 64, VECTORS = 1;
    static constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *__restrict__ in0, int64 in0_row_0, const int64 *__restrict__ in1, int64 in1_row_0, float *__restrict__ out2, int64 out2_row_0, Partial *out3) {
        constexpr bool is_vectorized = true;
        const int lane = threadIdx.x % ROW_THREADS, group = threadIdx.x / ROW_THREADS;
        constexpr int64 first_column = 0;
        constexpr int extent = 4 * ROW_THREADS * VECTORS;
        const int64 begin = (int64)block * ROW_GROUPS, end = rows;
        const EvictionPolicy policy = policy_of_stream(1 * rows * columns);
        SHARED(shared);
        float sum_13 = 0.0f;
        const int64 base = begin;
        if (base < end) {
            const bool is_in_range = base + group < end;
            const int64 r = is_in_range ? base + group : end - 1;
            const int64 row_0 = r;
            const int64 x_1 = *(in1 + row_0 * in1_row_0);
            const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
            float amax_2 = Max::identity();
            float x_0[VECTORS][4];
            {
                load_vectors<ROW_THREADS>(x_0, at_0, lane, extent, is_vectorized, policy);
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        if (c < extent) amax_2 = f_max(amax_2, x_0[k][j]);
                    }
                }
            }
            amax_2 = reduce_lanes<Max, ROW_THREADS>(amax_2);
            float sum_5 = 0.0f;
            float sum_11 = 0.0f;
            {
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        const float sub_3 = x_0[k][j] - amax_2;
                        const float exp_4 = exp_in_sum(sub_3);
                        const int64 column_7 = first_column + c;
                        const float equal_8 = column_7 == x_1 ? 1.0f : 0.0f;
                        const float select_10 = equal_8 != 0.0f ? sub_3 : 0.0f;
                        if (c < extent) sum_5 = sum_5 + exp_4;
                        if (c < extent) sum_11 = sum_11 + select_10;
                    }
                }
            }
            sum_5 = reduce_lanes<Sum, ROW_THREADS>(sum_5);
            sum_11 = reduce_lanes<Sum, ROW_THREADS>(sum_11);
            const float ln_6 = logf(sum_5);
            const float sub_12 = ln_6 - sum_11;
            if (lane == 0 && is_in_range) sum_13 = sum_13 + sub_12;
            if (lane == 0 && is_in_range && first_column == 0) *(out2 + row_0 * out2_row_0) = sub_12;
        }
        sum_13 = reduce_lanes<Sum, 32>(sum_13);
        float *slots = shared;
        if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = sum_13;
        __syncthreads();
        sum_13 = reduce_warps<Sum, THREADS>(slots + 0 * WARPS);
        if (threadIdx.x == 0) out3[block] = sum_13;
    }
};

// total, mul.
struct last {
    static constexpr int ROW_THREADS = 512, ROW_GROUPS = 1, VECTORS = 1;
    static constexpr int THREADS = ROW_THREADS * ROW_GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int TILE = 4 * ROW_THREADS * VECTORS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *in0, float *__restrict__ out1, float number_0) {
        const bool is_vectorized = columns % 4 == 0 && is_aligned(in0);
        const int lane = threadIdx.x % ROW_THREADS;
        const unsigned column_block = block % (unsigned)column_blocks, row_block = block / (unsigned)column_blocks;
        const int64 first_column = column_block * block_columns, begin = row_block * block_rows;
        const int extent = (int)min(columns - first_column, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        const float scalar_0 = number_0;
        float sum_2 = 0.0f;
        for (int64 r = begin; r < end; r += 1) {
            const float *at_1 = in0 + first_column;
            for (int offset = 0; offset < extent; offset += TILE) {
                float x_1[VECTORS][4];
                load_vectors<ROW_THREADS>(x_1, at_1 + offset, lane, extent - offset, is_vectorized);
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        if (c < extent - offset) sum_2 = sum_2 + x_1[k][j];
                    }
                }
            }
        }
        sum_2 = reduce_lanes<Sum, 32>(sum_2);
        float *slots = shared;
        if (threadIdx.x % 32 == 0) slots[0 * WARPS + threadIdx.x / 32] = sum_2;
        __syncthreads();
        sum_2 = reduce_warps<Sum, THREADS>(slots + 0 * WARPS);
        const float mul_3 = sum_2 * scalar_0;
        if (threadIdx.x == 0) *out1 = mul_3;
    }
};

// Partials of each reduction, one a block.
static __device__ Partial partials_0[32768];

KERNEL(single_pass_row_max_exp_row_sum_c5201776, first::THREADS, 3)(int64 first_columns, int64 first_rows, int64 first_block_rows, int64 first_block_columns, int64 first_column_blocks, const float *__restrict__ first_in0, int64 first_in0_row_0, const int64 *__restrict__ first_in1, int64 first_in1_row_0, float *__restrict__ first_out2, int64 first_out2_row_0, int64 last_columns, int64 last_rows, int64 last_block_rows, int64 last_block_columns, int64 last_column_blocks, float *__restrict__ last_out1, float last_number_0) {
    const unsigned blocks = gridDim.x - 1, finalizer = blocks / 8 * 7;
    if (blockIdx.x != finalizer) { first::run(blockIdx.x - (blockIdx.x > finalizer), first_columns, first_rows, first_block_rows, first_block_columns, first_column_blocks, first_in0, first_in0_row_0, first_in1, first_in1_row_0, first_out2, first_out2_row_0, partials_0); return; }
    SHARED_ARRAY(combined_0, last::THREADS);
    combined_0[threadIdx.x] = combine_partials<Sum, last::THREADS>(partials_0, blocks);
    __syncthreads();
    last::run(0, last_columns, last_rows, last_block_rows, last_block_columns, last_column_blocks, combined_0, last_out1, last_number_0);
}
