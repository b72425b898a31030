#include "sum.h"

void vector_add(float *restrict c, const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        c[i] = SUM(a[i], b[i]);
}
