// The layout of packed matrices, of attention on Hopper's tensor cores: BF16 says whether numbers
// are bf16 or tf32. Rows are packed up to a multiple of PADDED, and columns of 64; the others are
// zeros.
//
// By rows: eight rows of the first 128 bytes of columns, then their other columns, then the next
// eight rows; within each 1024 bytes in the layout of 128-byte swizzles (hopper.h). By columns, in
// tf32 alone: 32 rows of each column, then the next 32 rows. Rows of each eight are in the order in
// which a thread has its sums: 0, 2, 4, 6, 1, 3, 5, 7.
#ifndef SWEEPER_PACKED_H
#define SWEEPER_PACKED_H

#include "factors.h"

#define PADDED 128
#define LOG2_E 1.44269504088896341f
#define INFINITE __int_as_float(0x7f800000)

#if BF16
typedef Bf16 Number;
#define NUMBER_BYTES 2
#else
typedef Tf32 Number;
#define NUMBER_BYTES 4
#endif
// Columns of a row of 128 bytes, and those that one instruction goes over.
#define PANEL (128 / NUMBER_BYTES)
#define STEP (32 / NUMBER_BYTES)

#define BLOCK_BYTES 1024

DEVICE int64 padded(int64 rows) { return (rows + PADDED - 1) / PADDED * PADDED; }

#endif
