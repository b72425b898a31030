// Functions of generated kernels: elementwise ones of vectors, and loads, stores and whole
// numbers that vectors of f32 need beside them.
//
// Polynomials are Chebyshev fits in f64 of what their comment says, unless that says otherwise;
// errors are of the function.
#ifndef SWEEPER_FUNCTIONS_H
#define SWEEPER_FUNCTIONS_H

#include "elementary.h"
#include "nontemporal.h"

#define INLINE static inline __attribute__((always_inline))

// As many numbers of 64 bits as a vector has lanes.
typedef struct {
    vl low, high;
} Long;
typedef int64_t vl_anywhere __attribute__((vector_size(4 * LANES), aligned(8), may_alias));

// The first `count` lanes of memory; `count` is LANES wherever the compiler can see it. The other
// lanes are 0.
INLINE vf v_load_first(const float *from, int64_t count) {
    if (count == LANES) return v_load(from);
#ifdef __AVX512F__
    vf r;
    const uint32_t mask = (1u << count) - 1u;
    __asm__("kmovw %2, %%k1\n\tvmovups (%1), %0%{%%k1%}%{z%}"
            : "=v"(r)
            : "r"(from), "r"(mask), "m"(*(const float(*)[LANES])from)
            : "k1");
    return r;
#elif LANES == 8
    return __builtin_ia32_maskloadps256((const vf *)from, v_first(count));
#else
    return v_load_part(from, count, 0.0f);
#endif
}
INLINE void v_store_first(float *to, vf x, int64_t count) {
    if (count == LANES) {
        v_store(to, x);
        return;
    }
#ifdef __AVX512F__
    const uint32_t mask = (1u << count) - 1u;
    __asm__("kmovw %2, %%k1\n\tvmovups %1, (%0)%{%%k1%}"
            :
            : "r"(to), "v"(x), "r"(mask)
            : "k1", "memory");
#elif LANES == 8
    __builtin_ia32_maskstoreps256((vf *)to, v_first(count), x);
#else
    for (int i = 0; i < LANES; i++)
        if (i < count) to[i] = x[i];
#endif
}

// The same past the caches.
INLINE void v_store_past(float *to, vf x, int64_t count, int nontemporal) {
    if (nontemporal && count == LANES)
        v_store_nontemporal(to, x);
    else
        v_store_first(to, x, count);
}

// The first `count` lanes of memory whose elements lie `step` apart.
INLINE vf v_load_step(const float *from, int64_t step, int64_t count) {
    float lanes[LANES] = {0.0f};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[i * step];
    return v_load(lanes);
}
INLINE void v_store_step(float *to, int64_t step, vf x, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * step] = x[i];
}

// x in the first `count` lanes, `rest` in the others.
INLINE vf v_first_of(vf x, int64_t count, float rest) {
    return count == LANES ? x : v_select(v_first(count), x, v_all(rest));
}

// The exact sum of the lanes, but for the rounding of f64.
INLINE double v_sum_wide(vf x) {
    const Wide wide = v_widen(x);
    const vd s = wide.low + wide.high;
#if LANES == 16
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
#elif LANES == 8
    return (s[0] + s[2]) + (s[1] + s[3]);
#else
    return s[0] + s[1];
#endif
}

// 1 where the mask is set, else 0.
INLINE vf v_ones(vi mask) { return (vf)(mask & (vi)v_all(1.0f)); }

INLINE vf v_abs(vf x) { return (vf)((vi)x & 0x7fffffff); }
INLINE vf v_sign_of(vf x, vf sign) { return (vf)((vi)x | ((vi)sign & (int32_t)0x80000000)); }

