//! Operands of products in bf16: copies of f32 memory, rounded to the nearest.
//!
//! A library that is asked for bf16 on operands in f32 may as well compute in tf32, and does.
//! Operands that are bf16 in memory leave it no choice. Copies of given tensors are made in the
//! prologue, which is not timed; copies of computed values are part of the program, and so are all
//! where forward and backward are one span: weights that are trained change from step to step.

use std::borrow::Cow;

use super::library::Lies;
use crate::graph::NodeId;
use sweeper_program::headers::CUDA_H;
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelId, KernelSource, Language, Library, Precision, SourceFile,
    Step, View,
};

static FILES: [SourceFile; 2] = [
    SourceFile::embedded("bf16.cu", include_str!("bf16.cu")),
    CUDA_H,
];

/// Threads of a block; each rounds one element.
const THREADS: u32 = 256;

/// The nodes whose memory a call takes in bf16: the two factors of a product.
pub(super) fn rounded(call: &Library, lies: &[Lies]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = match call {
        Library::Matmul(call) if call.precision == Precision::Bf16 => {
            lies[..2].iter().map(|lies| lies.base).collect()
        }
        _ => vec![],
    };
    nodes.dedup();
    nodes
}

/// The kernel.
pub(super) fn kernel() -> Kernel {
    Kernel::Compiled(KernelSource {
        language: Language::Cuda,
        files: Cow::Borrowed(&FILES),
        entry: "round_to_bf16".into(),
        defines: vec![],
    })
}

/// Whether a kernel only copies factors in the precision of their product.
pub fn rounds_factors(held: &Kernel) -> bool {
    *held == kernel()
}

/// A launch of the kernel over two views of as many elements, f32 and bf16.
pub(super) fn launch(kernel: KernelId, from: View, to: View) -> Step {
    let len = from.len;
    Step::Launch {
        kernel,
        geometry: Geometry::linear(len.div_ceil(THREADS as usize) as u32, THREADS),
        args: vec![Arg::Read(from), Arg::Write(to), Arg::Int(Index::from(len))],
    }
}
