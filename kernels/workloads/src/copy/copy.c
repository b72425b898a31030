// out = x, `PIECE` elements a block.
#include "cpu.h"
#include "nontemporal.h"

KERNEL(copy_f32, args, block) {
    const float *restrict x = ARG_READ(args, 0, float);
    float *restrict out = ARG_WRITE(args, 1, float);
    const int64_t n = ARG_INT(args, 2);
    const int64_t first = (int64_t)block * PIECE;
    const int64_t end = first + PIECE < n ? first + PIECE : n;
    int64_t i = first;
    if (is_large(n) && is_lines(out + first, 0)) {
        for (; i + LANES <= end; i += LANES) {
            v_prefetch(x + i, 1);
            v_store_nontemporal(out + i, v_load(x + i));
        }
        v_fence();
    }
    for (; i < end; i++) out[i] = x[i];
}