INLINE vf v_sqrt(vf x) {
#ifdef __AVX512F__
    vf r;
    __asm__("vsqrtps %1, %0" : "=v"(r) : "v"(x));
    return r;
#elif LANES == 8
    vf r;
    __asm__("vsqrtps %1, %0" : "=x"(r) : "x"(x));
    return r;
#elif defined(__SSE__)
    return __builtin_ia32_sqrtps(x);
#elif defined(__aarch64__)
    vf r;
    __asm__("fsqrt %0.4s, %1.4s" : "=w"(r) : "w"(x));
    return r;
#else
    for (int i = 0; i < LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}
INLINE vf v_rsqrt(vf x) { return 1.0f / v_sqrt(x); }
INLINE vf v_reciprocal(vf x) { return 1.0f / x; }

// e^x over all f32: 2 units in the last place; 0 where less than the least normal number. The
// exponent of the greatest results takes two steps, so that what is too large is infinite.
INLINE vf v_e_to(vf x) {
    const vf most = v_all(89.0f), least = v_all(EXP_LEAST);
    const vf within = v_max(v_min(x, most), least);
    const vf shifted = within * 1.44269504088896341f + ROUNDER;
    const vf n = shifted - ROUNDER;
    const vf r = (within - n * LN2_HIGH) - n * LN2_LOW;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const vi beyond = n > 127.0f;
    const vf y = (vf)((vi)p + (((vi)shifted + beyond) << 23));
    const vf power = y + v_select(beyond, y, v_all(0.0f));
    return v_select(x >= least, power, v_select(x == x, v_all(0.0f), x));
}

// 3 units in the last place; numbers that are less than the least normal one count as that.
INLINE vf v_ln(vf x) {
    const vf least = v_all(1.17549435e-38f), infinite = v_all(__builtin_inff());
    vf r = v_log(v_max(x, least));
    r = v_select(x == infinite, x, r);
    r = v_select(x == 0.0f, -infinite, r);
    return v_select((x < 0.0f) | (x != x), v_all(__builtin_nanf("")), r);
}

// 2 units in the last place. The square of e^(-x/2) is infinite and 0 where e^-x is, without more
// ado; 0 times a number that is no NaN is 0.
INLINE vf v_sigmoid(vf x) {
    const vf half = v_max(v_all(EXP_LEAST), v_min(v_all(EXP_MOST), x * -0.5f));
    const vf root = v_exp_within(half);
    return 1.0f / (root * root + (half * 0.0f + 1.0f));
}

// 3 units in the last place. Small arguments: (tanh x / x - 1) / x^2 up to 0.625.
INLINE vf v_tanh(vf x) {
    const vf a = v_abs(x), s = x * x;
    const vf far = 1.0f - 2.0f / (v_exp_within(v_min(a + a, v_all(30.0f))) + 1.0f);
    vf p = s * -0.006096714166f + 0.020997179f;
    p = p * s - 0.05385090958f;
    p = p * s + 0.1333276974f;
    p = p * s - 0.3333332894f;
    const vf near = p * s * x + x;
    return v_select(x == x, v_select(a < 0.625f, near, v_sign_of(far, x)), x);
}

// 4.5e-7 at most, 8e-8 in the mean square: erf x / x by a quotient of polynomials in x^2, fitted
// for the greatest relative error up to 3.92, from where on it is 1.
INLINE vf v_erf(vf x) {
    const vf a = v_min(v_abs(x), v_all(4.5f)), s = a * a;
    vf p = s * 3.577554935e-6f + 4.971415619e-4f;
    p = p * s + 6.571281236e-3f;
    p = p * s + 9.205045551e-2f;
    p = p * s + 0.3322734833f;
    p = p * s + 1.969105959f;
    vf q = s * 6.647287955e-5f + 2.028710907e-3f;
    q = q * s + 2.612239681e-2f;
    q = q * s + 0.1991289109f;
    q = q * s + 0.8761602640f;
    q = q * s + 1.745074749f;
    return v_select(x == x, v_sign_of(v_min(a * p / q, v_all(1.0f)), x), x);
}

// Sine of x + quarters pi / 2: the remainder by pi / 2 in f64, then a polynomial up to pi / 4. For
// arguments up to 1e9; 2 units in the last place but near zeros, where the error is 1e-9 at most.
INLINE vf v_sine(vf x, int32_t quarters) {
    const double two_over_pi = 0.63661977236758134, half_pi = 1.5707963267948966, rounder = 6755399441055744.0;
    const Wide w = v_widen(x);
    const Wide n = {(w.low * two_over_pi + rounder) - rounder, (w.high * two_over_pi + rounder) - rounder};
    const vf r = v_narrow((Wide){w.low - n.low * half_pi, w.high - n.high * half_pi});
    const vi_half low = __builtin_convertvector(n.low, vi_half), high = __builtin_convertvector(n.high, vi_half);
    const vi quarter = __builtin_shufflevector(low, high, V_IOTA) + quarters;
    const vf s = r * r;
    const vf sine = ((s * -1.958789088e-4f + 8.332748271e-3f) * s - 0.1666666466f) * s * r + r;
    const vf cosine = ((s * 2.454794209e-5f - 1.388830304e-3f) * s + 4.166666466e-2f) * s * s - 0.5f * s + 1.0f;
    const vf either = v_select((quarter & 1) != 0, cosine, sine);
    return (vf)((vi)either ^ ((quarter & 2) << 30));
}
INLINE vf v_sin(vf x) { return v_sine(x, 0); }
INLINE vf v_cos(vf x) { return v_sine(x, 1); }

// Whole numbers.
INLINE Long l_all(int64_t x) { return (Long){x - (vl){}, x - (vl){}}; }
INLINE Long l_from(int64_t first) {
    return (Long){first + (vl){V_LOWER}, first + (vl){V_UPPER}};
}
INLINE Long l_load_step(const int64_t *from, int64_t step, int64_t count) {
    int64_t lanes[LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[i * step];
    return (Long){*(const vl_anywhere *)lanes, *(const vl_anywhere *)(lanes + LANES / 2)};
}
INLINE Long l_load_first(const int64_t *from, int64_t count) {
    if (count < LANES) return l_load_step(from, 1, count);
    return (Long){*(const vl_anywhere *)from, *(const vl_anywhere *)(from + LANES / 2)};
}
INLINE int64_t l_lane(Long x, int64_t i) { return i < LANES / 2 ? x.low[i] : x.high[i - LANES / 2]; }
INLINE void l_store_step(int64_t *to, int64_t step, Long x, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i * step] = l_lane(x, i);
}

INLINE vi l_mask(vl low, vl high) {
    const vi_half a = __builtin_convertvector(low, vi_half), b = __builtin_convertvector(high, vi_half);
    return __builtin_shufflevector(a, b, V_IOTA);
}
INLINE vi l_equal(Long a, Long b) { return l_mask(a.low == b.low, a.high == b.high); }
INLINE vi l_less(Long a, Long b) { return l_mask(a.low < b.low, a.high < b.high); }
INLINE vi l_less_equal(Long a, Long b) { return l_mask(a.low <= b.low, a.high <= b.high); }

// Where a number lies beside a vector of columns from `first` on: in lanes, -1 before and LANES
// behind them. Comparing lanes with it is comparing columns with the number, in 32 bits.
INLINE int32_t lane_of(int64_t number, int64_t first) {
    if (number < first) return -1;
    return number - first < LANES ? (int32_t)(number - first) : LANES;
}

INLINE vf v_from_long(Long x) {
    const vf_half a = __builtin_convertvector(x.low, vf_half), b = __builtin_convertvector(x.high, vf_half);
    return __builtin_shufflevector(a, b, V_IOTA);
}
INLINE Long l_from_float(vf x) {
    const Wide wide = v_widen(x);
    return (Long){__builtin_convertvector(wide.low, vl), __builtin_convertvector(wide.high, vl)};
}

// Elements at indices, `step` apart.
INLINE vf v_gather(const float *from, Long index, int64_t step, int64_t column_step, int64_t count) {
    float lanes[LANES] = {0.0f};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[l_lane(index, i) * step + i * column_step];
    return v_load(lanes);
}
INLINE Long l_gather(const int64_t *from, Long index, int64_t step, int64_t column_step, int64_t count) {
    int64_t lanes[LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = from[l_lane(index, i) * step + i * column_step];
    return (Long){*(const vl_anywhere *)lanes, *(const vl_anywhere *)(lanes + LANES / 2)};
}

// One number by the same arithmetic.
#define ONE(name) static inline float s_##name(float x) { return v_##name(v_all(x))[0]; }
ONE(e_to)
ONE(ln)
ONE(tanh)
ONE(erf)
ONE(sigmoid)
ONE(sin)
ONE(cos)
static inline float s_sqrt(float x) { return __builtin_sqrtf(x); }
static inline float s_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline float s_reciprocal(float x) { return 1.0f / x; }
static inline float s_abs(float x) { return __builtin_fabsf(x); }
static inline float s_max(float a, float b) { return a > b ? a : b; }
static inline float s_min(float a, float b) { return a < b ? a : b; }

#endif
