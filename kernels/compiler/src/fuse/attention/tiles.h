// Tiles of matrices in shared memory, and products of them in registers.
//
// A warp's lanes are 4 groups by 8 sharers: rows of a product belong to groups, columns to sharers.
// A thread has 8 x 8 or 4 x 8 sums, so that 16 loads of 16 bytes serve 256 multiply-adds. Lanes of
// an eighth of a warp read the same float4, and those of a half no more than 128 bytes: a load of a
// warp takes two cycles of shared memory, not four. Sums run through rows and back (columns 0 to 7,
// then 7 to 0): each multiply-add has a factor in common with the one before, which the register
// file then reads once. Without, half of them wait for it.
//
// ALIGNED: rows are whole float4. WARPS: those of a block.
#include "cuda.h"

#define THREADS (WARPS * 32)
#define GROUPS 4
#define SHARERS 8
#define LOG2_E 1.44269504088896341f

struct Matrix {
    const float *at;
    int64 step;
    int64 rows, columns;
};

struct Sizes {
    int64 extents[3];
    int64 queries, keys, depth, width;
};

// The matrix of a head: `steps` are those of leading dimensions, then of rows.
DEVICE Matrix matrix(const float *at, const Sizes &sizes, int64 head, const int64 (&steps)[4], int64 rows, int64 columns) {
    const int64 inner = head % sizes.extents[2], middle = head / sizes.extents[2] % sizes.extents[1];
    const int64 outer = head / (sizes.extents[1] * sizes.extents[2]);
    Matrix m = {at + outer * steps[0] + middle * steps[1] + inner * steps[2], steps[3], rows, columns};
    return m;
}

