// Products of a warp on a CPU: the counterpart of kernels/program/src/headers/mma.h.
#ifndef SWEEPER_SHIM_MMA_H
#define SWEEPER_SHIM_MMA_H

namespace shim {
// Two words of each of four lanes that follow each other, from those that all lanes give.
struct Words {
    uint64_t of_lane[4];

    Words(unsigned first, unsigned second, int from) {
        memcpy(of_lane, exchange(first | (uint64_t)second << 32) + from, sizeof of_lane);
    }
    unsigned operator()(int lane, int which) const { return (unsigned)(of_lane[lane] >> 32 * which); }
};

// Number `at` of a word, and how many there are.
static inline float number_of(unsigned word, int at, Bf16) {
    return cell_as<float>((at ? word : word << 16) & 0xffff0000u);
}
static inline float number_of(unsigned word, int, Tf32) { return cell_as<float>(word & ~0x1fffu); }
template <class Number> constexpr int in_a_word() { return 4 / (int)sizeof(Number); }

static inline void load_matrices(unsigned (&x)[4], const void *row, bool is_transposed) {
    if ((uintptr_t)row % 16 != 0) fail("a row of a matrix that is not aligned");
    const uint64_t *rows = exchange((uint64_t)row);
    const int g = lane() / 4, t = lane() % 4;
    for (int matrix = 0; matrix < 4; matrix++) {
        unsigned short both[2];
        for (int i = 0; i < 2; i++) {
            const int of = is_transposed ? 2 * t + i : g, at = is_transposed ? g : 2 * t + i;
            both[i] = ((const unsigned short *)rows[matrix * 8 + of])[at];
        }
        x[matrix] = both[0] | (unsigned)both[1] << 16;
    }
}
}  // namespace shim

static inline void load_matrices(unsigned (&x)[4], const void *row) { shim::load_matrices(x, row, false); }
static inline void load_matrices_transposed(unsigned (&x)[4], const void *row) { shim::load_matrices(x, row, true); }

template <class Number> void multiply_add(float *sums, const unsigned *a, const unsigned *b, Number) {
    const int in_a_word = shim::in_a_word<Number>(), row = shim::lane() / 4, column = shim::lane() % 4 * 2;
    const shim::Words rows[2] = {{a[0], a[1], row * 4}, {a[2], a[3], row * 4}};
    const uint64_t *all = shim::exchange(b[0] | (uint64_t)b[1] << 32);
    for (int n = 0; n < 4; n++)
        for (int word = 0; word < 8; word++) {
            const unsigned x = rows[word / 4](word % 4, n / 2);
            const unsigned y = (unsigned)(all[(column + n % 2) * 4 + word % 4] >> 32 * (word / 4));
            for (int at = 0; at < in_a_word; at++)
                sums[n] += shim::number_of(x, at, Number()) * shim::number_of(y, at, Number());
        }
}

#endif
