// Stores past the caches, and loads asked for ahead. gcc and clang; ordinary stores where there are
// no others.
//
// Such a store (non-temporal) saves reading the line that it overwrites, but whoever reads that
// next finds it in memory alone. Results are the same, bit by bit.
#ifndef SWEEPER_NONTEMPORAL_H
#define SWEEPER_NONTEMPORAL_H

#include "vector.h"

// Tensors are large from so many bytes on. Measured on a Xeon with 2 MiB of second-level cache a
// core: writing a tensor past the caches and then adding it up takes less time in sum from 32 MiB
// on, and more up to 8 MiB (docs/performance/operations-cpu.md).
#ifndef LARGE_BYTES
#define LARGE_BYTES (32 << 20)
#endif
static inline int is_large(int64_t floats) { return floats >= LARGE_BYTES / 4; }

// Whether rows that are `step` floats apart all begin with a whole line: only those go past the
// caches. Where some rows do and others do not, storing in both ways is slower than storing all as
// usual.
static inline int is_lines(const float *to, int64_t step) {
    return ((uintptr_t)to & 63) == 0 && step % LINE == 0;
}

// Stores a vector of a line whose others are stored so, too. Other stores may overtake it, until
// there is a fence.
static inline void v_store_nontemporal(float *to, vf x) {
#if defined(__clang__)
    __builtin_nontemporal_store(x, (vf *)to);
#elif LANES == 16
    __builtin_ia32_movntps512(to, x);
#elif LANES == 8
    __builtin_ia32_movntps256(to, x);
#elif defined(__SSE__)
    __builtin_ia32_movntps(to, x);
#else
    v_store(to, x);
#endif
}
static inline void v_fence(void) {
#ifdef __SSE__
    __builtin_ia32_sfence();
#endif
}

// Asks for what is loaded soon, 4 KiB ahead where tensors are large; it may lie behind the memory's
// end. Without it, stores past the caches make gelu slower, not faster; an eighth of the distance
// is a quarter slower. Elsewhere it asks for what is loaded right away: a branch would double
// loops, and compile longer.
static inline void v_prefetch(const float *from, int large) {
    __builtin_prefetch((const void *)((uintptr_t)from + (uintptr_t)large * 4096));
}

#endif
