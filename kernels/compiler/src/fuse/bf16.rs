//! Operands of products in bf16: copies of f32 memory, rounded to the nearest; and copies in f32 of
//! results that a library stores in bf16.
//!
//! A library that is asked for bf16 on operands in f32 may as well compute in tf32, and does.
//! Operands that are bf16 in memory leave it no choice. Copies of given tensors are made in the
//! prologue, which is not timed; copies of computed values are part of the program, and so are all
//! where forward and backward are one span: weights that are trained change from step to step.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Request;
use super::library::Lies;
use super::plan::Plan;
use crate::graph::{NodeId, Op, may_be_bf16};
use sweeper_program::headers::{BF16_H, CUDA_H};
use sweeper_program::workload::Target;
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelSource, Language, Library, Precision, SourceFile, View,
};

static FILES: [SourceFile; 3] = [
    SourceFile::embedded("bf16.cu", include_str!("bf16.cu")),
    BF16_H,
    CUDA_H,
];

/// Threads of a block, and blocks of an array, at most: each thread rounds many elements, four at a
/// time, and shorter arrays leave few blocks of the launch without work.
const THREADS: u32 = 256;
const BLOCKS: usize = 288;

/// Arrays that a launch rounds, or copies to f32, at most.
const MAX_JOBS: usize = 32;

/// Copies in one direction: the function, and what chooses it in the source.
#[derive(Clone, Copy)]
struct Copies {
    entry: &'static str,
    widens: bool,
}

const ROUNDED: Copies = Copies {
    entry: "round_to_bf16",
    widens: false,
};

const WIDENED: Copies = Copies {
    entry: "widen_from_bf16",
    widens: true,
};

/// The nodes that are bf16 in memory: all that may be, but for operands of calls that take f32.
pub(super) fn in_memory(plan: &Plan, request: &Request<'_>) -> BTreeSet<NodeId> {
    if *request.target == Target::Cpu || request.precision != Precision::Bf16 {
        return BTreeSet::new();
    }
    let made = plan.tasks.iter().map(|task| task.node);
    let mut nodes: BTreeSet<NodeId> = made
        .filter(|&id| may_be_bf16(&plan.graph, id, request.precision))
        .collect();
    for task in 0..plan.tasks.len() {
        let node = plan.graph.node(plan.tasks[task].node);
        if plan.is_call(task) && !matches!(node.op, Op::Matmul | Op::Attention(_)) {
            for &operand in &node.operands {
                nodes.remove(&plan.base(operand));
            }
        }
    }
    nodes
}

/// The nodes of which a call takes copies in bf16: the two factors of a product, unless they are
/// that in memory.
pub(super) fn rounded(plan: &Plan, call: &Library, lies: &[Lies]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = match call {
        Library::Matmul(call) if call.precision == Precision::Bf16 => {
            lies[..2].iter().map(|lies| lies.base).collect()
        }
        _ => vec![],
    };
    nodes.retain(|id| !plan.in_bf16.contains(id));
    nodes.dedup();
    nodes
}

/// The kernel that copies so many arrays.
fn kernel(copies: Copies, jobs: usize) -> Kernel {
    Kernel::Compiled(KernelSource {
        language: Language::Cuda,
        files: Cow::Borrowed(&FILES),
        entry: copies.entry.into(),
        defines: vec![
            KernelSource::define("EACH_JOB", each_job(jobs)),
            KernelSource::define("WIDENS", u8::from(copies.widens)),
        ],
        options: Vec::new(),
        user: None,
    })
}

/// `JOB(0) JOB(1) ...`, for sources that declare parameters of each job and do the jobs.
pub(super) fn each_job(jobs: usize) -> String {
    let each: Vec<String> = (0..jobs).map(|job| format!("JOB({job})")).collect();
    each.join(" ")
}

/// Whether a kernel only copies factors in the precision of their product.
pub fn rounds_factors(held: &Kernel) -> bool {
    held.name() == ROUNDED.entry
}

/// Whether a kernel only copies results of a library from bf16 to f32.
pub fn widens_results(held: &Kernel) -> bool {
    held.name() == WIDENED.entry
}

/// A kernel, with the geometry and the arguments of its launch.
type Launch = (Kernel, Geometry, Vec<Arg>);

/// Launches over pairs of views of as many elements, f32 and bf16; each with its kernel. There are
/// two kernels, for one array and for up to [`MAX_JOBS`], so that models of any depth share them.
pub(super) fn launches(jobs: &[(View, View)]) -> Vec<Launch> {
    all(ROUNDED, jobs)
}

/// As [`launches`], of bf16 and f32: copies in the other direction.
pub(super) fn widening(jobs: &[(View, View)]) -> Vec<Launch> {
    all(WIDENED, jobs)
}

fn all(copies: Copies, jobs: &[(View, View)]) -> Vec<Launch> {
    let places = if jobs.len() > 1 { MAX_JOBS } else { 1 };
    let chunks = jobs.chunks(places);
    chunks.map(|jobs| launch(copies, jobs, places)).collect()
}

fn launch(copies: Copies, jobs: &[(View, View)], places: usize) -> Launch {
    let longest = jobs.iter().map(|(from, _)| from.len).max().unwrap_or(0);
    let blocks = longest.div_ceil(THREADS as usize).min(BLOCKS);
    let mut geometry = Geometry::linear(blocks as u32, THREADS);
    geometry.grid[1] = jobs.len() as u32;
    let of_job = |(from, to): &(View, View)| {
        let len = Arg::Int(Index::from(from.len));
        [Arg::Read(from.clone()), Arg::Write(to.clone()), len]
    };
    // The grid has no row for the places that are left over.
    let unused = vec![Arg::UNUSED; 3 * (places - jobs.len())];
    let args = jobs.iter().flat_map(of_job).chain(unused);
    let end = Arg::Int(Index::from(jobs.len()));
    (
        kernel(copies, places),
        geometry,
        args.chain([end]).collect(),
    )
}
