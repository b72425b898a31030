// A sum over neighbours with weights in constant memory, in a namespace and out of it.
#define MOST 9
__constant__ float d_filter[MOST];
namespace scales {
__constant__ float by[2];
}

__global__ void filtered(float *y, const float *x, int n, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float sum = 0;
    for (int k = 0; k < width; k++)
        sum += d_filter[k] * x[(i + k) % n];
    y[i] = scales::by[0] * sum + scales::by[1];
}
