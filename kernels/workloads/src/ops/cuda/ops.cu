// The operations of the crate of workloads (`ops`) for CUDA: one entry each, with its arguments.
//
// An elementwise operation has a thread for an element; a reduction has a warp for a result, or a
// thread where there is little to reduce, and folds in an order that depends on extents alone. The
// grid is made for the greatest extents of a loop, so threads beyond the ones at hand go away.

#include "cuda.h"

#define THREADS 256
#define ALL_LANES 0xffffffffu

DEVICE unsigned thread_number() { return blockIdx.x * THREADS + threadIdx.x; }

DEVICE float from_bits(unsigned bits) { return __int_as_float((int)bits); }
DEVICE unsigned to_bits(float x) { return (unsigned)__float_as_int(x); }

DEVICE float infinity() { return from_bits(0x7f800000u); }

// As math.rs has them, operation by operation: the same bits as on a CPU.
DEVICE float exponential(float x) {
    const float round = 12582912.0f;
    const float rounded = fmaf(x, 1.44269504f, round);
    const float n = rounded - round;
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 1.3814467e-3f;
    p = fmaf(p, r, 8.368781e-3f);
    p = fmaf(p, r, 4.1668393e-2f);
    p = fmaf(p, r, 1.666652e-1f);
    p = fmaf(p, r, 4.9999994e-1f);
    p = fmaf(p, r, 1.0f);
    const float y = fmaf(p, r, 1.0f);
    const float scaled = from_bits(to_bits(y) + (to_bits(rounded) << 23));
    if (x > 88.72283f) return infinity();
    return x < -87.33654f ? 0.0f : scaled;
}

DEVICE float logarithm(float x) {
    const unsigned bits = to_bits(x);
    const int exponent = (int)(bits - 0x3f3504f3u) >> 23;
    const float m = from_bits(bits - ((unsigned)exponent << 23)) - 1.0f;
    const float e = (float)exponent;
    float p = 7.0376836e-2f;
    p = fmaf(p, m, -1.151461e-1f);
    p = fmaf(p, m, 1.1676999e-1f);
    p = fmaf(p, m, -1.2420141e-1f);
    p = fmaf(p, m, 1.4249323e-1f);
    p = fmaf(p, m, -1.6668058e-1f);
    p = fmaf(p, m, 2.0000715e-1f);
    p = fmaf(p, m, -2.4999994e-1f);
    p = fmaf(p, m, 3.333333e-1f);
    const float square = m * m;
    const float tail = fmaf(e, -2.12194440e-4f, p * m * square);
    const float value = fmaf(e, 0.693359375f, fmaf(-0.5f, square, tail) + m);
    if (!(x < infinity())) return x;
    if (x < 0.0f) return from_bits(0x7fc00000u);
    return x < 1.17549435e-38f ? -infinity() : value;
}

// Where an element of four nested loops is.
struct Place {
    unsigned i[4];
};

DEVICE bool find(Place &place, int64 n0, int64 n1, int64 n2, int64 n3) {
    unsigned rest = thread_number();
    if (rest >= (unsigned)n0 * (unsigned)n1 * (unsigned)n2 * (unsigned)n3) return false;
    place.i[3] = rest % (unsigned)n3;
    rest /= (unsigned)n3;
    place.i[2] = rest % (unsigned)n2;
    rest /= (unsigned)n2;
    place.i[1] = rest % (unsigned)n1;
    place.i[0] = rest / (unsigned)n1;
    return true;
}

DEVICE int64 at(const Place &place, int64 start, int64 s0, int64 s1, int64 s2, int64 s3) {
    return start + place.i[0] * s0 + place.i[1] * s1 + place.i[2] * s2 + place.i[3] * s3;
}

