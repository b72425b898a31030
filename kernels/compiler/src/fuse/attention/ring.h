// Tiles of operands in shared memory, for attention on Hopper's tensor cores: a ring of slots that
// one warpgroup fills and the others empty.
//
// Operands are packed (packed.h), and one thread copies a tile by one bulk copy; or, IN_PLACE, they
// are bf16 as it lies, and all threads of the warpgroup copy 16 bytes each to their place in the
// layout of 128-byte swizzles.
#ifndef SWEEPER_RING_H
#define SWEEPER_RING_H

#include "hopper.h"
#include "packed.h"

#define GROUPS 2
#define GROUP_ROWS 64
#define OWN (GROUPS * GROUP_ROWS)
#define CONSUMERS (GROUPS * 128)
#define COPIERS 128
#define THREADS (CONSUMERS + COPIERS)

// Registers of a thread that multiplies, and of one that copies: 64K for all.
#if IN_PLACE
#define CONSUMER_REGISTERS 232
#define COPIER_REGISTERS 40
// Arrivals of a tile: of each warp that copies, or of the thread that copies.
#define ARRIVALS_OF_TILE (COPIERS / 32)
#else
#define CONSUMER_REGISTERS 240
#define COPIER_REGISTERS 24
#define ARRIVALS_OF_TILE 1
#endif

// Slots of shared memory for tiles, which are filled and emptied in turn.
template <int BYTES> struct Ring {
    char *slots;
    Arrivals *full, *empty;
    int at;
    unsigned parity;

    METHOD void next() {
        if (++at == SLOTS) at = 0, parity ^= 1;
    }
    METHOD void init(int arrivals) {
        for (int i = 0; i < SLOTS; i++) arrivals_init(full + i, arrivals), arrivals_init(empty + i, CONSUMERS / 32);
    }
    // The next slot, when it is empty.
    METHOD int fill() {
        const int slot = at;
        arrivals_wait(empty + slot, parity ^ 1);
        next();
        return slot;
    }
    // The next slot, when it is full.
    METHOD int take() {
        const int slot = at;
        arrivals_wait(full + slot, parity);
        next();
        return slot;
    }
    // By all lanes of a warp, when they have read it.
    METHOD void give(int slot) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(empty + slot);
    }
    METHOD char *tile(int slot) { return slots + slot * BYTES; }
};

// A matrix of each head as a kernel's parameters, and the rows of `head`.
#if IN_PLACE
#define MATRIX(x) const unsigned short *x, int64 x##_0, int64 x##_1, int64 x##_2, int64 x##_row
#define ROWS_OF(x, count, columns, wide) \
    { x + head / (e1 * e2) * x##_0 + head / e2 % e1 * x##_1 + head % e2 * x##_2, x##_row, count, columns }
struct Rows {
    const unsigned short *at;
    int64 step, count, columns;
};
#else
#define MATRIX(x) const char *x
#define ROWS_OF(x, count, columns, wide) { x + head * padded(count) * ((wide) * NUMBER_BYTES) }
struct Rows {
    const char *at;
};
#endif

#if IN_PLACE
// Begins to copy COUNT rows of WIDE columns, and zeros where there are none. All rows of a thread
// are alike modulo 8, so that the swizzle is one for all.
template <int COUNT, int WIDE> DEVICE void copy_rows(char *tile, const Rows &of, int64 first) {
    const int chunks = WIDE / 8, stride = COPIERS / chunks;
    const int thread = threadIdx.x - CONSUMERS, r = thread / chunks, c = thread % chunks;
    char *to = tile + r / 8 * (WIDE / PANEL * BLOCK_BYTES) + c / 8 * BLOCK_BYTES + r % 8 * 128 + (c % 8 ^ r % 8) * 16;
    const unsigned short *from = of.at + (first + r) * of.step + c * 8;
    const int64 there = c * 8 < of.columns ? of.count - first - r : 0;
#pragma unroll 4
    for (int i = 0; i < COUNT; i += stride) {
        const bool is_there = i < there;
        copy_16_part((float *)to, (const float *)(is_there ? from : of.at), is_there ? 16 : 0);
        from += stride * of.step, to += stride * WIDE * NUMBER_BYTES;
    }
}

// Copies may be under way of so many tiles at once.
#define AHEAD 2

// Fills the ring, by all threads of a warpgroup. A tile has arrived when each warp has seen its
// copies arrive, which is looked at AHEAD tiles later.
template <int BYTES> struct Filler {
    Ring<BYTES> &ring;
    Arrivals *own_full;
    // Tiles under way, the first of which is in the slot `first`; the block's own rows are -1.
    int under_way, first;

    METHOD bool takes_part() const { return true; }
    METHOD void own_begin(int) {}
    template <int WIDE> METHOD void own(char *tile, const Rows &of, int64 row) { copy_rows<OWN, WIDE>(tile, of, row); }
    METHOD void own_end() {
        copies_commit();
        under_way = 1, first = -1;
    }
    METHOD void tell() {
        copies_visible_to_products();
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(first < 0 ? own_full : ring.full + first);
        if (++first == SLOTS) first = 0;
        under_way--;
    }
    // The next tile, and numbers of its rows to `kept`.
    template <int WIDE> METHOD void tile(const Rows &of, int64 row, const float *sums, float *kept) {
        const int slot = ring.fill();
        if (sums && threadIdx.x == CONSUMERS) {
            arrive_and_expect(ring.full + slot, ROWS * 4);
            bulk_copy(kept + slot * ROWS, sums, ROWS * 4, ring.full + slot);
        }
        copy_rows<ROWS, WIDE>(ring.tile(slot), of, row);
        copies_commit();
        if (under_way++ == AHEAD) {
            copies_wait<AHEAD>();
            tell();
        }
    }
    METHOD void end() {
        copies_wait<0>();
        while (under_way > 0) tell();
    }
};
#else
// Fills the ring, by one thread.
template <int BYTES> struct Filler {
    Ring<BYTES> &ring;
    Arrivals *own_full;

    METHOD bool takes_part() const { return threadIdx.x == CONSUMERS; }
    METHOD void own_begin(int bytes) { arrive_and_expect(own_full, bytes); }
    template <int WIDE> METHOD void own(char *tile, const Rows &of, int64 row) {
        bulk_copy(tile, of.at + row * (WIDE * NUMBER_BYTES), OWN * WIDE * NUMBER_BYTES, own_full);
    }
    METHOD void own_end() {}
    template <int WIDE> METHOD void tile(const Rows &of, int64 row, const float *sums, float *kept) {
        const int bytes = ROWS * WIDE * NUMBER_BYTES;
        const int slot = ring.fill();
        arrive_and_expect(ring.full + slot, bytes + (sums ? ROWS * 4 : 0));
        bulk_copy(ring.tile(slot), of.at + row * (WIDE * NUMBER_BYTES), bytes, ring.full + slot);
        if (sums) bulk_copy(kept + slot * ROWS, sums, ROWS * 4, ring.full + slot);
    }
    METHOD void end() {}
};
#endif

#endif
