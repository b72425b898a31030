#pragma once

#define INFINITY_F __int_as_float(0x7f800000)

// The reduction of one value of each thread of a block, in every thread.
template <int THREADS, class Op>
__device__ float block_reduce(float value, Op op)
{
    __shared__ float of_warps[32];
    for (int lanes = 16; lanes > 0; lanes /= 2)
        value = op(value, __shfl_xor_sync(0xffffffffu, value, lanes));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warps[0];
    for (int warp = 1; warp < THREADS / 32; warp++)
        value = op(value, of_warps[warp]);
    return value;
}