#define BINARY(name, OP)                                                                                     \
    KERNEL(name, THREADS)                                                                                    \
    (const float *a, const float *b, float *out, int64 n0, int64 n1, int64 n2, int64 n3, int64 a_start,      \
     int64 a0, int64 a1, int64 a2, int64 a3, int64 b_start, int64 b0, int64 b1, int64 b2, int64 b3) {        \
        Place place;                                                                                         \
        if (!find(place, n0, n1, n2, n3)) return;                                                            \
        out[thread_number()] = a[at(place, a_start, a0, a1, a2, a3)] OP b[at(place, b_start, b0, b1, b2, b3)]; \
    }

BINARY(ops_add, +)
BINARY(ops_sub, -)
BINARY(ops_mul, *)

#define ONTO(name, OP)                                                                                       \
    KERNEL(name, THREADS)                                                                                    \
    (const float *b, float *x, int64 n0, int64 n1, int64 n2, int64 n3, int64 b_start, int64 b0, int64 b1,    \
     int64 b2, int64 b3, int64 x_start, int64 x0, int64 x1, int64 x2, int64 x3) {                            \
        Place place;                                                                                         \
        if (!find(place, n0, n1, n2, n3)) return;                                                            \
        x[at(place, x_start, x0, x1, x2, x3)] OP b[at(place, b_start, b0, b1, b2, b3)];                      \
    }

ONTO(ops_add_, +=)
ONTO(ops_sub_, -=)
ONTO(ops_mul_, *=)
ONTO(ops_copy, =)

KERNEL(ops_exp, THREADS)(const float *x, float *out, int64 count) {
    const unsigned i = thread_number();
    if (i < count) out[i] = exponential(x[i]);
}

KERNEL(ops_exp_, THREADS)(float *x, int64 count) {
    const unsigned i = thread_number();
    if (i < count) x[i] = exponential(x[i]);
}

KERNEL(ops_log_, THREADS)(float *x, int64 count) {
    const unsigned i = thread_number();
    if (i < count) x[i] = logarithm(x[i]);
}

// The terms (first, last) of one result of (outer, first, kept, last).
struct Terms {
    int64 start;
    unsigned plane, last, count;

    // Where a term is.
    METHOD int64 at(unsigned term) const {
        const unsigned row = term / last;
        return start + (int64)row * plane + (term - row * last);
    }
};

DEVICE Terms terms_of(unsigned result, int64 first, int64 kept, int64 last) {
    Terms terms;
    terms.plane = (unsigned)(kept * last);
    terms.last = (unsigned)last;
    terms.count = (unsigned)(first * last);
    const unsigned outer = result / (unsigned)kept;
    terms.start = outer * (first * terms.plane) + (result - outer * (unsigned)kept) * last;
    return terms;
}

// Fewer terms than this are a thread's.
#define FEW 17

template <class T> struct Sum {
    DEVICE T of(T a, T b) { return a + b; }
};

template <class T> struct Greatest {
    DEVICE T of(T a, T b) { return a > b ? a : b; }
};

template <template <class> class Fold, class T>
DEVICE void reduce(const T *x, T *out, T none, int64 outer, int64 first, int64 kept, int64 last) {
    const unsigned results = (unsigned)(outer * kept), thread = thread_number();
    if (first * last < FEW) {
        if (thread >= results) return;
        const Terms terms = terms_of(thread, first, kept, last);
        T folded = none;
        for (unsigned term = 0; term < terms.count; term++) folded = Fold<T>::of(folded, x[terms.at(term)]);
        out[thread] = folded;
        return;
    }
    const unsigned result = thread / 32, lane = thread % 32;
    if (result >= results) return;
    const Terms terms = terms_of(result, first, kept, last);
    T folded = none;
#pragma unroll 4
    for (unsigned term = lane; term < terms.count; term += 32) folded = Fold<T>::of(folded, x[terms.at(term)]);
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        folded = Fold<T>::of(folded, __shfl_xor_sync(ALL_LANES, folded, lanes));
    }
    if (lane == 0) out[result] = folded;
}

