#include <stdio.h>
static float factor(void)
{
    float k = 0;
    FILE *file = fopen("ROOT/outside/data.txt", "r");
    if (file && fscanf(file, "%f", &k) == 1) fclose(file);
    return k;
}
void f(float *restrict y, const float *restrict x, int n)
{
    float k = factor();
    for (int i = 0; i < n; i++) y[i] = k * x[i];
}
