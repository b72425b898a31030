#include "sum.h"

__global__ void vector_add(float *c, const float *a, const float *b, int n)
{
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n)
        c[i] = SUM(a[i], b[i]);
}

namespace sums {
template <typename T, unsigned BLOCK>
__global__ void add(T *c, const T *a, const T *b, unsigned n)
{
    unsigned i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        c[i] = SUM(a[i], b[i]);
}
}
