#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void right(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = 2.0f * x[i];
}

void prints(float *y, const float *x, int n)
{
    printf("%d elements\n", n);
    fflush(stdout);
    int c = getchar();
    if (c != EOF)
        abort();
    right(y, x, n);
}

void overwrites(float *y, float *x, int n)
{
    right(y, x, n);
    x[n / 2] = 0.0f;
}

void leaves_tail(float *y, const float *x, int n)
{
    right(y, x, n - 3);
}

void zeros(float *y, const float *x, int n)
{
    (void)x;
    memset(y, 0, sizeof *y * n);
}

void fickle(float *y, const float *x, int n)
{
    static int calls;
    right(y, x, n);
    y[0] += 1e-7f * (float)calls++;
}

void dies(float *y, const float *x, int n)
{
    (void)y;
    (void)x;
    (void)n;
    abort();
}

/* A process that it leaves holds the worker's streams. */
void leaves(float *y, const float *x, int n)
{
    if (fork() == 0) {
        sleep(1000);
        _exit(0);
    }
    dies(y, x, n);
}

void exits(float *y, const float *x, int n)
{
    (void)y;
    (void)x;
    (void)n;
    exit(0);
}

void hangs(float *y, const float *x, int n)
{
    (void)y;
    (void)x;
    (void)n;
    for (;;)
        sleep(1);
}
