// The operations of a graph in f64, one kernel each: plain loops, a thread for each element of the
// result.
//
// These kernels judge what fused and generated kernels compute, and share no code with them.
// Results are dense and row-major, of up to five dimensions (missing ones have extent 1); operands
// are read through strides.
#include "cuda.h"

constexpr int THREADS = 256;

// The result: its number of elements, and the extents of its dimensions but the outermost.
#define RESULT int64 n, int64 e1, int64 e2, int64 e3, int64 e4
// An operand and its strides, in elements.
#define OPERAND(T, x) const T *x, int64 x##0, int64 x##1, int64 x##2, int64 x##3, int64 x##4
// Where element `i` of the result is in an operand.
#define AT(x) x[offset(i, e1, e2, e3, e4, x##0, x##1, x##2, x##3, x##4)]
// The element of this thread.
#define ELEMENT                                                  \
    const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x; \
    if (i >= n) return

DEVICE int64 offset(int64 i, int64 e1, int64 e2, int64 e3, int64 e4, int64 s0, int64 s1, int64 s2, int64 s3, int64 s4) {
    int64 at = i % e4 * s4;
    i /= e4;
    at += i % e3 * s3;
    i /= e3;
    at += i % e2 * s2;
    i /= e2;
    return at + i % e1 * s1 + i / e1 * s0;
}

DEVICE double not_a_number() { return sqrt(-1.0); }

// ---- Elements in another type or another order.

KERNEL(copy, THREADS)(double *out, RESULT, OPERAND(double, x)) {
    ELEMENT;
    out[i] = AT(x);
}

KERNEL(copy_whole, THREADS)(int64 *out, RESULT, OPERAND(int64, x)) {
    ELEMENT;
    out[i] = AT(x);
}

KERNEL(widen, THREADS)(double *out, int64 n, const float *x) {
    ELEMENT;
    out[i] = x[i];
}

KERNEL(to_real, THREADS)(double *out, RESULT, OPERAND(int64, x)) {
    ELEMENT;
    out[i] = (double)AT(x);
}

KERNEL(to_whole, THREADS)(int64 *out, RESULT, OPERAND(double, x)) {
    ELEMENT;
    out[i] = (int64)AT(x);
}

KERNEL(iota, THREADS)(int64 *out, int64 n) {
    ELEMENT;
    out[i] = i;
}

// ---- Functions of one, two and three elements.

#define UNARY(name, value)                                            \
    KERNEL(name, THREADS)(double *out, RESULT, OPERAND(double, a)) { \
        ELEMENT;                                                      \
        const double x = AT(a);                                       \
        out[i] = value;                                               \
    }

UNARY(unary_neg, -x)
UNARY(unary_abs, fabs(x))
UNARY(unary_exp, exp(x))
UNARY(unary_ln, log(x))
UNARY(unary_sqrt, sqrt(x))
UNARY(unary_rsqrt, 1.0 / sqrt(x))
UNARY(unary_reciprocal, 1.0 / x)
UNARY(unary_tanh, tanh(x))
UNARY(unary_erf, erf(x))
UNARY(unary_sigmoid, 1.0 / (1.0 + exp(-x)))
UNARY(unary_sin, sin(x))
UNARY(unary_cos, cos(x))
UNARY(square, x *x)

#define BINARY(name, T, value)                                                 \
    KERNEL(name, THREADS)(double *out, RESULT, OPERAND(T, a), OPERAND(T, b)) { \
        ELEMENT;                                                               \
        const T x = AT(a), y = AT(b);                                          \
        out[i] = value;                                                        \
    }

BINARY(binary_add, double, x + y)
BINARY(binary_sub, double, x - y)
BINARY(binary_mul, double, x *y)
BINARY(binary_div, double, x / y)
BINARY(binary_max, double, x > y || x != x ? x : y)
BINARY(binary_min, double, x < y || x != x ? x : y)
BINARY(binary_equal, double, x == y ? 1.0 : 0.0)
BINARY(binary_less, double, x < y ? 1.0 : 0.0)
BINARY(binary_less_equal, double, x <= y ? 1.0 : 0.0)
BINARY(whole_equal, int64, x == y ? 1.0 : 0.0)
BINARY(whole_less, int64, x < y ? 1.0 : 0.0)
BINARY(whole_less_equal, int64, x <= y ? 1.0 : 0.0)

KERNEL(select_by_mask, THREADS)(double *out, RESULT, OPERAND(double, mask), OPERAND(double, a), OPERAND(double, b)) {
    ELEMENT;
    out[i] = AT(mask) == 0.0 ? AT(b) : AT(a);
}

// ---- Reductions: each thread takes one of `parts` equal parts of the reduced elements of one
// result. `d0` to `d4` are the extents that are reduced, 1 for the others, in whose place `e1` to
// `e4` are 1.

