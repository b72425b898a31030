// Single-pass reduction: the finalizer block combines the partials of all blocks.
#include "functions.cuh"

// row_max, exp, row_sum, ln, total, sub.
struct first {
    static constexpr int ROW_THREADS = 32, ROW_WARPS = 2, ROW_GROUPS = 8, VECTORS = 2;
    static constexpr int PARTIALS = ROW_WARPS * ROW_GROUPS, THREADS = ROW_THREADS * PARTIALS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 column_blocks, const float *__restrict__ in0, int64 in0_row_0, const int64 *__restrict__ in1, int64 in1_row_0, const float *__restrict__ in2, int64 in2_row_0, int64 in2_index, Partial *out3) {
        constexpr bool is_vectorized = true;
        const int lane = threadIdx.x % ROW_THREADS;
        const int64 first_column = threadIdx.x / ROW_THREADS % ROW_WARPS * (4 * ROW_THREADS * VECTORS);
        constexpr int extent = 4 * ROW_THREADS * VECTORS;
        const unsigned begin = block * ROW_GROUPS, end = (unsigned)rows;
        const EvictionPolicy policy = eviction_policy(true);
        SHARED(shared);
        float sum_10 = 0.0f;
        if (begin < end) {
            const int64 r = min(begin + threadIdx.x / ROW_THREADS / ROW_WARPS, end - 1);
            const int64 row_0 = r;
            const int64 x_1 = *(in1 + row_0 * in1_row_0);
            const float x_2 = *(in2 + row_0 * in2_row_0 + x_1 * in2_index);
            const float *at_0 = in0 + row_0 * in0_row_0 + first_column;
            float amax_3 = LOWEST;
            float x_0[VECTORS][4];
            {
                load_vectors<ROW_THREADS>(x_0, at_0, lane, extent, is_vectorized, policy);
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        if (c < extent) amax_3 = f_max(amax_3, x_0[k][j]);
                    }
                }
            }
            amax_3 = max_of_lanes<ROW_THREADS>(amax_3);
            float sum_6 = 0.0f;
            {
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + ROW_THREADS * k) + j;
                        const float sub_4 = x_0[k][j] - amax_3;
                        const float exp_5 = exp_in_sum(sub_4);
                        if (c < extent) sum_6 = sum_6 + exp_5;
                    }
                }
            }
            sum_6 = reduce_lanes<Sum, ROW_THREADS>(sum_6);
            if (lane == 0) {
                float *partials = shared + threadIdx.x / ROW_THREADS;
                partials[0 * PARTIALS] = amax_3;
                partials[1 * PARTIALS] = sum_6;
                partials[2 * PARTIALS] = x_2;
            }
        }
        __syncthreads();
        if (threadIdx.x >= 32) return;
        for (int row = threadIdx.x; row < ROW_GROUPS && begin + row < end; row += 32) {
            const float *partials = shared + row * ROW_WARPS;
            float amax_3, sum_6;
            merge_exp_sums<ROW_WARPS>(amax_3, sum_6, partials + 0 * PARTIALS, partials + 1 * PARTIALS);
            const float x_2 = partials[2 * PARTIALS];
            const float sub_8 = x_2 - amax_3;
            const float ln_7 = logf(sum_6);
            const float sub_9 = sub_8 - ln_7;
            sum_10 = sum_10 + sub_9;
        }
        sum_10 = reduce_lanes<Sum, 32>(sum_10);
        if (threadIdx.x == 0) out3[block] = sum_10;
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

KERNEL(single_pass_row_max_exp_row_sum_61f75a84, first::THREADS, 4)(int64 first_columns, int64 first_rows, int64 first_block_rows, int64 first_block_columns, int64 first_column_blocks, const float *__restrict__ first_in0, int64 first_in0_row_0, const int64 *__restrict__ first_in1, int64 first_in1_row_0, const float *__restrict__ first_in2, int64 first_in2_row_0, int64 first_in2_index, int64 last_columns, int64 last_rows, int64 last_block_rows, int64 last_block_columns, int64 last_column_blocks, float *__restrict__ last_out1, float last_number_0) {
    const unsigned blocks = gridDim.x - 1, finalizer = blocks / 8 * 7;
    if (blockIdx.x != finalizer) { first::run(blockIdx.x - (blockIdx.x > finalizer), first_columns, first_rows, first_block_rows, first_block_columns, first_column_blocks, first_in0, first_in0_row_0, first_in1, first_in1_row_0, first_in2, first_in2_row_0, first_in2_index, partials_0); return; }
    SHARED_ARRAY(combined_0, last::THREADS);
    combined_0[threadIdx.x] = combine_partials<Sum, last::THREADS>(partials_0, blocks);
    __syncthreads();
    last::run(0, last_columns, last_rows, last_block_rows, last_block_columns, last_column_blocks, combined_0, last_out1, last_number_0);
}
