//! Sources that kernels of several families include.

use crate::SourceFile;

/// Arguments and hints for kernels in C.
pub const CPU_H: SourceFile = SourceFile::embedded("cpu.h", include_str!("cpu.h"));

/// Vectors of floats as wide as the registers of the processor.
pub const VECTOR_H: SourceFile = SourceFile::embedded("vector.h", include_str!("vector.h"));

/// Stores past the caches; includes `vector.h`.
pub const NONTEMPORAL_H: SourceFile =
    SourceFile::embedded("nontemporal.h", include_str!("nontemporal.h"));

/// Exponential and logarithm of vectors; includes `vector.h`.
pub const ELEMENTARY_H: SourceFile =
    SourceFile::embedded("elementary.h", include_str!("elementary.h"));

/// Declarations that CUDA kernels need beside the language; they have no other headers.
pub const CUDA_H: SourceFile = SourceFile::embedded("cuda.h", include_str!("cuda.h"));

/// Rounding to bf16, for CUDA kernels; includes `cuda.h`.
pub const BF16_H: SourceFile = SourceFile::embedded("bf16.h", include_str!("bf16.h"));

/// Functions of generated kernels in C; includes `elementary.h` and `nontemporal.h`.
pub const FUNCTIONS_H: SourceFile =
    SourceFile::embedded("functions.h", include_str!("functions.h"));

/// Functions of generated CUDA kernels; includes `bf16.h`.
pub const FUNCTIONS_CUH: SourceFile =
    SourceFile::embedded("functions.cuh", include_str!("functions.cuh"));

/// Factors of products on tensor cores, for CUDA kernels; includes `cuda.h`.
pub const FACTORS_H: SourceFile = SourceFile::embedded("factors.h", include_str!("factors.h"));

/// Products of warps on tensor cores, for CUDA kernels; includes `factors.h`.
pub const MMA_H: SourceFile = SourceFile::embedded("mma.h", include_str!("mma.h"));

/// Warpgroup products and bulk copies, for CUDA kernels on Hopper GPUs; includes `factors.h`.
pub const HOPPER_H: SourceFile = SourceFile::embedded("hopper.h", include_str!("hopper.h"));
