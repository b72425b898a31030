// What every C kernel needs: its arguments, and names for the compiler's hints.
//
// A kernel is called once for each block of its launch, possibly from several threads at once:
//
//     void entry(const uint64_t *args, uint32_t block)
//
// Each argument is one 64-bit cell: a pointer, a signed integer, or the bits of a float in the low
// half.
#ifndef SWEEPER_CPU_H
#define SWEEPER_CPU_H

#include <stdint.h>

#define KERNEL(name, args, block) \
    __attribute__((visibility("default"))) void name(const uint64_t *args, uint32_t block)

#define ARG_READ(args, position, type) ((const type *)(uintptr_t)(args)[position])
#define ARG_WRITE(args, position, type) ((type *)(uintptr_t)(args)[position])
#define ARG_INT(args, position) ((int64_t)(args)[position])

static inline float sweeper_float_of(uint64_t cell) {
    union {
        uint32_t bits;
        float value;
    } low = {.bits = (uint32_t)cell};
    return low.value;
}
#define ARG_FLOAT(args, position) sweeper_float_of((args)[position])

#endif
