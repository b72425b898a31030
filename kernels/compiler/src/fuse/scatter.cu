// out[v] = sum of values[i] over all i with indices[i] = v; a block owns `block_rows` rows of the
// result, a thread one column of them.
#include "cuda.h"

KERNEL(scatter_add, 128)
(const float *__restrict__ values, const int64 *__restrict__ indices, float *__restrict__ out, int64 count,
 int64 rows, int64 columns, int64 block_rows) {
    const int64 pieces = (columns + blockDim.x - 1) / blockDim.x;
    const int64 first = blockIdx.x / pieces * block_rows;
    const int64 end = first + block_rows < rows ? first + block_rows : rows;
    const int64 column = blockIdx.x % pieces * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (int64 row = first; row < end; row++) out[row * columns + column] = 0;
    for (int64 i = 0; i < count; i++) {
        const int64 row = indices[i];
        if (row >= first && row < end) out[row * columns + column] += values[i * columns + column];
    }
}
