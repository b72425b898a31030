//! Sums of rows by index: [`Op::ScatterAdd`](crate::graph::Op::ScatterAdd), the gradient of a table
//! whose rows were looked up.
//!
//! Each block owns some rows of the result and some columns, goes over all indices in their order,
//! and adds the values of its own rows. It uses no atomics: sums are equal for any number of
//! threads. Each block reads all indices once, which is cheap as long as a row has more elements
//! than there are indices for each of its blocks: `blocks * indices * 8` bytes from a cache beside
//! `4 * indices * columns` from memory.

use std::borrow::Cow;

use crate::graph::{Graph, NodeId};
use sweeper_program::headers::{CPU_H, CUDA_H};
use sweeper_program::workload::Target;
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelId, KernelSource, Language, SourceFile, Step, View,
};

static C_FILES: [SourceFile; 2] = [
    SourceFile::embedded("scatter.c", include_str!("scatter.c")),
    CPU_H,
];
static CUDA_FILES: [SourceFile; 2] = [
    SourceFile::embedded("scatter.cu", include_str!("scatter.cu")),
    CUDA_H,
];

/// Rows of the result that one block of the C kernel owns, at least.
const CPU_ROWS: usize = 64;

/// Blocks of the C kernel, at most: each reads all indices.
const CPU_BLOCKS: usize = 64;

/// Threads of a block of the CUDA kernel, and columns that they own.
const CUDA_THREADS: u32 = 256;
const CUDA_COLUMNS: usize = 1024;

/// Rows that a block of the CUDA kernel owns, at least; and blocks along rows, at most.
const CUDA_ROWS: usize = 4;
const CUDA_BLOCKS: usize = 2048;

/// Sizes of one scatter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    indices: usize,
    rows: usize,
    columns: usize,
}

impl Sizes {
    /// The sizes of a node.
    pub(super) fn of(graph: &Graph, id: NodeId) -> Self {
        let node = graph.node(id);
        let rows = node.shape.first().copied().unwrap_or(1);
        Sizes {
            indices: graph.node(node.operands[1]).elements(),
            rows,
            columns: node.shape.iter().skip(1).product(),
        }
    }
}

/// The kernel.
pub(super) fn kernel(target: &Target) -> Kernel {
    let (language, files): (_, &'static [SourceFile]) = match target {
        Target::Cpu => (Language::C, &C_FILES),
        Target::Cuda { .. } => (Language::Cuda, &CUDA_FILES),
    };
    Kernel::Compiled(KernelSource {
        language,
        files: Cow::Borrowed(files),
        entry: "scatter_add".into(),
        defines: vec![],
        options: Vec::new(),
        user: None,
    })
}

/// A launch of the kernel; views are the values and the indices.
pub(super) fn launch(
    kernel: KernelId,
    sizes: Sizes,
    views: Vec<View>,
    out: View,
    target: &Target,
) -> Step {
    let (least, most) = match target {
        Target::Cpu => (CPU_ROWS, CPU_BLOCKS),
        Target::Cuda { .. } => (CUDA_ROWS, CUDA_BLOCKS),
    };
    let block_rows = sizes.rows.div_ceil(most).max(least);
    let blocks = sizes.rows.div_ceil(block_rows).max(1);
    let geometry = match target {
        Target::Cpu => Geometry::blocks(blocks as u32),
        Target::Cuda { .. } => {
            let pieces = sizes.columns.div_ceil(CUDA_COLUMNS).max(1);
            Geometry::linear((blocks * pieces) as u32, CUDA_THREADS)
        }
    };
    let numbers = [sizes.indices, sizes.rows, sizes.columns, block_rows];
    let args = views.into_iter().map(Arg::Read);
    let args = args.chain([Arg::Write(out)]);
    let args = args.chain(numbers.map(|number| Arg::Int(Index::from(number))));
    Step::Launch {
        kernel,
        geometry,
        args: args.collect(),
    }
}
