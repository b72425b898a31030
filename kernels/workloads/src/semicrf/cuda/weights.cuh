// Weights of segmentations, and sums of them, over any range.
//
// A weight is 2^(whole + part), where `whole` is a whole number: sums and differences of whole
// parts are exact, so that a scan over 10,000 positions loses nothing to its growing values. For
// max, units are nats and `part` is as good as it gets in f32; else they are bits. What is
// forbidden weighs -1e9 nats; what weighs less than 2^-1e6 counts as nothing.
//
// Compile-time words: SEMIRING, FORM, WIDTH (labels that there is room for, a power of two), and
// for the scan CELLS_ARE_SHARED, HELD (cells that a thread has in registers, 0 if they are in
// memory) and HAS_STATES.
#ifndef SWEEPER_SEMICRF_WEIGHTS_CUH
#define SWEEPER_SEMICRF_WEIGHTS_CUH

#include "cuda.h"

#define LOG 0
#define MAX 1
#define ENTROPY 2
#define MATERIALIZED 0
#define FIXED 1
#define PER_DURATION 2

constexpr bool HAS_ENTROPY = SEMIRING == ENTROPY;
constexpr bool IS_MAX = SEMIRING == MAX;
constexpr float BITS_OF_NAT = 1.44269502f, BITS_OF_NAT_REST = 1.92596303e-8f;
constexpr float UNITS = IS_MAX ? 1.0f : BITS_OF_NAT;  // of a nat
constexpr float LN2 = 0.693147182f;
constexpr float NOTHING = -1e9f;                   // the log weight of nothing
constexpr float NEXT_TO_NOTHING = IS_MAX ? -5e8f : -1e6f;
constexpr float EMPTY = -2097152.0f;               // whole part of an empty sum
constexpr int NEVER = -(1 << 28);                  // exponent of no weight

struct Split {
    float whole, part;
};

// A score in units, as a whole number and what is left.
DEVICE Split split(float nats) {
    Split s;
    const float units = nats * UNITS;
    s.whole = rintf(units);
    s.part = units - s.whole;
    if (!IS_MAX) s.part += fmaf(nats, BITS_OF_NAT, -units) + nats * BITS_OF_NAT_REST;
    return s;
}

// 2^e; 0 below the least normal number.
DEVICE float power(int e) { return e < -126 ? 0.0f : __int_as_float((min(e, 127) + 127) << 23); }
DEVICE int exponent_of(float x) { return (__float_as_int(x) >> 23) - 127; }
// Added to a number below 2^22 it leaves the nearest whole number in the last bits.
constexpr float TO_WHOLE = 12582912.0f;
// For whole numbers below 2^22.
DEVICE int int_of(float whole) { return __float_as_int(whole + TO_WHOLE) - 0x4b400000; }
// 2^(whole + part), below the least normal number 0, for a whole number `whole` and a sum of up to
// MOST_ROOM. As one number the sum would lose digits of `part`.
DEVICE float power_of(float whole, float part) {
    const float rounded = fmaxf(whole + part, -127.0f) + TO_WHOLE;
    return exp2_fast((whole - (rounded - TO_WHOLE)) + part) * __int_as_float((__float_as_int(rounded) + 127) << 23);
}

// A sum of weights: 2^whole * sum. Max: whole + sum. Entropy: `moment` is the sum of
// weight / 2^whole * (h - ln(weight / 2^(whole - ROOM))), where the terms' h are relative to
// `entropy`.
#if SEMIRING == ENTROPY
struct alignas(16) Cell {
    float whole, sum, entropy, moment;
};
#else
struct alignas(8) Cell {
    float whole, sum;
};
#endif

// A term to add; `entropy_whole` and `entropy` for the entropy semiring alone.
struct Term {
    float whole, part, entropy_whole, entropy;
};

// Weights grow from position to position. A cell's scale is so far above its first term that most
// cells never need another: terms from 2^-ROOM to 2^MOST_ROOM have room in f32, whatever comes
// first. What is less than the first by 2^-26 is nothing beside it.
constexpr float ROOM = 100.0f, MOST_ROOM = 100.0f;

// A cell with a greater scale.
DEVICE Cell lifted(Cell cell, float half) {
    const float down = exp2_fast(-half);  // in two steps: each is in range
#if SEMIRING == ENTROPY
    cell.moment = (cell.moment + LN2 * 2.0f * half * cell.sum) * down * down;
#endif
    cell.sum = cell.sum * down * down;
    cell.whole += 2.0f * half;
    return cell;
}

// A call, where it is rare.
DEVICE_APART Cell lifted_apart(Cell cell, float half) { return lifted(cell, half); }

// Makes an empty cell whose scale is that of a term.
DEVICE Cell cell_for(const Term &x) {
    Cell cell;
    // Rounds to a whole number; what counts for nothing has any scale.
    cell.whole = IS_MAX ? x.whole : fmaxf(x.whole + ((x.part + TO_WHOLE) - TO_WHOLE) + ROOM, EMPTY);
    cell.sum = IS_MAX ? 8.0f * NOTHING : 0.0f;
#if SEMIRING == ENTROPY
    cell.entropy = x.entropy_whole;
    cell.moment = 0.0f;
#endif
    return cell;
}

// Adds a term to each cell, which differ in `part`. None is far above its cell.
template <int COUNT> DEVICE void add_terms(Cell (&cells)[COUNT], const Term &x, const float (&parts)[COUNT]) {
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        if (IS_MAX) {
            const bool is_more = (x.whole - cells[j].whole) + parts[j] > cells[j].sum;
            cells[j].whole = is_more ? x.whole : cells[j].whole;
            cells[j].sum = is_more ? parts[j] : cells[j].sum;
            continue;
        }
        const float above = x.whole - cells[j].whole, weight = power_of(above, parts[j]);
        cells[j].sum += weight;
#if SEMIRING == ENTROPY
        if (weight > 0.0f) {
            const float log = LN2 * ((above + ROOM) + parts[j]);
            cells[j].moment += weight * ((x.entropy_whole - cells[j].entropy) + x.entropy - log);
        }
#endif
    }
}

// Adds a term to each cell. What is far above a cell is looked for in all of them first: without
// branches between them, they do not wait for each other.
template <int COUNT> DEVICE void add_to_cells(Cell (&cells)[COUNT], const Term &x, const float (&parts)[COUNT]) {
    float d[COUNT];
    bool is_far = false;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        d[j] = (x.whole - cells[j].whole) + parts[j];
        is_far |= !IS_MAX && d[j] > MOST_ROOM;
    }
    if (is_far) {
#pragma unroll
        for (int j = 0; j < COUNT; j++)
            if (d[j] > MOST_ROOM) cells[j] = lifted_apart(cells[j], rintf(0.5f * (d[j] + ROOM)));
    }
    add_terms(cells, x, parts);
}

#endif
