//! Sources that kernels of several families include.

use crate::program::SourceFile;

/// Arguments and hints for kernels in C.
pub const CPU_H: SourceFile = SourceFile::embedded("cpu.h", include_str!("cpu.h"));
