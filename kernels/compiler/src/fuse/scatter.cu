// out[v] = sum of values[i] over all i with indices[i] = v. A block owns `block_rows` rows of the
// result and a piece of their columns; it looks at as many indices at once as it has threads, and
// adds rows in the order of their indices, a thread its own columns.
#include "cuda.h"

#define THREADS 256
#define WARPS (THREADS / 32)
// Columns of a piece.
#define PIECE (4 * THREADS)

KERNEL(scatter_add, THREADS)
(const float *__restrict__ values, const int64 *__restrict__ indices, float *__restrict__ out, int64 count,
 int64 rows, int64 columns, int64 block_rows) {
    // Of the indices at hand: the owned row, or -1; and whether there is one among those of a warp.
    SHARED_ARRAY(own_rows, THREADS);
    SHARED_ARRAY(is_any, WARPS);
    int *own = (int *)own_rows, *any = (int *)is_any;
    const int64 pieces = (columns + PIECE - 1) / PIECE;
    const int64 first = blockIdx.x / pieces * block_rows;
    const int64 end = first + block_rows < rows ? first + block_rows : rows;
    const int64 from = blockIdx.x % pieces * PIECE + threadIdx.x;
    const int64 to = min(columns, (int64)(blockIdx.x % pieces + 1) * PIECE);
    for (int64 row = first; row < end; row++)
        for (int64 column = from; column < to; column += THREADS) out[row * columns + column] = 0;
    for (int64 start = 0; start < count; start += THREADS) {
        const int64 i = start + threadIdx.x;
        const int64 row = i < count ? indices[i] : -1;
        const bool is_own = row >= first && row < end;
        own[threadIdx.x] = is_own ? (int)(row - first) : -1;
        const bool is_any_own = warp_any(is_own);
        if (threadIdx.x % 32 == 0) any[threadIdx.x / 32] = is_any_own;
        __syncthreads();
        for (int j = 0; j < THREADS; j++) {
            if (j % 32 == 0 && !any[j / 32]) {
                j += 31;
                continue;
            }
            if (own[j] < 0) continue;
            for (int64 column = from; column < to; column += THREADS)
                out[(first + own[j]) * columns + column] += values[(start + j) * columns + column];
        }
        __syncthreads();
    }
}
