// y = alpha x + y
extern "C" __global__ void axpy(float *y, const float *x, float alpha, int n)
{
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = alpha * x[i] + y[i];
}
