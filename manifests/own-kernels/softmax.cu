// Softmax of rows: a block for each row, `block_size` threads. `y` may not be `x`.
#include "block_reduce.cuh"

template <int THREADS>
__global__ void softmax(float *y, const float *x, int columns)
{
    const float *row = x + (long long)blockIdx.x * columns;
    float *out = y + (long long)blockIdx.x * columns;

    float greatest = -INFINITY_F;
    for (int column = threadIdx.x; column < columns; column += THREADS)
        greatest = fmaxf(greatest, row[column]);
    greatest = block_reduce<THREADS>(greatest, [](float a, float b) { return fmaxf(a, b); });

    float sum = 0.0f;
    for (int column = threadIdx.x; column < columns; column += THREADS)
        sum += __expf(row[column] - greatest);
    sum = block_reduce<THREADS>(sum, [](float a, float b) { return a + b; });

    const float scale = 1.0f / sum;
    for (int column = threadIdx.x; column < columns; column += THREADS)
        out[column] = __expf(row[column] - greatest) * scale;
}
