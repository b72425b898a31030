// Products of a warp on tensor cores (mma.sync) and the loads of their factors (ldmatrix): compute
// capability 8.0 on.
//
// A product has sixteen rows of A, eight columns of B, and goes over 32 bytes of factors: sixteen
// bf16 numbers or eight in tf32. Of lane l, with g = l / 4 and t = l % 4:
//
//   sums     columns 2 t and 2 t + 1 of row g, then of row g + 8
//   A        word t of row g and of row g + 8, then word t + 4 of both; a word is two numbers in
//            bf16, one in tf32
//   B        word t of column g, then word t + 4
#ifndef SWEEPER_MMA_H
#define SWEEPER_MMA_H

#include "factors.h"

#ifdef SWEEPER_SHIM
#include "shim_mma.h"
#else

// Four matrices of eight rows of 16 bytes in shared memory: lane l has the address of row l % 8 of
// matrix l / 8, and gets word t of row g of each.
DEVICE void load_matrices(unsigned (&x)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}
// The same of transposed matrices of 16-bit numbers: those in column g of rows 2 t and 2 t + 1.
DEVICE void load_matrices_transposed(unsigned (&x)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

// sums += A B, by all lanes of a warp.
#define MMA(SHAPE, KIND) \
    DEVICE void multiply_add(float *sums, const unsigned *a, const unsigned *b, KIND) { \
        asm volatile("mma.sync.aligned.m16n8" SHAPE " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
MMA("k16.row.col.f32.bf16.bf16.f32", Bf16)
MMA("k8.row.col.f32.tf32.tf32.f32", Tf32)

#endif
#endif
