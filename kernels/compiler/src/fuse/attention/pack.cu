// Packs matrices for attention on tensor cores: rounds their numbers, and writes them in the order
// of tiles of shared memory (packed.h).
#include "packed.h"

#define PACK_ROWS 32
#define PACK_THREADS 256
#define CHUNK (16 / NUMBER_BYTES)

struct Chunk {
    unsigned words[4];
};

DEVICE Chunk rounded(const float (&x)[CHUNK]) {
    Chunk c;
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if BF16
        c.words[i] = round_to_bf16_pair(x[2 * i], x[2 * i + 1]);
#else
        c.words[i] = (unsigned)__float_as_int(round_to_tf32(x[i]));
#endif
    }
    return c;
}

// The next numbers of a row, of which `count` are there, and zeros.
DEVICE Chunk chunk_of(const float *row, int64 count) {
    float values[CHUNK];
#if ALIGNED
#pragma unroll
    for (int j = 0; j < CHUNK; j += 4) {
        float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (j < count) x = *(const float4 *)(row + j);
        values[j] = x.x, values[j + 1] = x.y, values[j + 2] = x.z, values[j + 3] = x.w;
    }
#else
#pragma unroll
    for (int j = 0; j < CHUNK; j++) values[j] = j < count ? row[j] : 0.0f;
#endif
    return rounded(values);
}

#if BF16
// The same of numbers that are bf16 already.
DEVICE Chunk chunk_of(const unsigned short *row, int64 count) {
    Chunk c;
#if ALIGNED
    struct alignas(8) Pair {
        unsigned words[2];
    };
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        Pair x = {{0, 0}};
        if (2 * i < count) x = *(const Pair *)(row + 2 * i);
        c.words[i] = x.words[0], c.words[i + 1] = x.words[1];
    }
#else
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned low = 2 * i < count ? row[2 * i] : 0, high = 2 * i + 1 < count ? row[2 * i + 1] : 0;
        c.words[i] = low | high << 16;
    }
#endif
    return c;
}
#endif

// A matrix of each head: memory, steps of leading dimensions and of rows.
template <class T> struct Source {
    const T *at;
    int64 steps[4];
    int64 rows, columns;
};

// Packs 32 rows; WIDE: columns up to a multiple of 64.
template <int WIDE, class T> DEVICE void pack_by_rows(char *to, const T *from, int64 first, const Source<T> &of) {
    for (int i = threadIdx.x; i < PACK_ROWS * (WIDE / CHUNK); i += PACK_THREADS) {
        const int r = i / (WIDE / CHUNK), c = i % (WIDE / CHUNK);
        const T *row = from + (first + r) * of.steps[3] + c * CHUNK;
        const int64 count = first + r < of.rows ? of.columns - c * CHUNK : 0;
        const int at = r / 8 * 8 * (WIDE * NUMBER_BYTES) + c / 8 * BLOCK_BYTES + r % 8 * 128 + (c % 8 ^ r % 8) * 16;
        *(Chunk *)(to + at) = chunk_of(row, count);
    }
}

#if !BF16
template <int WIDE> DEVICE void pack_by_columns(char *to, const float *from, int64 first, const Source<float> &of) {
    for (int i = threadIdx.x; i < WIDE * 4; i += PACK_THREADS) {
        const int column = i % WIDE, r = i / WIDE * 8;
        float values[8];
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const bool is_there = first + r + j < of.rows && column < of.columns;
            values[j] = is_there ? from[(first + r + j) * of.steps[3] + column] : 0.0f;
        }
        const float even[4] = {values[0], values[2], values[4], values[6]};
        const float odd[4] = {values[1], values[3], values[5], values[7]};
        *(Chunk *)(to + column * 128 + (r / 4 ^ column % 8) * 16) = rounded(even);
        *(Chunk *)(to + column * 128 + (r / 4 + 1 ^ column % 8) * 16) = rounded(odd);
    }
}
#endif

template <int WIDE, int BY_COLUMNS, class T> DEVICE void pack(char *to, const Source<T> &of, int64 e1, int64 e2, int64 heads) {
    const int64 parts = padded(of.rows) / PACK_ROWS;
    const int64 head = blockIdx.x / parts, first = blockIdx.x % parts * PACK_ROWS;
    if (head >= heads) return;
    const T *from = of.at + head / (e1 * e2) * of.steps[0] + head / e2 % e1 * of.steps[1] + head % e2 * of.steps[2];
    to += (head * padded(of.rows) + first) * (WIDE * NUMBER_BYTES);
#if !BF16
    if (BY_COLUMNS) return pack_by_columns<WIDE>(to, from, first, of);
#endif
    pack_by_rows<WIDE>(to, from, first, of);
}

// Packs matrices. EACH_JOB is JOB(0) JOB(1) ..., one for each matrix: its blocks are a row of the
// grid; NUMBER_n says of what, WIDE_n and BY_COLUMNS_n how.
#define JOB(n) const NUMBER_##n *x##n, char *to##n, int64 s##n##0, int64 s##n##1, int64 s##n##2, int64 s##n##3, \
    int64 rows##n, int64 columns##n,
KERNEL(attention_pack, PACK_THREADS)(EACH_JOB int64 e1, int64 e2, int64 heads) {
#undef JOB
#define JOB(n) if (blockIdx.y == n) { \
        const Source<NUMBER_##n> of = {x##n, {s##n##0, s##n##1, s##n##2, s##n##3}, rows##n, columns##n}; \
        return pack<WIDE_##n, BY_COLUMNS_##n>(to##n, of, e1, e2, heads); \
    }
    EACH_JOB
}
