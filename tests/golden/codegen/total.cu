// What the last block to be done makes of the parts that all leave.
#include "functions.cuh"

// row_max, exp, row_sum, ln, select, total, sub, equal.
struct first {
    static constexpr int WIDTH = 512, GROUPS = 1, CHUNKS = 2;
    static constexpr int THREADS = WIDTH * GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int SPAN = 4 * WIDTH * CHUNKS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *__restrict__ in0, int64 in0_row_0, const int64 *__restrict__ in1, int64 in1_row_0, float *__restrict__ out2, int64 out2_row_0, float *out3) {
        const bool is_wide = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0;
        const int lane = threadIdx.x % WIDTH;
        const unsigned piece = block % (unsigned)pieces, share = block / (unsigned)pieces;
        const int64 first = piece * block_columns, begin = share * block_rows;
        const int here = (int)min(columns - first, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        constexpr int SLOTS = 2 * WARPS;
        int turn = 0;
        float sum_13 = 0.0f;
        for (int64 r = begin; r < end; r++) {
            const int64 row_0 = r;
            const int64 x_1 = *(in1 + row_0 * in1_row_0);
            const float *at_0 = in0 + row_0 * in0_row_0 + first;
            float amax_2 = Max::none();
            for (int offset = 0; offset < here; offset += SPAN) {
                float x_0[CHUNKS][4];
                load_chunks<WIDTH, true>(x_0, at_0 + offset, lane, here - offset, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        if (c < here - offset) amax_2 = f_max(amax_2, x_0[k][j]);
                    }
                }
            }
            amax_2 = reduce_lanes<Max, WIDTH>(amax_2);
            {
                float *cells = shared + turn;
                turn ^= SLOTS;
                if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = amax_2;
                __syncthreads();
                amax_2 = reduce_warps<Max, WIDTH>(cells + 0 * WARPS);
            }
            float sum_5 = 0.0f;
            float sum_11 = 0.0f;
            for (int offset = 0; offset < here; offset += SPAN) {
                float x_0[CHUNKS][4];
                load_chunks<WIDTH, true>(x_0, at_0 + offset, lane, here - offset, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        const float sub_3 = x_0[k][j] - amax_2;
                        const float exp_4 = expf(sub_3);
                        const int64 column_7 = first + offset + c;
                        const float equal_8 = column_7 == x_1 ? 1.0f : 0.0f;
                        const float select_10 = equal_8 != 0.0f ? sub_3 : 0.0f;
                        if (c < here - offset) sum_5 = sum_5 + exp_4;
                        if (c < here - offset) sum_11 = sum_11 + select_10;
                    }
                }
            }
            sum_5 = reduce_lanes<Sum, WIDTH>(sum_5);
            sum_11 = reduce_lanes<Sum, WIDTH>(sum_11);
            {
                float *cells = shared + turn;
                turn ^= SLOTS;
                if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_5;
                if (threadIdx.x % 32 == 0) cells[1 * WARPS + threadIdx.x / 32] = sum_11;
                __syncthreads();
                sum_5 = reduce_warps<Sum, WIDTH>(cells + 0 * WARPS);
                sum_11 = reduce_warps<Sum, WIDTH>(cells + 1 * WARPS);
            }
            const float ln_6 = logf(sum_5);
            const float sub_12 = ln_6 - sum_11;
            if (lane == 0) sum_13 = sum_13 + sub_12;
            if (lane == 0 && first == 0) *(out2 + row_0 * out2_row_0) = sub_12;
        }
        sum_13 = reduce_lanes<Sum, 32>(sum_13);
        __syncthreads();
        float *cells = shared;
        if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_13;
        __syncthreads();
        sum_13 = reduce_warps<Sum, THREADS>(cells + 0 * WARPS);
        if (threadIdx.x == 0) out3[block] = sum_13;
    }
};

// total, mul.
struct last {
    static constexpr int WIDTH = 512, GROUPS = 1, CHUNKS = 1;
    static constexpr int THREADS = WIDTH * GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int SPAN = 4 * WIDTH * CHUNKS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *in0, float *__restrict__ out1, float number_0) {
        const bool is_wide = columns % 4 == 0 && is_aligned(in0);
        const int lane = threadIdx.x % WIDTH;
        const unsigned piece = block % (unsigned)pieces, share = block / (unsigned)pieces;
        const int64 first = piece * block_columns, begin = share * block_rows;
        const int here = (int)min(columns - first, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        const float scalar_0 = number_0;
        float sum_2 = 0.0f;
        for (int64 r = begin; r < end; r++) {
            const float *at_1 = in0 + first;
            for (int offset = 0; offset < here; offset += SPAN) {
                float x_1[CHUNKS][4];
                load_chunks<WIDTH>(x_1, at_1 + offset, lane, here - offset, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        if (c < here - offset) sum_2 = sum_2 + x_1[k][j];
                    }
                }
            }
        }
        sum_2 = reduce_lanes<Sum, 32>(sum_2);
        __syncthreads();
        float *cells = shared;
        if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_2;
        __syncthreads();
        sum_2 = reduce_warps<Sum, THREADS>(cells + 0 * WARPS);
        const float mul_3 = sum_2 * scalar_0;
        if (threadIdx.x == 0) *out1 = mul_3;
    }
};

// Blocks of the launch that have left their parts.
static __device__ unsigned done;

KERNEL(whole_row_max_exp_row_sum_1c81c6ab, first::THREADS)(int64 first_columns, int64 first_rows, int64 first_block_rows, int64 first_block_columns, int64 first_pieces, const float *__restrict__ first_in0, int64 first_in0_row_0, const int64 *__restrict__ first_in1, int64 first_in1_row_0, float *__restrict__ first_out2, int64 first_out2_row_0, float *first_out3, int64 last_columns, int64 last_rows, int64 last_block_rows, int64 last_block_columns, int64 last_pieces, float *__restrict__ last_out1, float last_number_0) {
    await_launches();
    first::run(blockIdx.x, first_columns, first_rows, first_block_rows, first_block_columns, first_pieces, first_in0, first_in0_row_0, first_in1, first_in1_row_0, first_out2, first_out2_row_0, first_out3);
    if (!is_last_block(&done)) return;
    last::run(0, last_columns, last_rows, last_block_rows, last_block_columns, last_pieces, first_out3, last_out1, last_number_0);
}