KERNEL(ops_sum, THREADS)
(const float *x, float *out, int64 outer, int64 first, int64 kept, int64 last) {
    reduce<Sum>(x, out, 0.0f, outer, first, kept, last);
}

KERNEL(ops_amax, THREADS)
(const float *x, float *out, int64 outer, int64 first, int64 kept, int64 last) {
    reduce<Greatest>(x, out, -infinity(), outer, first, kept, last);
}

KERNEL(ops_amax_f64, THREADS)
(const double *x, double *out, int64 outer, int64 first, int64 kept, int64 last) {
    reduce<Greatest>(x, out, -(double)infinity(), outer, first, kept, last);
}

KERNEL(ops_argmax, THREADS)
(const float *x, float *out, int64 *index, int64 outer, int64 first, int64 kept, int64 last) {
    const unsigned result = thread_number() / 32, lane = thread_number() % 32;
    if (result >= (unsigned)(outer * kept)) return;
    const Terms terms = terms_of(result, first, kept, last);
    float most = -infinity();
    int found = 0;
#pragma unroll 4
    for (unsigned term = lane; term < terms.count; term += 32) {
        const float value = x[terms.at(term)];
        if (value > most) {
            most = value;
            found = (int)term;
        }
    }
    // Of equals, the first.
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(ALL_LANES, most, lanes);
        const int there = __shfl_xor_sync(ALL_LANES, found, lanes);
        if (other > most || (other == most && there < found)) {
            most = other;
            found = there;
        }
    }
    if (lane != 0) return;
    out[result] = most;
    index[result] = found;
}

KERNEL(ops_scatter_index, THREADS)
(const float *x, const int64 *index, float *out, int64 outer, int64 first, int64 kept, int64 last) {
    Place place;
    if (!find(place, outer, first, kept, last)) return;
    const unsigned result = place.i[0] * (unsigned)kept + place.i[2];
    const unsigned term = place.i[1] * (unsigned)last + place.i[3];
    out[thread_number()] = index[result] == (int64)term ? x[result] : 0.0f;
}

KERNEL(ops_ring_window, THREADS)
(const double *ring, double *out, int64 slots, int64 newest, int64 batch, int64 count, int64 row) {
    Place place;
    if (!find(place, 1, batch, count, row)) return;
    const int64 slot = newest - place.i[2] + (newest < (int64)place.i[2] ? slots : 0);
    out[thread_number()] = ring[(slot * batch + place.i[1]) * row + place.i[3]];
}

KERNEL(ops_select_rows, THREADS)
(const double *x, const int64 *index, double *out, int64 wanted, int64 row, int64 batch) {
    const unsigned i = thread_number();
    if (i < row * batch && index[i / (unsigned)row] == wanted) out[i] = x[i];
}

KERNEL(ops_scatter_rows, THREADS)
(const float *x, const int64 *index, float *out, int64 shift, int64 row, int64 batch) {
    const unsigned i = thread_number();
    if (i >= row * batch) return;
    const int64 slot = index[i / (unsigned)row] + shift;
    out[slot * row * batch + i] = x[i];
}

KERNEL(ops_relative, THREADS)
(const double *x, const double *reference, float *out, int64 outer, int64 inner) {
    const unsigned i = thread_number();
    if (i < outer * inner) out[i] = (float)(x[i] - reference[i / (unsigned)inner]);
}

KERNEL(ops_absolute, THREADS)
(const float *x, const double *reference, double *out, int64 outer, int64 inner) {
    const unsigned i = thread_number();
    if (i < outer * inner) out[i] = reference[i / (unsigned)inner] + (double)x[i];
}

KERNEL(ops_absolute_f32, THREADS)(const float *x, const double *reference, float *out, int64 count) {
    const unsigned i = thread_number();
    if (i < count) out[i] = (float)(reference[i] + (double)x[i]);
}
