void axpy(float *restrict y, const float *restrict x, float alpha, int n)
{
    int i = 0;
    for (; i + UNROLL <= n; i += UNROLL)
        for (int j = 0; j < UNROLL; j++)
            y[i + j] = alpha * x[i + j] + y[i + j];
    for (; i < n; i++)
        y[i] = alpha * x[i] + y[i];
}
