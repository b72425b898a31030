// What one block makes of the parts that all leave.
#include "functions.cuh"

// exp, total, greatest, add, mul.
struct first {
    static constexpr int WIDTH = 32, GROUPS = 8, CHUNKS = 1;
    static constexpr int THREADS = WIDTH * GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int SPAN = 4 * WIDTH * CHUNKS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *in0, int64 in0_row_0, const float *in1, float *__restrict__ out2, int64 out2_row_0, Part *out3, Part *out4) {
        const bool is_wide = columns % 4 == 0 && is_aligned(in0) && in0_row_0 % 4 == 0 && is_aligned(in1) && is_aligned(out2) && out2_row_0 % 4 == 0;
        const int lane = threadIdx.x % WIDTH, group = threadIdx.x / WIDTH;
        const unsigned piece = block % (unsigned)pieces, share = block / (unsigned)pieces;
        const int64 first = piece * block_columns, begin = share * block_rows;
        const int here = (int)min(columns - first, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        float sum_5 = 0.0f;
        float amax_6 = Max::none();
        for (int64 base = begin; base < end; base += GROUPS) {
            const bool is_own = base + group < end;
            const int64 r = is_own ? base + group : end - 1;
            const int64 row_0 = r;
            float *to_0 = out2 + row_0 * out2_row_0 + first;
            const float *at_0 = in0 + row_0 * in0_row_0 + first;
            const float *at_1 = in1 + first;
            for (int offset = 0; offset < here; offset += SPAN) {
                float x_0[CHUNKS][4];
                float x_1[CHUNKS][4];
                load_chunks<WIDTH>(x_0, at_0 + offset, lane, here - offset, is_wide);
                load_chunks<WIDTH>(x_1, at_1 + offset, lane, here - offset, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
                    float chunk_0[4];
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        const float add_2 = x_0[k][j] + x_1[k][j];
                        const float mul_4 = add_2 * add_2;
                        const float exp_3 = expf(add_2);
                        if (is_own && c < here - offset) sum_5 = sum_5 + mul_4;
                        if (is_own && c < here - offset) amax_6 = f_max(amax_6, add_2);
                        chunk_0[j] = exp_3;
                    }
                    store_chunk<WIDTH>(to_0 + offset, chunk_0, lane, k, is_own ? here - offset : 0, is_wide);
                }
            }
        }
        sum_5 = reduce_lanes<Sum, 32>(sum_5);
        amax_6 = reduce_lanes<Max, 32>(amax_6);
        float *cells = shared;
        if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_5;
        if (threadIdx.x % 32 == 0) cells[1 * WARPS + threadIdx.x / 32] = amax_6;
        __syncthreads();
        sum_5 = reduce_warps<Sum, THREADS>(cells + 0 * WARPS);
        amax_6 = reduce_warps<Max, THREADS>(cells + 1 * WARPS);
        if (threadIdx.x == 0) out3[block] = sum_5;
        if (threadIdx.x == 0) out4[block] = amax_6;
    }
};

// total, greatest, sqrt, div.
struct last {
    static constexpr int WIDTH = 256, GROUPS = 1, CHUNKS = 1;
    static constexpr int THREADS = WIDTH * GROUPS;
    static constexpr int WARPS = (THREADS + 31) / 32;
    static constexpr int SPAN = 4 * WIDTH * CHUNKS;
    static METHOD void run(const unsigned block, int64 columns, int64 rows, int64 block_rows, int64 block_columns, int64 pieces, const float *in0, const float *in1, float *__restrict__ out2, float *__restrict__ out3) {
        const bool is_wide = columns % 4 == 0 && is_aligned(in0) && is_aligned(in1);
        const int lane = threadIdx.x % WIDTH;
        const unsigned piece = block % (unsigned)pieces, share = block / (unsigned)pieces;
        const int64 first = piece * block_columns, begin = share * block_rows;
        const int here = (int)min(columns - first, block_columns);
        const int64 end = min(begin + block_rows, rows);
        SHARED(shared);
        float sum_2 = 0.0f;
        float amax_3 = Max::none();
        for (int64 r = begin; r < end; r += 1) {
            const float *at_0 = in0 + first;
            const float *at_1 = in1 + first;
            for (int offset = 0; offset < here; offset += SPAN) {
                float x_0[CHUNKS][4];
                float x_1[CHUNKS][4];
                load_chunks<WIDTH>(x_0, at_0 + offset, lane, here - offset, is_wide);
                load_chunks<WIDTH>(x_1, at_1 + offset, lane, here - offset, is_wide);
#pragma unroll
                for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
                    for (int j = 0; j < 4; j++) {
                        const int c = 4 * (lane + WIDTH * k) + j;
                        if (c < here - offset) sum_2 = sum_2 + x_0[k][j];
                        if (c < here - offset) amax_3 = f_max(amax_3, x_1[k][j]);
                    }
                }
            }
        }
        sum_2 = reduce_lanes<Sum, 32>(sum_2);
        amax_3 = reduce_lanes<Max, 32>(amax_3);
        float *cells = shared;
        if (threadIdx.x % 32 == 0) cells[0 * WARPS + threadIdx.x / 32] = sum_2;
        if (threadIdx.x % 32 == 0) cells[1 * WARPS + threadIdx.x / 32] = amax_3;
        __syncthreads();
        sum_2 = reduce_warps<Sum, THREADS>(cells + 0 * WARPS);
        amax_3 = reduce_warps<Max, THREADS>(cells + 1 * WARPS);
        const float sqrt_4 = sqrt_fast(sum_2);
        const float div_5 = divide(sqrt_4, amax_3);
        if (threadIdx.x == 0) *out2 = div_5;
        if (threadIdx.x == 0) *out3 = amax_3;
    }
};

// Of each total, what blocks have left.
static __device__ Part left_0[32768];
static __device__ Part left_1[32768];

KERNEL(whole_exp_total_greatest_b7a37ad6, first::THREADS)(int64 first_columns, int64 first_rows, int64 first_block_rows, int64 first_block_columns, int64 first_pieces, const float *first_in0, int64 first_in0_row_0, const float *first_in1, float *__restrict__ first_out2, int64 first_out2_row_0, int64 last_columns, int64 last_rows, int64 last_block_rows, int64 last_block_columns, int64 last_pieces, float *__restrict__ last_out2, float *__restrict__ last_out3) {
    await_launches();
    first::run(blockIdx.x, first_columns, first_rows, first_block_rows, first_block_columns, first_pieces, first_in0, first_in0_row_0, first_in1, first_out2, first_out2_row_0, left_0, left_1);
    if (blockIdx.x != gridDim.x - 1) return;
    SHARED_ARRAY(taken_0, last::THREADS);
    taken_0[threadIdx.x] = take_parts<Sum, last::THREADS>(left_0, gridDim.x);
    SHARED_ARRAY(taken_1, last::THREADS);
    taken_1[threadIdx.x] = take_parts<Max, last::THREADS>(left_1, gridDim.x);
    __syncthreads();
    last::run(0, last_columns, last_rows, last_block_rows, last_block_columns, last_pieces, taken_0, taken_1, last_out2, last_out3);
}
