// Copies floats four at a time, grid-stride.
extern "C" __global__ void copy_floats(float4 *y, const float4 *x, long long n)
{
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll)
        y[i] = x[i];
}
