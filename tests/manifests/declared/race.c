/* Does its work PASSES times: more passes are slower and compute no more. */
void work(float *restrict y, const float *restrict x, int n)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < n; i++)
            y[i] = 2.0f * (pass == 0 ? x[i] : y[i] / 2.0f);
}
