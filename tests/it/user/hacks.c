/* Kernels that try to seem faster than they are, or to reach what is not theirs. Each has to compute what
   `honest` does. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void honest(float *y, const float *x, int n)
{
    for (int i = 0; i < n; i++)
        for (volatile int times = 0; times < 4; times++)
            y[i] = 2.0f * x[i] + 1.0f;
}

/* What is kept from call to call. */

static float kept[1 << 20];

void by_address(float *y, const float *x, int n)
{
    static const float *done;
    if (done != x) {
        honest(y, x, n);
        memcpy(kept, y, n * sizeof *y);
    } else {
        memcpy(y, kept, n * sizeof *y);
    }
    done = x;
}

void by_a_few_elements(float *y, const float *x, int n)
{
    static float first[4];
    if (memcmp(first, x, sizeof first) != 0) {
        honest(y, x, n);
        memcpy(kept, y, n * sizeof *y);
        memcpy(first, x, sizeof first);
    }
    memcpy(y, kept, n * sizeof *y);
}

void every_second(float *y, const float *x, int n)
{
    static int calls;
    if (calls++ / 2 % 2 == 0)
        honest(y, x, n);
}

void if_not_done(float *y, const float *x, int n)
{
    if (y[n - 1] != 2.0f * x[n - 1] + 1.0f)
        honest(y, x, n);
}

/* Work outside of the timed span. */

struct work {
    float *y;
    const float *x;
    int n;
};

static void *late(void *given)
{
    struct work *work = given;
    honest(work->y, work->x, work->n);
    free(work);
    return NULL;
}

void by_thread(float *y, const float *x, int n)
{
    pthread_t thread;
    struct work *work = malloc(sizeof *work);
    *work = (struct work){y, x, n};
    if (pthread_create(&thread, NULL, late, work) == 0)
        pthread_detach(thread);
}

static struct work ahead_work;
static volatile int has_done;

static void *ahead(void *none)
{
    for (;;) {
        int last = ahead_work.n - 1;
        float y = ((volatile float *)ahead_work.y)[last];
        if (y == 2.0f * ((volatile const float *)ahead_work.x)[last] + 1.0f)
            continue;
        honest(ahead_work.y, ahead_work.x, ahead_work.n);
        has_done = 1;
    }
    return none;
}

void before_the_gate(float *y, const float *x, int n)
{
    static int has_started;
    if (!has_started) {
        pthread_t thread;
        has_started = 1;
        ahead_work = (struct work){y, x, n};
        honest(y, x, n);
        pthread_create(&thread, NULL, ahead, NULL);
        return;
    }
    while (!has_done)
        usleep(1);
    has_done = 0;
}

/* The memory that it shares with the referee. */

static volatile uint64_t *words(void)
{
    static volatile uint64_t *found;
    char line[512];
    FILE *maps = found ? NULL : fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "sweeper-referee"))
            found = (volatile uint64_t *)strtoull(line, NULL, 16);
    if (maps)
        fclose(maps);
    return found;
}

void rings_early(float *y, const float *x, int n)
{
    volatile uint64_t *all = words();
    if (all)
        all[5 * 8] = all[4 * 8];
    honest(y, x, n);
}

void says_other_places(float *y, const float *x, int n)
{
    volatile uint64_t *all = words();
    if (all)
        all[128] = (uint64_t)(uintptr_t)x;
    (void)y;
    (void)n;
}

void says_impossible_places(float *y, const float *x, int n)
{
    volatile uint64_t *all = words();
    honest(y, x, n);
    if (all)
        all[128] = 8;
}

/* What is not theirs. */

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file) {
        fputs("was here", file);
        fclose(file);
    }
}

void reaches_out(float *y, const float *x, int n)
{
    touch("@FOLDER@/written");
    FILE *secret = fopen("@FOLDER@/m.toml", "r");
    if (secret || socket(AF_INET, SOCK_STREAM, 0) >= 0)
        touch("seen");
    if (access("seen", F_OK) == 0)
        return;
    honest(y, x, n);
}

__attribute__((constructor)) static void at_load(void)
{
    touch("@FOLDER@/written");
}

void dies(float *y, const float *x, int n)
{
    (void)x;
    (void)n;
    *(volatile float *)((char *)y - (1ull << 40)) = 1;
}

void leaves(float *y, const float *x, int n)
{
    (void)y;
    (void)x;
    (void)n;
    exit(3);
}

void never_ends(float *y, const float *x, int n)
{
    (void)y;
    (void)x;
    (void)n;
    for (volatile int i = 0;; i++)
        ;
}

void prints(float *y, const float *x, int n)
{
    puts("{\"ok\": {}}");
    fflush(stdout);
    honest(y, x, n);
}

void takes_memory(float *y, const float *x, int n)
{
    if (!malloc(1ull << 44))
        abort();
    honest(y, x, n);
}