#define REDUCED int64 d1, int64 d2, int64 d3, int64 d4

KERNEL(reduce_sum, THREADS)
(double *out, RESULT, int64 parts, int64 count, REDUCED, OPERAND(double, x)) {
    const int64 thread = blockIdx.x * (int64)blockDim.x + threadIdx.x;
    if (thread >= n * parts) return;
    const int64 i = thread / parts, part = thread % parts, each = (count + parts - 1) / parts;
    const double *first = &AT(x);
    double sum = 0.0;
    for (int64 j = part * each; j < min(count, (part + 1) * each); j++)
        sum += first[offset(j, d1, d2, d3, d4, x0, x1, x2, x3, x4)];
    out[thread] = sum;
}

KERNEL(reduce_max, THREADS)
(double *out, RESULT, int64 parts, int64 count, REDUCED, OPERAND(double, x)) {
    const int64 thread = blockIdx.x * (int64)blockDim.x + threadIdx.x;
    if (thread >= n * parts) return;
    const int64 i = thread / parts, part = thread % parts, each = (count + parts - 1) / parts;
    const double *first = &AT(x);
    double most = log(0.0);
    for (int64 j = part * each; j < min(count, (part + 1) * each); j++) {
        const double value = first[offset(j, d1, d2, d3, d4, x0, x1, x2, x3, x4)];
        if (value > most || value != value) most = value;
    }
    out[thread] = most;
}

// ---- Products: the last two dimensions of `a` are (M, K), of `b` (K, N).

KERNEL(matmul, THREADS)(double *out, RESULT, int64 terms, OPERAND(double, a), OPERAND(double, b)) {
    ELEMENT;
    const double *row = a + offset(i, e1, e2, e3, e4, a0, a1, a2, a3, 0);
    const double *column = b + offset(i, e1, e2, e3, e4, b0, b1, b2, 0, b4);
    double sum = 0.0;
    for (int64 term = 0; term < terms; term++) sum += row[term * a4] * column[term * b3];
    out[i] = sum;
}

// ---- Convolutions of dense pictures (batch, channels, height, width) with kernels (results,
// channels, taps, taps).

#define CONVOLUTION                                                                                                \
    int64 channels, int64 results, int64 height, int64 width, int64 out_height, int64 out_width, int64 rows, int64 columns, \
        int64 stride, int64 padding

KERNEL(conv2d, THREADS)(double *out, int64 n, CONVOLUTION, const double *x, const double *w) {
    ELEMENT;
    const int64 across = i % out_width, down = i / out_width % out_height;
    const int64 result = i / (out_width * out_height) % results, picture = i / (out_width * out_height * results);
    double sum = 0.0;
    for (int64 channel = 0; channel < channels; channel++)
        for (int64 r = 0; r < rows; r++)
            for (int64 s = 0; s < columns; s++) {
                const int64 y = down * stride + r - padding, z = across * stride + s - padding;
                if (y < 0 || y >= height || z < 0 || z >= width) continue;
                sum += x[((picture * channels + channel) * height + y) * width + z] *
                       w[((result * channels + channel) * rows + r) * columns + s];
            }
    out[i] = sum;
}

KERNEL(conv2d_grad_x, THREADS)(double *out, int64 n, CONVOLUTION, const double *grad, const double *w) {
    ELEMENT;
    const int64 z = i % width, y = i / width % height;
    const int64 channel = i / (width * height) % channels, picture = i / (width * height * channels);
    double sum = 0.0;
    for (int64 result = 0; result < results; result++)
        for (int64 r = 0; r < rows; r++)
            for (int64 s = 0; s < columns; s++) {
                const int64 down = y + padding - r, across = z + padding - s;
                if (down < 0 || across < 0 || down % stride || across % stride) continue;
                if (down / stride >= out_height || across / stride >= out_width) continue;
                sum += grad[((picture * results + result) * out_height + down / stride) * out_width + across / stride] *
                       w[((result * channels + channel) * rows + r) * columns + s];
            }
    out[i] = sum;
}

KERNEL(conv2d_grad_w, THREADS)
(double *out, int64 n, CONVOLUTION, int64 pictures, const double *grad, const double *x) {
    ELEMENT;
    const int64 s = i % columns, r = i / columns % rows;
    const int64 channel = i / (columns * rows) % channels, result = i / (columns * rows * channels);
    double sum = 0.0;
    for (int64 picture = 0; picture < pictures; picture++)
        for (int64 down = 0; down < out_height; down++)
            for (int64 across = 0; across < out_width; across++) {
                const int64 y = down * stride + r - padding, z = across * stride + s - padding;
                if (y < 0 || y >= height || z < 0 || z >= width) continue;
                sum += grad[((picture * results + result) * out_height + down) * out_width + across] *
                       x[((picture * channels + channel) * height + y) * width + z];
            }
    out[i] = sum;
}

