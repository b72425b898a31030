// Vectors of floats as wide as the processor's registers, in GNU vector extensions: one text for
// all processors. gcc lowers what is wider than a register element by element, through memory.
#ifndef SWEEPER_VECTOR_H
#define SWEEPER_VECTOR_H

#include <stdint.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

// Floats of a line of cache. Workspaces are counted in lines, whatever vectors are.
#define LINE 16

// Lanes by their numbers. `V_APART_n`: the lanes exchanged whose numbers differ by n. `V_THIRDk`:
// every third lane of three vectors from the k-th on, first those of the first two, then the rest.
#if LANES == 16
#define V_IOTA 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define V_LOWER 0, 1, 2, 3, 4, 5, 6, 7
#define V_UPPER 8, 9, 10, 11, 12, 13, 14, 15
#define V_APART_8 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7
#define V_APART_4 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11
#define V_APART_2 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13
#define V_APART_1 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#define V_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define V_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define V_THIRD0_OF_TWO 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0, 0, 0, 0, 0
#define V_THIRD0_OF_REST 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29
#define V_THIRD1_OF_TWO 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 0, 0, 0, 0, 0
#define V_THIRD1_OF_REST 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30
#define V_THIRD2_OF_TWO 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0, 0, 0, 0, 0, 0
#define V_THIRD2_OF_REST 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31
#elif LANES == 8
#define V_IOTA 0, 1, 2, 3, 4, 5, 6, 7
#define V_LOWER 0, 1, 2, 3
#define V_UPPER 4, 5, 6, 7
#define V_APART_4 4, 5, 6, 7, 0, 1, 2, 3
#define V_APART_2 2, 3, 0, 1, 6, 7, 4, 5
#define V_APART_1 1, 0, 3, 2, 5, 4, 7, 6
#define V_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define V_ODD 1, 3, 5, 7, 9, 11, 13, 15
#define V_THIRD0_OF_TWO 0, 3, 6, 9, 12, 15, 0, 0
#define V_THIRD0_OF_REST 0, 1, 2, 3, 4, 5, 10, 13
#define V_THIRD1_OF_TWO 1, 4, 7, 10, 13, 0, 0, 0
#define V_THIRD1_OF_REST 0, 1, 2, 3, 4, 8, 11, 14
#define V_THIRD2_OF_TWO 2, 5, 8, 11, 14, 0, 0, 0
#define V_THIRD2_OF_REST 0, 1, 2, 3, 4, 9, 12, 15
#else
#define V_IOTA 0, 1, 2, 3
#define V_LOWER 0, 1
#define V_UPPER 2, 3
#define V_APART_2 2, 3, 0, 1
#define V_APART_1 1, 0, 3, 2
#define V_EVEN 0, 2, 4, 6
#define V_ODD 1, 3, 5, 7
#define V_THIRD0_OF_TWO 0, 3, 6, 0
#define V_THIRD0_OF_REST 0, 1, 2, 5
#define V_THIRD1_OF_TWO 1, 4, 7, 0
#define V_THIRD1_OF_REST 0, 1, 2, 6
#define V_THIRD2_OF_TWO 2, 5, 0, 0
#define V_THIRD2_OF_REST 0, 1, 4, 7
#endif

// A function of its own, with all the registers: around long loops, and for what runs rarely. Not
// `cold`, which asks gcc for the smallest code: rare here is still often.
#define APART __attribute__((noinline))

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef int64_t vl __attribute__((vector_size(4 * LANES)));
typedef double vd __attribute__((vector_size(4 * LANES)));
typedef float vf_half __attribute__((vector_size(2 * LANES)));
typedef int32_t vi_half __attribute__((vector_size(2 * LANES)));
typedef float vf_anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t vi_anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

static inline vf v_load(const float *from) { return *(const vf_anywhere *)from; }
static inline void v_store(float *to, vf x) { *(vf_anywhere *)to = x; }
static inline vi vi_load(const int32_t *from) { return *(const vi_anywhere *)from; }

// x - 0 is x for every x, so that this is a broadcast and nothing else.
static inline vf v_all(float x) { return x - (vf){}; }

// a where the mask is set (all bits of a lane), else b.
static inline vf v_select(vi mask, vf a, vf b) {
#if LANES == 8
    return __builtin_ia32_blendvps256(b, a, (vf)mask);
#elif defined(__SSE4_1__) && LANES == 4
    return __builtin_ia32_blendvps(b, a, (vf)mask);
#else
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
#endif
}

// a < b, all bits of each lane.
static inline vi v_less(vf a, vf b) { return a < b; }

