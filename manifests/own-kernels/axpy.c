/* y = alpha x + y */
void axpy(float *restrict y, const float *restrict x, float alpha, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = alpha * x[i] + y[i];
}
