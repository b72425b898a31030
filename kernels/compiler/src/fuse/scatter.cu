// out[v] = sum of values[i] over all i with indices[i] = v. A block owns `block_rows` rows of the
// result and a piece of their columns; it looks at INDICES indices at once, and adds rows in the
// order of their indices, a thread its own columns.
#include "cuda.h"

#define THREADS 256
// Indices that a thread looks at, and all that are looked at, at once.
#define EACH 4
#define INDICES (EACH * THREADS)
// Columns of a piece.
#define PIECE (4 * THREADS)

KERNEL(scatter_add, THREADS)
(const float *__restrict__ values, const int64 *__restrict__ indices, float *__restrict__ out, int64 count,
 int64 rows, int64 columns, int64 block_rows) {
    // Of the indices at hand: the owned row, or -1; and whether there is one among each 32.
    SHARED_ARRAY(own_rows, INDICES);
    SHARED_ARRAY(is_any, INDICES / 32);
    int *own = (int *)own_rows, *any = (int *)is_any;
    const int64 pieces = (columns + PIECE - 1) / PIECE;
    const int64 first = blockIdx.x / pieces * block_rows;
    const int64 end = first + block_rows < rows ? first + block_rows : rows;
    const int64 from = blockIdx.x % pieces * PIECE + threadIdx.x;
    const int64 to = min(columns, (int64)(blockIdx.x % pieces + 1) * PIECE);
    for (int64 row = first; row < end; row++)
        for (int64 column = from; column < to; column += THREADS) out[row * columns + column] = 0;
    for (int64 start = 0; start < count; start += INDICES) {
        int64 found[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int64 i = start + k * THREADS + threadIdx.x;
            found[k] = i < count ? indices[i] : -1;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int at = k * THREADS + threadIdx.x;
            const bool is_own = found[k] >= first && found[k] < end;
            own[at] = is_own ? (int)(found[k] - first) : -1;
            const bool is_any_own = warp_any(is_own);
            if (threadIdx.x % 32 == 0) any[at / 32] = is_any_own;
        }
        __syncthreads();
        for (int part = 0; part < INDICES / 32; part++) {
            if (!any[part]) continue;
            for (int j = part * 32; j < part * 32 + 32; j++) {
                if (own[j] < 0) continue;
                for (int64 column = from; column < to; column += THREADS)
                    out[(first + own[j]) * columns + column] += values[(start + j) * columns + column];
            }
        }
        __syncthreads();
    }
}
