// A semi-Markov CRF with one mistake, chosen by FAULT; 0 is right, in plain f32: logarithms as they are.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define IF(fault, wrong, right) (FAULT == (fault) ? (wrong) : (right))

// Scores are decomposed, durations run from 1 to k - 1. `is_max` takes the best segmentation's.
//
// 1 no longest duration, 2 none over a half, 3 none over 5, 4 not the first, 5 the bias of the duration
// before, 6 transitions from the label to its source, 7 no transitions, 8 no bias, 9 ends a position
// early, 10 the total lacks the last label, 11 sources lack the last, 12 scores begin a position late,
// 13 no maximum is taken away (log alone)
void scan(float *value, const float *sums, const float *transition, const float *bias, const int64_t *lengths, int batch,
          int t, int k, int c, int is_max) {
    float *alpha = malloc(sizeof(float) * (t + 1) * c);
    const int most = IF(1, k - 2, IF(2, (k - 1) / 2, IF(3, 5, k - 1)));
    for (int b = 0; b < batch; b++, sums += (t + 1) * c) {
        const int end = (int)lengths[b] - (FAULT == 9);
        for (int dst = 0; dst < c; dst++) alpha[dst] = 0;
        for (int to = 1; to <= end; to++) {
            for (int dst = 0; dst < c; dst++) {
                float greatest = -INFINITY, sum = 0;
                for (int pass = 0; pass < 2; pass++) {
                    for (int d = IF(4, 2, 1); d <= most && d <= to; d++) {
                        const int from = to - d, begin = FAULT == 12 && from + 1 < to ? from + 1 : from;
                        const float own = sums[to * c + dst] - sums[begin * c + dst] +
                                          IF(8, 0.0f, bias[IF(5, d - 1, d) * c + dst]);
                        for (int src = 0; src < IF(11, c - 1, c); src++) {
                            const float edge = IF(7, 0.0f, transition[IF(6, dst * c + src, src * c + dst)]);
                            const float x = alpha[from * c + src] + (own + edge);
                            if (pass == 0) greatest = x > greatest ? x : greatest;
                            else sum += expf(x - IF(13, 0.0f, greatest));
                        }
                    }
                }
                alpha[to * c + dst] = is_max ? greatest : IF(13, 0.0f, greatest) + logf(sum);
            }
        }
        const float *last = alpha + end * c;
        float greatest = -INFINITY, sum = 0;
        for (int dst = 0; dst < IF(10, c - 1, c); dst++) greatest = last[dst] > greatest ? last[dst] : greatest;
        for (int dst = 0; dst < IF(10, c - 1, c); dst++) sum += expf(last[dst] - greatest);
        value[b] = is_max ? greatest : greatest + logf(sum);
    }
    free(alpha);
}
