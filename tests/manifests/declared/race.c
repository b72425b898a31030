/* Does its work PASSES times: more passes are slower and compute no more. Where CALLS is not 0, the
 * process dies in a later call. */
#include <stdlib.h>

#ifndef CALLS
#define CALLS 0
#endif

static int calls;

void work(float *restrict y, const float *restrict x, int n)
{
    calls++;
    if (CALLS > 0 && calls > CALLS)
        abort();
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < n; i++)
            y[i] = 2.0f * (pass == 0 ? x[i] : y[i] / 2.0f);
}