// a > b ? a : b, and the lesser. The instruction is named where there is one: gcc takes a lane loop
// with a uniform operand apart into branches, and spends three instructions on a select.
static inline vf v_max(vf a, vf b) {
#if LANES == 16
    vf r;
    __asm__("vmaxps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
    return r;
#elif LANES == 8
    return __builtin_ia32_maxps256(a, b);
#elif defined(__SSE__)
    return __builtin_ia32_maxps(a, b);
#else
    return v_select(a > b, a, b);
#endif
}
static inline vf v_min(vf a, vf b) {
#if LANES == 16
    vf r;
    __asm__("vminps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
    return r;
#elif LANES == 8
    return __builtin_ia32_minps256(a, b);
#elif defined(__SSE__)
    return __builtin_ia32_minps(a, b);
#else
    return v_select(a < b, a, b);
#endif
}

static inline vi v_iota(void) { return (vi){V_IOTA}; }

// The lanes below `count`.
static inline vi v_first(int64_t count) { return v_iota() < ((int32_t)count - (vi){}); }

// The first `count` lanes from memory, which ends there; `rest` in the others.
static inline vf v_load_part(const float *from, int64_t count, float rest) {
#if LANES == 8
    const vi first = v_first(count);
    return v_select(first, __builtin_ia32_maskloadps256((const vf *)from, first), v_all(rest));
#else
    float lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = i < count ? from[i] : rest;
    return v_load(lanes);
#endif
}

static inline int v_any(vi mask) {
#if LANES == 16
    int any;
    __asm__("vptestmd %1, %1, %%k1\n\tkortestw %%k1, %%k1" : "=@ccnz"(any) : "v"(mask) : "k1");
    return any;
#elif LANES == 8
    return __builtin_ia32_movmskps256((vf)mask) != 0;
#elif defined(__SSE__)
    return __builtin_ia32_movmskps((vf)mask) != 0;
#else
    const vl wide = (vl)mask;
    return (wide[0] | wide[1]) != 0;
#endif
}

// The lanes as doubles, for sums whose terms are large and whose result is small.
typedef struct {
    vd low, high;
} Wide;

static inline Wide v_widen(vf x) {
    const vf_half low = __builtin_shufflevector(x, x, V_LOWER), high = __builtin_shufflevector(x, x, V_UPPER);
    return (Wide){__builtin_convertvector(low, vd), __builtin_convertvector(high, vd)};
}
static inline vf v_narrow(Wide x) {
    const vf_half low = __builtin_convertvector(x.low, vf_half);
    const vf_half high = __builtin_convertvector(x.high, vf_half);
    return __builtin_shufflevector(low, high, V_IOTA);
}

// Lane i of the result is lane `at[i]` of x, each from 0 to LANES - 1.
static inline vf v_permute(vf x, vi at) {
#ifdef __clang__
    vf r;
    for (int i = 0; i < LANES; i++) r[i] = x[at[i]];
    return r;
#else
    return __builtin_shuffle(x, at);
#endif
}

// Every second of the lanes of a and b, from the first or from the second one.
static inline vf v_even(vf a, vf b) { return __builtin_shufflevector(a, b, V_EVEN); }
static inline vf v_odd(vf a, vf b) { return __builtin_shufflevector(a, b, V_ODD); }

// Every third of the lanes of a, b and c, from the first, second or third one.
static inline vf v_third0(vf a, vf b, vf c) {
    return __builtin_shufflevector(__builtin_shufflevector(a, b, V_THIRD0_OF_TWO), c, V_THIRD0_OF_REST);
}
static inline vf v_third1(vf a, vf b, vf c) {
    return __builtin_shufflevector(__builtin_shufflevector(a, b, V_THIRD1_OF_TWO), c, V_THIRD1_OF_REST);
}
static inline vf v_third2(vf a, vf b, vf c) {
    return __builtin_shufflevector(__builtin_shufflevector(a, b, V_THIRD2_OF_TWO), c, V_THIRD2_OF_REST);
}

// The lanes of each pair exchanged.
static inline vf v_swapped_pairs(vf x) { return __builtin_shufflevector(x, x, V_APART_1); }

#define V_APART(x, lanes) __builtin_shufflevector(x, x, V_APART_##lanes)
#if LANES >= 8
#define V_FOLD_4(x, combine) x = combine(x, V_APART(x, 4))
#else
#define V_FOLD_4(x, combine) (void)0
#endif
#if LANES >= 16
#define V_FOLD_8(x, combine) x = combine(x, V_APART(x, 8))
#else
#define V_FOLD_8(x, combine) (void)0
#endif
#define V_FOLD(name, combine)              \
    static inline float name(vf x) {       \
        V_FOLD_8(x, combine);              \
        V_FOLD_4(x, combine);              \
        x = combine(x, V_APART(x, 2));     \
        return combine(x, V_APART(x, 1))[0]; \
    }
static inline vf v_add(vf a, vf b) { return a + b; }
V_FOLD(v_greatest, v_max)
V_FOLD(v_sum, v_add)

#endif
