// What one block makes of the parts that all leave.
#include "functions.cuh"

// row_max, exp, row_sum, ln, total, sub.
struct first {
    static constexpr int WIDTH = 32, ROW_WARPS = 2, GROUPS = 8, CHUNKS = 2;
    static constexpr int LEFT = ROW_WARPS * GROUPS, THREADS = WIDTH * LEFT;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *__restrict__ in0, int64 in0_row_0, const int64 *__restrict__ in1, int64 in1_row_0, const float *__restrict__ in2, int64 in2_row_0, int64 in2_index, Part *out3) {
        constexpr bool is_wide = true;
        const int lane = threadIdx.x % WIDTH;
        const int64 first = threadIdx.x / WIDTH % ROW_WARPS * (4 * WIDTH * CHUNKS);
        constexpr int here = 4 * WIDTH * CHUNKS;
        const unsigned begin = block * GROUPS, end = (unsigned)rows;
        const Leaving stream = leaving(true);
        SHARED(shared);
        float sum_10 = 0.0f;
        if (begin < end) {
            const int64 r = min(begin + threadIdx.x / WIDTH / ROW_WARPS, end - 1);
            const int64 row_0 = r;
            const int64 x_1 = *(in1 + row_0 * in1_row_0);
            const float x_2 = *(in2 + row_0 * in2_row_0 + x_1 * in2_index);
            const float *at_0 = in0 + row_0 * in0_row_0 + first;
            float amax_3 = LEAST;
            float x_0[CHUNKS][4];
            {
                load_chunks<WIDTH>(x_0, at_0, lane, here, is_wide, stream);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        if (c < here) amax_3 = f_max(amax_3, x_0[k][j]);
                    }
                }
            }
            amax_3 = greatest_of_lanes<WIDTH>(amax_3);
            float sum_6 = 0.0f;
            {
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        const float sub_4 = x_0[k][j] - amax_3;
                        const float exp_5 = exp_in_sum(sub_4);
                        if (c < here) sum_6 = sum_6 + exp_5;
                    }
                }
            }
            sum_6 = reduce_lanes<Sum, WIDTH>(sum_6);
            if (lane == 0) {
                float *left = shared + threadIdx.x / WIDTH;
                left[0 * LEFT] = amax_3;
                left[1 * LEFT] = sum_6;
                left[2 * LEFT] = x_2;
            }
        }
        __syncthreads();
        if (threadIdx.x >= 32) return;
        for (int of = threadIdx.x; of < GROUPS && begin + of < end; of += 32) {
            const float *left = shared + of * ROW_WARPS;
            float amax_3, sum_6;
            join_exponentials<ROW_WARPS>(amax_3, sum_6, left + 0 * LEFT, left + 1 * LEFT);
            const float x_2 = left[2 * LEFT];
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
        for (int64 r = begin; r < end; r += 1) {
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
        float *cells = shared;
        if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_2;
        __syncthreads();
        sum_2 = reduce_warps<Sum, THREADS>(cells + 0 * WARPS);
        const float mul_3 = sum_2 * scalar_0;
        if (threadIdx.x == 0) *out1 = mul_3;
    }
};

// Of each total, what blocks have left.
static __device__ Part left_0[32768];

KERNEL(whole_row_max_exp_row_sum_33c33914, first::THREADS, 4)(int64 first_columns, int64 first_rows, int64 first_block_rows, int64 first_block_columns, int64 first_pieces, const float *__restrict__ first_in0, int64 first_in0_row_0, const int64 *__restrict__ first_in1, int64 first_in1_row_0, const float *__restrict__ first_in2, int64 first_in2_row_0, int64 first_in2_index, int64 last_columns, int64 last_rows, int64 last_block_rows, int64 last_block_columns, int64 last_pieces, float *__restrict__ last_out1, float last_number_0) {
    const unsigned blocks = gridDim.x - 1, collector = blocks / 8 * 7;
    if (blockIdx.x != collector) { first::run(blockIdx.x - (blockIdx.x > collector), first_columns, first_rows, first_block_rows, first_block_columns, first_pieces, first_in0, first_in0_row_0, first_in1, first_in1_row_0, first_in2, first_in2_row_0, first_in2_index, left_0); return; }
    SHARED_ARRAY(taken_0, last::THREADS);
    taken_0[threadIdx.x] = take_parts<Sum, last::THREADS>(left_0, blocks);
    __syncthreads();
    last::run(0, last_columns, last_rows, last_block_rows, last_block_columns, last_pieces, taken_0, last_out1, last_number_0);
}
