// Sixteen floats at a time, in GNU vector extensions: the same text for any processor, in one
// register where they are 512 bits wide and in several where they are not. gcc and clang.
#ifndef SWEEPER_VECTOR_H
#define SWEEPER_VECTOR_H

#include <stdint.h>

#define LANES 16

// A function of its own, with all the registers: around long loops, and for what runs rarely. Not
// `cold`, which asks gcc for the smallest code: rare here is still often.
#define APART __attribute__((noinline))

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef int64_t vl __attribute__((vector_size(64)));
typedef double vd __attribute__((vector_size(64)));
typedef float vf_half __attribute__((vector_size(32)));
typedef int32_t vi_half __attribute__((vector_size(32)));
typedef float vf_anywhere __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vi_anywhere __attribute__((vector_size(64), aligned(4), may_alias));

static inline vf v_load(const float *from) { return *(const vf_anywhere *)from; }
static inline void v_store(float *to, vf x) { *(vf_anywhere *)to = x; }
static inline vi vi_load(const int32_t *from) { return *(const vi_anywhere *)from; }

// x - 0 is x for every x, so that this is a broadcast and nothing else.
static inline vf v_all(float x) { return x - (vf){}; }

// The first `count` lanes from memory, which ends there; `rest` in the others.
static inline vf v_load_part(const float *from, int64_t count, float rest) {
    float lanes[LANES];
    for (int i = 0; i < LANES; i++) lanes[i] = i < count ? from[i] : rest;
    return v_load(lanes);
}

// a where the mask is set (all bits of a lane), else b.
static inline vf v_select(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

#if defined(__AVX__) && !defined(__AVX512F__)
// Halves of vectors: what gcc has no instruction for in whole ones, it does lane by lane.
static inline vf_half v_low(vf x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7); }
static inline vf_half v_high(vf x) { return __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15); }
#define V_BOTH(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#endif

// a < b, all bits of each lane.
static inline vi v_less(vf a, vf b) {
#if defined(__AVX__) && !defined(__AVX512F__)
    const vi_half low = v_low(a) < v_low(b), high = v_high(a) < v_high(b);
    return V_BOTH(low, high);
#else
    return a < b;
#endif
}

// a > b ? a : b, and the lesser. The instruction is named where there is one: gcc takes a lane loop
// with a uniform operand apart into sixteen branches, and spends three instructions on a select.
static inline vf v_max(vf a, vf b) {
#ifdef __AVX512F__
    vf r;
    __asm__("vmaxps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
    return r;
#elif defined(__AVX__)
    return V_BOTH(__builtin_ia32_maxps256(v_low(a), v_low(b)), __builtin_ia32_maxps256(v_high(a), v_high(b)));
#else
    return v_select(a > b, a, b);
#endif
}
static inline vf v_min(vf a, vf b) {
#ifdef __AVX512F__
    vf r;
    __asm__("vminps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
    return r;
#elif defined(__AVX__)
    return V_BOTH(__builtin_ia32_minps256(v_low(a), v_low(b)), __builtin_ia32_minps256(v_high(a), v_high(b)));
#else
    return v_select(a < b, a, b);
#endif
}

static inline vi v_iota(void) { return (vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }

// The lanes below `count`.
static inline vi v_first(int64_t count) { return v_iota() < ((int32_t)count - (vi){}); }

static inline int v_any(vi mask) {
#ifdef __AVX512F__
    int any;
    __asm__("vptestmd %1, %1, %%k1\n\tkortestw %%k1, %%k1" : "=@ccnz"(any) : "v"(mask) : "k1");
    return any;
#elif defined(__AVX__)
    typedef long long vl_half __attribute__((vector_size(32)));
    const vl wide = (vl)mask;
    const vl_half low = (vl_half)__builtin_shufflevector(wide, wide, 0, 1, 2, 3);
    const vl_half either = low | (vl_half)__builtin_shufflevector(wide, wide, 4, 5, 6, 7);
    return !__builtin_ia32_ptestz256(either, either);
#else
    const vl wide = (vl)mask;
    return (wide[0] | wide[1] | wide[2] | wide[3] | wide[4] | wide[5] | wide[6] | wide[7]) != 0;
#endif
}

// Sixteen doubles, for sums whose terms are large and whose result is small.
typedef struct {
    vd low, high;
} Wide;

static inline Wide v_widen(vf x) {
    const vf_half low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
    const vf_half high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    return (Wide){__builtin_convertvector(low, vd), __builtin_convertvector(high, vd)};
}
static inline vf v_narrow(Wide x) {
    const vf_half low = __builtin_convertvector(x.low, vf_half);
    const vf_half high = __builtin_convertvector(x.high, vf_half);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// Lane i of the result is lane `at[i]` of x, each from 0 to 15.
static inline vf v_permute(vf x, vi at) {
#ifdef __clang__
    vf r;
    for (int i = 0; i < LANES; i++) r[i] = x[at[i]];
    return r;
#else
    return __builtin_shuffle(x, at);
#endif
}

// The lanes of each pair exchanged.
static inline vf v_swapped_pairs(vf x) {
    return __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
}

// Every second of the 32 lanes of a and b, from the first or from the second one.
static inline vf v_even(vf a, vf b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
static inline vf v_odd(vf a, vf b) {
    return __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}

// Every third of the 48 lanes of a, b and c, from the first, second or third one.
static inline vf v_third0(vf a, vf b, vf c) {
    const vf ab = __builtin_shufflevector(a, b, 0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0, 0, 0, 0, 0);
    return __builtin_shufflevector(ab, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 20, 23, 26, 29);
}
static inline vf v_third1(vf a, vf b, vf c) {
    const vf ab = __builtin_shufflevector(a, b, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 0, 0, 0, 0, 0);
    return __builtin_shufflevector(ab, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 18, 21, 24, 27, 30);
}
static inline vf v_third2(vf a, vf b, vf c) {
    const vf ab = __builtin_shufflevector(a, b, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0, 0, 0, 0, 0, 0);
    return __builtin_shufflevector(ab, c, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19, 22, 25, 28, 31);
}

#define V_FOLD(name, combine)                                                                      \
    static inline float name(vf x) {                                                               \
        x = combine(x, __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4,  \
                                               5, 6, 7));                                          \
        x = combine(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, \
                                               10, 11));                                           \
        x = combine(x, __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, \
                                               12, 13));                                           \
        x = combine(x, v_swapped_pairs(x));                                                        \
        return x[0];                                                                               \
    }
static inline vf v_add(vf a, vf b) { return a + b; }
V_FOLD(v_greatest, v_max)
V_FOLD(v_sum, v_add)

#endif
