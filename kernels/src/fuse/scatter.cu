// out[v] = sum of values[i] over all i with indices[i] = v; a block owns `block_rows` rows of the result, a
// thread one column of them.

extern "C" __global__ void scatter_add(const float *__restrict__ values,
                                       const long long *__restrict__ indices, float *__restrict__ out,
                                       long long count, long long rows, long long columns,
                                       long long block_rows) {
    const long long pieces = (columns + blockDim.x - 1) / blockDim.x;
    const long long first = blockIdx.x / pieces * block_rows;
    const long long end = first + block_rows < rows ? first + block_rows : rows;
    const long long column = blockIdx.x % pieces * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    for (long long row = first; row < end; row++) out[row * columns + column] = 0;
    for (long long i = 0; i < count; i++) {
        const long long row = indices[i];
        if (row >= first && row < end) out[row * columns + column] += values[i * columns + column];
    }
}