#define STEPS(x) int64 x##0, int64 x##1, int64 x##2, int64 x##3
#define SIZES float scale, int64 e0, int64 e1, int64 e2, int64 queries, int64 keys, int64 depth, int64 width
#define THE_SIZES {{e0, e1, e2}, queries, keys, depth, width}
#define HEAD(m, x, rows, columns) const int64 m##_steps[4] = {x##0, x##1, x##2, x##3}; \
    const Matrix m = matrix(m##_at, sizes, head, m##_steps, rows, columns)

// A thread's place in its warp. Lanes that differ in their lowest bit alone read the same float4 of
// columns.
struct Lane {
    int group, sharer;
};
DEVICE Lane lane_of(int thread) {
    const int lane = thread % 32;
    return {lane % 2 + lane / 16 * 2, lane / 2 % SHARERS};
}

DEVICE void copy_or_zero(float *to, const float *from, bool is_there) {
    if (is_there) copy_4(to, from);
    else *to = 0.0f;
}

// Begins to copy ROWS rows from `first` on into a tile whose rows are STEP apart; zeros where the
// matrix has ended.
template <int ROWS, int WIDE, int STEP> DEVICE void load_tile(float *tile, const Matrix &from, int64 first) {
    constexpr int A_ROW = WIDE / 4, A_PASS = THREADS / A_ROW;
    static_assert(ROWS % A_PASS == 0, "whole passes");
    const int r = threadIdx.x / A_ROW, c = threadIdx.x % A_ROW * 4;
    const float *row = from.at + (first + r) * from.step + c;
    float *to = tile + r * STEP + c;
    const int64 step = from.step * A_PASS;
#if ALIGNED
    if (first + ROWS <= from.rows && from.columns == WIDE) {
#pragma unroll
        for (int i = 0; i < ROWS; i += A_PASS, row += step) copy_16(to + i * STEP, row);
        return;
    }
#endif
#pragma unroll 1
    for (int i = 0; i < ROWS; i += A_PASS, row += step) {
        const bool is_row = first + r + i < from.rows;
#if ALIGNED
        const bool is_there = is_row && c < from.columns;
        copy_16_part(to + i * STEP, is_there ? row : from.at, is_there ? 16 : 0);
#else
        for (int j = 0; j < 4; j++) copy_or_zero(to + i * STEP + j, row + j, is_row && c + j < from.columns);
#endif
    }
}

// Begins to copy ROWS rows and WIDE columns from (`first`, `first_column`) on, transposed, by BY
// warps: a column of the matrix is a row of the tile, ROWS + 4 floats from the next. A warp copies
// 4 rows and 8 columns at a time: whole sectors of memory, all banks of shared memory. It goes on
// along its rows: places of columns are known, and are part of the instructions.
template <int ROWS, int WIDE, int BY = WARPS>
DEVICE void load_transposed(float *tile, const Matrix &from, int64 first, int first_column) {
    constexpr int STEP = ROWS + 4;
    static_assert(ROWS % (BY * 4) == 0 && WIDE % 8 == 0, "whole passes");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % BY;
    const int c = lane % 8, r = lane / 8 + warp * 4;
    const float *row = from.at + (first + r) * from.step + first_column + c;
    float *to = tile + c * STEP + r;
    const int64 step = from.step * (BY * 4);
    if (first + ROWS <= from.rows && first_column + WIDE <= from.columns) {
#pragma unroll 1
        for (int y = 0; y < ROWS; y += BY * 4, row += step)
#pragma unroll
            for (int x = 0; x < WIDE; x += 8) copy_4(to + x * STEP + y, row + x);
        return;
    }
#pragma unroll 1
    for (int y = 0; y < ROWS; y += BY * 4, row += step) {
#pragma unroll 1
        for (int x = 0; x < WIDE; x += 8) {
            const bool is_there = first + r + y < from.rows && first_column + c + x < from.columns;
            copy_or_zero(to + x * STEP + y, row + x, is_there);
        }
    }
}

// Writes four columns of a row from `at` on.
DEVICE void put_4(float *row, int at, int64 columns, const float4 &x) {
#if ALIGNED
    if (at < columns) *(float4 *)(row + at) = x;
#else
    const float parts[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (at + j < columns) row[at + j] = parts[j];
#endif
}

template <int I, int J> DEVICE void zero(float (&sums)[I][J]) {
#pragma unroll
    for (int i = 0; i < I; i++)
#pragma unroll
        for (int j = 0; j < J; j++) sums[i][j] = 0.0f;
}

DEVICE float part(const float4 &x, int at) { return at == 0 ? x.x : at == 1 ? x.y : at == 2 ? x.z : x.w; }

// A thread's column j of a product is this far from its first one; and so is row i, where rows lie
// as columns do.
DEVICE int column_at(int j) { return j / 4 * SHARERS * 4 + j % 4; }
DEVICE int row_at(int i) { return i / 4 * GROUPS * 4 + i % 4; }

// sums += a^T b: both tiles have COUNT rows of what is summed over.
template <int COUNT, int A_STEP, int B_STEP, int I, int J> DEVICE void multiply(float (&sums)[I][J], const float *a, const float *b) {
#pragma unroll 8
    for (int k = 0; k < COUNT; k++, a += A_STEP, b += B_STEP) {
        float4 x[I / 4], y[J / 4];
#pragma unroll
        for (int i = 0; i < I / 4; i++) x[i] = *(const float4 *)(a + row_at(i * 4));
#pragma unroll
        for (int j = 0; j < J / 4; j++) y[j] = *(const float4 *)(b + column_at(j * 4));
#pragma unroll
        for (int i = 0; i < I; i++)
#pragma unroll
            for (int n = 0; n < J; n++) {
                const int j = i % 2 ? J - 1 - n : n;
                sums[i][j] = fmaf(part(x[i / 4], i % 4), part(y[j / 4], j % 4), sums[i][j]);
            }
    }
}

// sums += a b for the four columns of `a` from `k` on. Rows of a thread are GROUPS apart.
template <int A_STEP, int B_STEP, bool IN_BLOCKS, int I, int J>
DEVICE void multiply_columns(float (&sums)[I][J], const float *a, const float *b, int k) {
    float4 x[I];
#pragma unroll
    for (int i = 0; i < I; i++) x[i] = *(const float4 *)(a + k + i * GROUPS * A_STEP);
    const float *rows = b + (IN_BLOCKS ? k / 16 * 16 + k / 4 % 4 : k) * B_STEP;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        float4 y[J / 4];
#pragma unroll
        for (int j = 0; j < J / 4; j++) y[j] = *(const float4 *)(rows + (IN_BLOCKS ? p * 4 : p) * B_STEP + column_at(j * 4));
#pragma unroll
        for (int i = 0; i < I; i++)
#pragma unroll
            for (int n = 0; n < J; n++) {
                const int j = i % 2 ? J - 1 - n : n;
                sums[i][j] = fmaf(part(x[i], p), part(y[j / 4], j % 4), sums[i][j]);
            }
    }
}

// sums += a b: rows of `a` hold COUNT columns, whose numbers of `b` are rows. IN_BLOCKS: the rows
// of `b` lie in blocks of 16, each transposed as 4 x 4 rows.
template <int COUNT, int A_STEP, int B_STEP, bool IN_BLOCKS, int I, int J>
DEVICE void multiply_rows(float (&sums)[I][J], const float *a, const float *b) {
    static_assert(COUNT % 8 == 0, "eight columns at a time");
#pragma unroll 1
    for (int k = 0; k < COUNT; k += 8) {
        multiply_columns<A_STEP, B_STEP, IN_BLOCKS>(sums, a, b, k);
        multiply_columns<A_STEP, B_STEP, IN_BLOCKS>(sums, a, b, k + 4);
    }
}

// How COUNT warps share a matrix of R x C: a warp has GROUPS I rows and SHARERS J columns of it.
template <int R, int C, int COUNT> struct Share {
    static constexpr METHOD bool is(int i, int j) {
        return R % (GROUPS * i) == 0 && C % (SHARERS * j) == 0 && R / (GROUPS * i) * (C / (SHARERS * j)) == COUNT;
    }
    static constexpr int I = is(8, 8) || (!is(4, 8) && is(8, 4)) ? 8 : 4;
    static constexpr int J = is(8, 8) || is(4, 8) ? 8 : 4;
    static_assert(is(I, J), "warps share the matrix");
    static constexpr int ACROSS = C / (SHARERS * J);
    // The first row and column of a thread; rows are GROUPS apart.
    static METHOD int row(int warp, const Lane &lane) { return warp / ACROSS * GROUPS * I + lane.group; }
    static METHOD int column(int warp, const Lane &lane) { return warp % ACROSS * SHARERS * J + lane.sharer * 4; }
};