// ---- By indices that are data. An index outside of its tensor makes a result that is not a
// number.

KERNEL(gather, THREADS)
(double *out, int64 n, int64 row_count, int64 width, const double *rows, const int64 *indices) {
    ELEMENT;
    const int64 row = indices[i / width];
    out[i] = row >= 0 && row < row_count ? rows[row * width + i % width] : not_a_number();
}

KERNEL(pick, THREADS)(double *out, int64 n, int64 columns, const double *x, const int64 *indices) {
    ELEMENT;
    const int64 column = indices[i];
    out[i] = column >= 0 && column < columns ? x[i * columns + column] : not_a_number();
}

KERNEL(scatter_add, THREADS)
(double *out, int64 n, int64 count, int64 width, const double *values, const int64 *indices) {
    ELEMENT;
    double sum = 0.0;
    for (int64 j = 0; j < count; j++)
        if (indices[j] == i / width) sum += values[j * width + i % width];
    out[i] = sum;
}

// Along the dimension whose indices are `inner` elements apart in the result: index `j` of `x` goes
// to `start + j step`.
KERNEL(unslice, THREADS)
(double *out, int64 n, int64 inner, int64 extent, int64 own, int64 start, int64 step, const double *x) {
    ELEMENT;
    const int64 index = i / inner % extent - start, outer = i / (inner * extent);
    const bool is_there = index >= 0 && index % step == 0 && index / step < own;
    out[i] = is_there ? x[(outer * own + index / step) * inner + i % inner] : 0.0;
}

// ---- Rounding: each element is moved by the standard deviation of its operation's rounding, up or
// down by a random bit of Philox4x32-10 (Salmon et al., SC 2011): the same bits as the host's.

DEVICE unsigned random_word(int64 i, int64 key0, int64 key1) {
    unsigned c0 = (unsigned)(i / 2), c1 = (unsigned)(i / 2 >> 32), c2 = 0, c3 = 0;
    unsigned k0 = (unsigned)key0, k1 = (unsigned)key1;
    for (int round = 0; round < 10; round++) {
        const unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
        c0 = (unsigned)(p1 >> 32) ^ c1 ^ k0;
        c1 = (unsigned)p1;
        c2 = (unsigned)(p0 >> 32) ^ c3 ^ k1;
        c3 = (unsigned)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return i % 2 ? c2 : c0;
}

// The root mean square of the relative error of one f32 rounding, and the size below which a number
// is rounded as one of this size: 2^-126 / 2^-24.
constexpr double DEVIATION = 0.5 * 5.9604644775390625e-8;
constexpr double LEAST = 1.97215226305252951e-31;

DEVICE void displace(double *value, int64 i, double size, int64 key0, int64 key1) {
    const double by = DEVIATION * (size > LEAST ? size : LEAST);
    value[i] += random_word(i, key0, key1) < 0x80000000u ? -by : by;
}

KERNEL(round_arithmetic, THREADS)(double *value, int64 n, int64 key0, int64 key1) {
    ELEMENT;
    displace(value, i, fabs(value[i]), key0, key1);
}

// The variance of a function relative to its result is `least`, and for an exponential or a sigmoid
// what the rounding of its argument adds.
KERNEL(round_unary, THREADS)
(double *value, RESULT, int64 key0, int64 key1, int64 is_exp, int64 is_sigmoid, float least, OPERAND(double, a)) {
    ELEMENT;
    const double x = AT(a);
    double variance = least;
    if (is_exp) variance += x * x;
    if (is_sigmoid) variance += x * x / ((1.0 + exp(x)) * (1.0 + exp(x)));
    const double size = fabs(value[i]);
    displace(value, i, sqrt(variance) * (size > LEAST ? size : LEAST), key0, key1);
}

// The variance of a sum is a share of its square, and one of the sum of the squares of its terms;
// it is short by a part of itself.
KERNEL(round_sum, THREADS)
(double *value, int64 n, int64 key0, int64 key1, const double *squares, float of_square, float of_squares, float shortfall) {
    ELEMENT;
    const double size = sqrt(of_square * value[i] * value[i] + of_squares * squares[i]);
    value[i] -= shortfall * value[i];
    displace(value, i, size, key0, key1);
}

// Elements of memory as factors of products: off by up to `unit` of their size.
KERNEL(move_factors, THREADS)(double *out, int64 n, int64 key0, int64 key1, float unit, const double *x) {
    ELEMENT;
    const double by = (random_word(i, key0, key1) >> 8) / 8388608.0 - 1.0;
    out[i] = x[i] * (1.0 + unit * by);
}
