#define K 2
void f(float *restrict y, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++) y[i] = K * x[i];
}
