// Warpgroup products (wgmma), bulk copies and their barriers: compute capability 9.0, sm_90a.
//
// A warpgroup is four warps, the first of which is a multiple of four. Operands in shared memory
// lie in the layout of 128-byte swizzles: rows of 128 bytes in groups of eight, 1024 bytes that
// begin at a multiple of 1024; the 16 bytes at c of row r are at c ^ r % 8. A product goes over 32
// bytes of columns: sixteen bf16 numbers or eight in tf32.
//
// Sums of a thread: for each eight columns of the product two of row `lane / 4`, from column
// `lane % 4 * 2` on, and two of the row eight below it. A warp has sixteen rows.
#ifndef SWEEPER_HOPPER_H
#define SWEEPER_HOPPER_H

#include "factors.h"

// Whether the product goes over the rows of B's tile.
template <int IS> struct Transposed {};

#ifdef SWEEPER_SHIM
#include "shim_hopper.h"
#else

#define SHARED_TILES(name) extern __shared__ __align__(1024) char name[]

DEVICE unsigned shared_address(const void *x) { return (unsigned)__cvta_generic_to_shared(x); }

// A barrier that copies arrive at, too: `count` arrivals and all bytes that were expected end a
// phase.
struct Arrivals {
    unsigned long long state;
};
DEVICE void arrivals_init(Arrivals *barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}
// After the initializations, by the thread that made them, before any other uses the barriers.
DEVICE void arrivals_init_end() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void arrive(Arrivals *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
DEVICE void arrive_and_expect(Arrivals *barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}
// Waits until the phase of that parity is over; phases count from 0.
DEVICE void arrivals_wait(Arrivals *barrier, unsigned parity) {
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
                 ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}
// Copies a multiple of 16 bytes to shared memory, and arrives with them.
DEVICE void bulk_copy(void *shared, const void *global, int bytes, Arrivals *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier)) : "memory");
}

// What this thread's copies of 16 bytes (cuda.h), which have arrived, wrote is there for products.
DEVICE void copies_visible_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers of each thread of this warpgroup from here on, a multiple of 8; all of a block's are
// those that it was launched with. Each in one branch that no thread of the other warpgroups takes.
template <int COUNT> DEVICE void registers_increase() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT)); }
template <int COUNT> DEVICE void registers_decrease() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT)); }

// An operand in shared memory. Where columns of the tile are those that the product goes over,
// `stride` bytes lead to the next eight rows; where they are rows, `leading` bytes lead to the next
// 128 bytes of columns, and `stride` to the next eight rows that the product goes over.
struct Operand {
    unsigned long long descriptor;
};
DEVICE Operand operand(const void *shared, int leading, int stride) {
    const unsigned long long swizzle_128 = 1ull << 62;
    const unsigned long long at = (shared_address(shared) & 0x3ffff) >> 4;
    Operand o = {swizzle_128 | at | (unsigned long long)(leading >> 4) << 16 | (unsigned long long)(stride >> 4) << 32};
    return o;
}

// Before the first product after registers of one were written.
DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Products so far are a group; all but the last GROUPS groups are done.
DEVICE void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int GROUPS> DEVICE void products_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory"); }
// Keeps reads of sums behind the wait for them, and writes before the products.
template <int N> DEVICE void products_fence(float (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N> DEVICE void products_fence(unsigned (&x)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+r"(x[i])::"memory");
}

#define LIST_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define LIST_32 LIST_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LIST_64 LIST_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SUMS_16 SUMS_4(0), SUMS_4(4), SUMS_4(8), SUMS_4(12)
#define SUMS_32 SUMS_16, SUMS_4(16), SUMS_4(20), SUMS_4(24), SUMS_4(28)
#define SUMS_64 SUMS_32, SUMS_4(32), SUMS_4(36), SUMS_4(40), SUMS_4(44), SUMS_4(48), SUMS_4(52), SUMS_4(56), SUMS_4(60)

// The product of 64 rows with WIDE columns, A in shared memory or in registers, as instructions
// with their immediate operands. AT: the number of sums of a thread; the operands after it are 1 to
// 6 more.
#define WGMMA(NAME, WIDE, AT, AT1, AT2, AT3, AT4, AT5, SHAPE, END, KIND, TRANSPOSED) \
    DEVICE void multiply(float (&sums)[AT], Operand a, Operand b, bool adds, KIND, Transposed<TRANSPOSED>) { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #AT2 ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #WIDE SHAPE " {" LIST_##AT "}, %" #AT ", %" #AT1 \
                     ", p, 1, 1" END(", 0") ";\n}" : SUMS_##AT : "l"(a.descriptor), "l"(b.descriptor), "r"((int)adds)); \
    } \
    DEVICE void multiply(float (&sums)[AT], const unsigned *a, Operand b, bool adds, KIND, Transposed<TRANSPOSED>) { \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #AT5 ", 0;\n" \
                     "wgmma.mma_async.sync.aligned.m64n" #WIDE SHAPE " {" LIST_##AT "}, {%" #AT ", %" #AT1 ", %" #AT2 \
                     ", %" #AT3 "}, %" #AT4 ", p, 1, 1" END("") ";\n}" \
                     : SUMS_##AT : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.descriptor), "r"((int)adds)); \
    }
#define WGMMAS(SHAPE, END, KIND, TRANSPOSED) \
    WGMMA(32, 32, 16, 17, 18, 19, 20, 21, SHAPE, END, KIND, TRANSPOSED) \
    WGMMA(64, 64, 32, 33, 34, 35, 36, 37, SHAPE, END, KIND, TRANSPOSED) \
    WGMMA(128, 128, 64, 65, 66, 67, 68, 69, SHAPE, END, KIND, TRANSPOSED)
#define END_NONE(of_a) ""
#define END_BY_ROWS(of_a) of_a ", 0"
#define END_BY_COLUMNS(of_a) of_a ", 1"

WGMMAS("k8.f32.tf32.tf32", END_NONE, Tf32, 0)
WGMMAS("k16.f32.bf16.bf16", END_BY_ROWS, Bf16, 0)
WGMMAS("k16.f32.bf16.bf16", END_BY_COLUMNS, Bf16, 1)

#endif
#endif
