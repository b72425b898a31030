// Products of tiles in shared memory by warps, and how tiles come there: for attention by mma.sync.
//
// Tiles lie as they are packed (packed.h), so that what lanes read at once is in different banks:
// 16 bytes of each of eight rows or, in tf32, eight numbers of each of four rows. A warp has BANDS
// times sixteen rows of a product: what it loads of a tile serves all of them.
//
// WARPS: of a block. ROWS: of a tile. SLOTS: for tiles, at least two.
#ifndef SWEEPER_FRAGMENTS_H
#define SWEEPER_FRAGMENTS_H

#include "mma.h"
#include "weights.h"

#define BAND 16
#define THREADS (WARPS * 32)
#define OWN (WARPS * BANDS * BAND)

// Begins to copy BYTES that lie together, by all threads of the block.
template <int BYTES> DEVICE void copy_all(char *to, const void *from) {
#pragma unroll
    for (int i = 0; i < BYTES; i += THREADS * 16) {
        const int at = i + threadIdx.x * 16;
        if (i + THREADS * 16 <= BYTES || at < BYTES) copy_16((float *)(to + at), (const float *)((const char *)from + at));
    }
}

// Slots for tiles, in turn: SLOTS - 1 tiles are on their way while one is multiplied. Tiles have
// BYTES, and `copy`, which begins to copy the one of that number.
template <class Tiles> struct Ring {
    Tiles tiles;
    char *slots;
    unsigned count;

    METHOD char *slot(unsigned i) { return slots + i % SLOTS * Tiles::BYTES; }
    METHOD void begin(unsigned i) {
        if (i < count) tiles.copy(slot(i), i);
        copies_commit();
    }
    // The first tiles, with all copies that were begun before.
    METHOD void begin_first() {
#pragma unroll
        for (int i = 0; i < SLOTS - 1; i++) begin(i);
    }
    // Each tile in turn, when it is there; the one before it is left.
    METHOD const char *take(unsigned i) {
        copies_wait<SLOTS - 2>();
        __syncthreads();
        begin(i + SLOTS - 1);
        return slot(i);
    }
};

// Where a row of WIDE columns begins, and 16 bytes of it: `swizzle` is the row's, modulo 8, and may
// have the lane's own part of an even `chunk` in it.
template <int WIDE> DEVICE int row_at(int row) { return row / 8 * (8 * WIDE * NUMBER_BYTES) + row % 8 * 128; }
DEVICE int chunk_at(int chunk, int swizzle) { return chunk / 8 * BLOCK_BYTES + (chunk % 8 ^ swizzle) * 16; }

// sums = own tile^T, over WIDE columns that both have; `own` is the rows of this warp.
template <int WIDE, int N> DEVICE void multiply_rows(float (&sums)[BANDS][N], const char *own, const char *tile) {
    const int lane = threadIdx.x % 32;
    const char *a_row = own + row_at<WIDE>(lane % 16), *b_row = tile + row_at<WIDE>(lane / 16 * 8 + lane % 8);
    const int a_swizzle = lane % 8 ^ lane / 16, b_swizzle = lane % 8 ^ lane / 8 % 2;
#pragma unroll
    for (int band = 0; band < BANDS; band++) zero(sums[band]);
#pragma unroll
    for (int i = 0; i < WIDE / STEP; i++) {
        unsigned a[BANDS][4];
#pragma unroll
        for (int band = 0; band < BANDS; band++)
            load_matrices(a[band], a_row + row_at<WIDE>(band * BAND) + chunk_at(2 * i, a_swizzle));
#pragma unroll
        for (int n = 0; n < N / 8; n++) {
            unsigned b[4];
            load_matrices(b, b_row + row_at<WIDE>(n * 16) + chunk_at(2 * i, b_swizzle));
#pragma unroll
            for (int band = 0; band < BANDS; band++) {
                multiply_add(sums[band] + n * 8, a[band], b, Number());
                multiply_add(sums[band] + n * 8 + 4, a[band], b + 2, Number());
            }
        }
    }
}

// sums += factors tile, over the rows of the tile.
template <int WIDE, int N>
DEVICE void multiply_factors(float (&sums)[BANDS][WIDE / 2], const Factors<N> (&factors)[BANDS], const char *tile) {
    const int lane = threadIdx.x % 32;
#if BF16
    const char *row = tile + row_at<WIDE>(lane % 16);
    const int swizzle = lane % 8 ^ lane / 16;
#else
    // Columns of factors are the tile's rows 2 t and 2 t + 1: so a lane has weights (mma.h).
    const int even = lane % 4 * 2, odd = even + 1, chunk = lane / 16, word = lane / 4 % 4 * 4;
    const char *even_row = tile + row_at<WIDE>(even) + word, *odd_row = tile + row_at<WIDE>(odd) + word;
#endif
#pragma unroll
    for (int i = 0; i < N * 2 / STEP; i++) {
#pragma unroll
        for (int n = 0; n < WIDE / 16; n++) {
            unsigned b[4];
#if BF16
            load_matrices_transposed(b, row + row_at<WIDE>(i * STEP) + chunk_at(2 * n, swizzle));
#else
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int from = 4 * n + 2 * half;
                b[2 * half] = *(const unsigned *)(even_row + row_at<WIDE>(i * STEP) + chunk_at(from, even ^ chunk));
                b[2 * half + 1] = *(const unsigned *)(odd_row + row_at<WIDE>(i * STEP) + chunk_at(from, odd ^ chunk));
            }
#endif
#pragma unroll
            for (int band = 0; band < BANDS; band++) {
                multiply_add(sums[band] + n * 8, factors[band].words + i * 4, b, Number());
                multiply_add(sums[band] + n * 8 + 4, factors[band].words + i * 4, b + 2, Number());
            }
        }
    }
}

#endif
