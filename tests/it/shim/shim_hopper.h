// Warpgroup products and bulk copies on a CPU: the counterpart of
// kernels/program/src/headers/hopper.h.
#ifndef SWEEPER_SHIM_HOPPER_H
#define SWEEPER_SHIM_HOPPER_H

#define SHARED_TILES(name) char *name = (char *)shim::shared

struct Arrivals {
    unsigned long long state;
};
static inline void arrivals_init(Arrivals *barrier, int count) { shim::arrivals_init(barrier, count); }
static inline void arrivals_init_end() {}
static inline void arrive(Arrivals *barrier) { shim::arrive(barrier, 0); }
static inline void arrive_and_expect(Arrivals *barrier, int bytes) { shim::arrive(barrier, bytes); }
static inline void arrivals_wait(Arrivals *barrier, unsigned parity) { shim::wait_arrivals(barrier, parity); }
static inline void bulk_copy(void *shared, const void *global, int bytes, Arrivals *barrier) {
    shim::copy_bulk(barrier, shared, global, bytes);
}
static inline void copies_visible_to_products() {}
template <int COUNT> void registers_increase() {}
template <int COUNT> void registers_decrease() {}

using shim::Operand;
static inline Operand operand(const void *shared, int leading, int stride) {
    return {(const char *)shared, leading, stride};
}

namespace shim {
// The number whose first byte is `byte` of a row, in the layout of 128-byte swizzles.
static inline float number_at(uintptr_t at, Bf16) {
    at ^= (at >> 7 & 7) << 4;
    return cell_as<float>((uint64_t) * (const unsigned short *)at << 16);
}
static inline float number_at(uintptr_t at, Tf32) {
    at ^= (at >> 7 & 7) << 4;
    return cell_as<float>(*(const unsigned *)at & ~0x1fffu);
}
template <class Number> constexpr int columns() { return 32 / (int)sizeof(Number); }

// Row or column `line` of an operand, at position i of those that the product goes over.
template <class Number, int TRANSPOSED> float number_of(const Operand &o, int line, int i) {
    const int bytes = sizeof(Number), wide = 128 / bytes;
    const int64 at = TRANSPOSED ? line / wide * o.leading + line % wide * bytes + i / 8 * o.stride + i % 8 * 128
                                : line / 8 * o.stride + line % 8 * 128 + i * bytes;
    return number_at((uintptr_t)o.at + at, Number());
}

// The two rows of factors in registers that a thread has sums of, from its quad.
template <class Number> void rows_of_quad(const unsigned *factors, float (&rows)[2][16]) {
    for (int word = 0; word < 4; word++) {
        const uint64_t *all = exchange(factors[word]);
        for (int t = 0; t < 4; t++) {
            const unsigned bits = (unsigned)all[lane() / 4 * 4 + t];
            float *row = rows[word % 2];
            if (sizeof(Number) == 4) {
                row[word / 2 * 4 + t] = cell_as<float>(bits & ~0x1fffu);
            } else {
                row[word / 2 * 8 + t * 2] = cell_as<float>((uint64_t)bits << 16 & 0xffffffffu);
                row[word / 2 * 8 + t * 2 + 1] = cell_as<float>(bits & 0xffff0000u);
            }
        }
    }
}

template <class Number, int N, int TRANSPOSED> void run_product(const Product &p) {
    float rows[2][16];
    if (p.factors != nullptr) {
        rows_of_quad<Number>(p.factors, rows);
    } else {
        const int first = (int)(thread.x % 128 / 32) * 16 + lane() / 4;
        for (int half = 0; half < 2; half++)
            for (int i = 0; i < columns<Number>(); i++) rows[half][i] = number_of<Number, 0>(p.a, first + half * 8, i);
    }
    for (int n = 0; n < N; n++) {
        const int column = n / 4 * 8 + lane() % 4 * 2 + n % 2;
        float sum = p.adds ? p.sums[n] : 0.0f;
        for (int i = 0; i < columns<Number>(); i++)
            sum += rows[n % 4 / 2][i] * number_of<Number, TRANSPOSED>(p.b, column, i);
        p.sums[n] = sum;
    }
}
}  // namespace shim

template <int N, class Number, int TRANSPOSED>
void multiply(float (&sums)[N], Operand a, Operand b, bool adds, Number, Transposed<TRANSPOSED>) {
    shim::multiply_later({shim::run_product<Number, N, TRANSPOSED>, sums, a, b, nullptr, adds});
}
template <int N, class Number, int TRANSPOSED>
void multiply(float (&sums)[N], const unsigned *a, Operand b, bool adds, Number, Transposed<TRANSPOSED>) {
    shim::multiply_later({shim::run_product<Number, N, TRANSPOSED>, sums, {}, b, a, adds});
}
static inline void products_begin() {}
static inline void products_commit() { shim::commit_products(); }
template <int GROUPS> void products_wait() { shim::wait_products(GROUPS); }
template <class T, int N> void products_fence(T (&)[N]) {}

#endif
