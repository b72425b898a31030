//! Attention on Hopper's tensor cores: operands are packed first, rounded and in the order of tiles
//! of shared memory, which the kernels of an attention and of its gradients share; or, where they
//! are bf16 in memory, they are read as they lie.

use std::borrow::Cow;

use super::call::{Call, Form, GRAD_OUT, K, LAST as DELTA, LOG_SUM_EXP, Q, V};
use crate::fuse::bf16::each_job;
use crate::graph::{AttentionPart, NodeId};
use sweeper_program::headers::{CUDA_H, HOPPER_H};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::Target;
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelSource, Language, Precision, SourceFile, View,
};

const PACKED_H: SourceFile = SourceFile::embedded("packed.h", include_str!("packed.h"));

static FILES: [SourceFile; 5] = [
    SourceFile::embedded("attention_hopper.cu", include_str!("hopper.cu")),
    SourceFile::embedded("ring.h", include_str!("ring.h")),
    PACKED_H,
    HOPPER_H,
    CUDA_H,
];

static PACK_FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention_pack.cu", include_str!("pack.cu")),
    PACKED_H,
    HOPPER_H,
    CUDA_H,
];

static SUMS_FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention_pack_sums.cu", include_str!("pack_sums.cu")),
    PACKED_H,
    HOPPER_H,
    CUDA_H,
];

/// Rows of a packed matrix are a multiple of this: the rows of a block.
const PADDED: usize = 128;

/// Columns of a packed matrix are a multiple of this: those of 128 bytes in bf16.
const COLUMNS: usize = 64;

/// Threads of a block: two warpgroups that multiply, and one that copies.
const THREADS: u32 = 384;

/// Rows that a block of the kernel that packs has, and its threads.
const PACK_ROWS: usize = 32;
const PACK_THREADS: u32 = 256;

/// Matrices that a launch packs, at most.
const MAX_JOBS: usize = 6;

/// Threads of a block that packs numbers of rows.
const SUMS_THREADS: usize = 256;

/// How an operand is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::fuse) enum Packing {
    /// Rows of a matrix, for products over its columns; in bf16 also over its rows.
    Rows,
    /// Columns of a matrix, for products over its rows in tf32.
    Columns,
    /// Logarithms of rows' sums to base 2, and delta.
    Sums,
}

impl Packing {
    /// A word for people.
    pub(in crate::fuse) fn name(self) -> &'static str {
        match self {
            Packing::Rows => "rows",
            Packing::Columns => "columns",
            Packing::Sums => "sums",
        }
    }
}

/// An operand of a call as it is packed: its node, how, its elements and their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct Packed {
    pub node: NodeId,
    pub packing: Packing,
    pub elements: usize,
    pub dtype: Dtype,
}

impl Packed {
    /// Positions of the call's operands that it is made of.
    pub(in crate::fuse) fn operands(&self, call: &Call) -> Vec<usize> {
        match self.packing {
            Packing::Sums => vec![LOG_SUM_EXP, DELTA],
            Packing::Rows | Packing::Columns => {
                let operands = call.operands.iter().enumerate();
                let own = operands.filter(|&(_, &node)| node == self.node);
                own.map(|(at, _)| at).take(1).collect()
            }
        }
    }
}

/// Whether the target has these kernels for products in a precision.
pub(super) fn is_for(target: &Target, precision: Precision) -> bool {
    let Target::Cuda { arch } = target else {
        return false;
    };
    arch == "sm_90a" && matches!(precision, Precision::Tf32 | Precision::Bf16)
}

/// The matrices of a call in the order of the kernel's arguments: positions of its operands, and
/// how they are packed where they are.
fn matrices(call: &Call) -> Vec<(usize, Packing)> {
    let is_bf16 = call.precision == Precision::Bf16;
    // The second product of an operand: over its rows.
    let again = |at: usize| (!is_bf16).then_some((at, Packing::Columns));
    let rows = |at: usize| Some((at, Packing::Rows));
    let of_form = match call.form() {
        Form::Forward => {
            let values = match is_bf16 {
                true => rows(V),
                false => again(V),
            };
            vec![
                rows(Q),
                rows(K),
                values.filter(|_| call.writes(AttentionPart::Out)),
            ]
        }
        Form::GradQ => vec![rows(Q), rows(GRAD_OUT), rows(K), rows(V), again(K)],
        Form::GradKv | Form::Grad => {
            let out = again(GRAD_OUT).filter(|_| call.writes(AttentionPart::GradV));
            vec![rows(K), rows(V), rows(Q), rows(GRAD_OUT), again(Q), out]
        }
    };
    of_form.into_iter().flatten().collect()
}

/// Bf16 elements that one copy of 16 bytes has.
const CHUNK: usize = 8;

/// Whether a kernel copies an operand's rows 16 bytes at a time, where they are bf16.
fn is_in_chunks(call: &Call, at: usize) -> bool {
    let start = call.reads[at].lies.start;
    let mut steps = call.steps(at).chain([start, shape(call, at)[1]]);
    steps.all(|step| step.is_multiple_of(CHUNK))
}

/// Whether a call's kernel can read all matrices as they lie, if they are bf16 in memory.
pub(super) fn reads_in_place(call: &Call, is_bf16: impl Fn(NodeId) -> bool) -> bool {
    let is_fit =
        |&(at, _): &(usize, Packing)| is_bf16(call.reads[at].lies.base) && is_in_chunks(call, at);
    call.precision == Precision::Bf16 && matrices(call).iter().all(is_fit)
}

/// The operands of a call that are packed, in the order of the kernel's arguments.
pub(in crate::fuse) fn packs(call: &Call) -> Vec<Packed> {
    let is_bf16 = call.precision == Precision::Bf16;
    let matrices = matrices(call).into_iter().filter(|_| !call.is_in_place);
    let matrices = matrices.map(|(at, packing)| Packed {
        node: call.operands[at],
        packing,
        elements: call.heads() * shape(call, at)[0].next_multiple_of(PADDED) * wide(call, at),
        dtype: if is_bf16 { Dtype::Bf16 } else { Dtype::F32 },
    });
    let sums = (call.form() != Form::Forward).then(|| Packed {
        node: call.operands[LOG_SUM_EXP],
        packing: Packing::Sums,
        elements: call.heads() * 2 * call.queries.next_multiple_of(PADDED),
        dtype: Dtype::F32,
    });
    matrices.chain(sums).collect()
}

/// Rows and columns of a matrix of an operand.
fn shape(call: &Call, at: usize) -> [usize; 2] {
    match at {
        Q => [call.queries, call.depth],
        K => [call.keys, call.depth],
        V => [call.keys, call.width],
        _ => [call.queries, call.width],
    }
}

/// Columns of an operand as it is packed.
fn wide(call: &Call, at: usize) -> usize {
    shape(call, at)[1].next_multiple_of(COLUMNS)
}

/// A kernel that packs, its geometry and arguments.
type Launch = (Kernel, Geometry, Vec<Arg>);

/// Launches that pack operands of a call: matrices together, sums and delta. `read` yields an
/// operand's memory and its type, `written` the memory of the packed one.
pub(in crate::fuse) fn pack(
    call: &Call,
    missing: &[Packed],
    read: impl Fn(usize) -> (View, Dtype),
    written: impl Fn(&Packed) -> View,
) -> Vec<Launch> {
    let at = |packed: &Packed| call.operands.iter().position(|&node| node == packed.node);
    let (sums, matrices): (Vec<&Packed>, Vec<&Packed>) = missing
        .iter()
        .partition(|packed| packed.packing == Packing::Sums);
    let jobs: Vec<(usize, &Packed)> = matrices
        .into_iter()
        .filter_map(|packed| Some((at(packed)?, packed)))
        .collect();
    let of_matrices = jobs
        .chunks(MAX_JOBS)
        .map(|jobs| pack_matrices(call, jobs, &read, &written));
    let of_sums = sums.into_iter().map(|packed| {
        let args = [LOG_SUM_EXP, DELTA].map(|at| Arg::Read(read(at).0));
        let numbers = [call.heads(), call.queries].map(int);
        let args = args.into_iter().chain([Arg::Write(written(packed))]);
        let blocks = (packed.elements / 2).div_ceil(SUMS_THREADS);
        (
            kernel(&SUMS_FILES, "attention_pack_sums", vec![bf16(call)]),
            Geometry::linear(blocks as u32, SUMS_THREADS as u32),
            args.chain(numbers).collect(),
        )
    });
    of_matrices.chain(of_sums).collect()
}

fn pack_matrices(
    call: &Call,
    jobs: &[(usize, &Packed)],
    read: &impl Fn(usize) -> (View, Dtype),
    written: &impl Fn(&Packed) -> View,
) -> Launch {
    let is_aligned = jobs.iter().all(|&(at, _)| is_aligned(call, at));
    let mut defines = vec![
        bf16(call),
        define("ALIGNED", usize::from(is_aligned)),
        ("EACH_JOB".into(), each_job(jobs.len())),
    ];
    let leading = call.padded_leading();
    let mut args = vec![];
    let mut rows = 0;
    for (job, &(at, packed)) in jobs.iter().enumerate() {
        let by_columns = usize::from(packed.packing == Packing::Columns);
        defines.push(define(format!("WIDE_{job}"), wide(call, at)));
        defines.push(define(format!("BY_COLUMNS_{job}"), by_columns));
        let (from, dtype) = read(at);
        let number = match dtype {
            Dtype::Bf16 => "unsigned short",
            _ => "float",
        };
        defines.push((format!("NUMBER_{job}").into(), number.to_owned()));
        args.extend([Arg::Read(from), Arg::Write(written(packed))]);
        args.extend(call.steps(at).map(int));
        args.extend(shape(call, at).map(int));
        rows = rows.max(shape(call, at)[0].next_multiple_of(PADDED));
    }
    args.extend([leading[1], leading[2], call.heads()].map(int));
    let mut geometry = Geometry::linear((call.heads() * rows / PACK_ROWS) as u32, PACK_THREADS);
    geometry.grid[1] = jobs.len() as u32;
    (
        kernel(&PACK_FILES, "attention_pack", defines),
        geometry,
        args,
    )
}

/// Whether all rows of an operand are whole float4.
fn is_aligned(call: &Call, at: usize) -> bool {
    let start = call.reads[at].lies.start;
    let mut steps = call.steps(at).chain([start, shape(call, at)[1]]);
    steps.all(|step| step.is_multiple_of(4))
}

/// The kernel of a call.
pub(super) fn main_kernel(call: &Call) -> Kernel {
    let (entry, macro_name) = call.form().names();
    let flag = |name: &'static str, is_set: bool| define(name, usize::from(is_set));
    let Ring { rows, slots } = ring(call);
    kernel(
        &FILES,
        entry,
        vec![
            define(macro_name, 1),
            bf16(call),
            flag("IN_PLACE", call.is_in_place),
            define("DEPTH", wide(call, Q)),
            define("WIDTH", wide(call, V)),
            define("ROWS", rows),
            define("SLOTS", slots),
            flag("CAUSAL", call.attention.is_causal),
            flag("WRITES_OUT", call.writes(AttentionPart::Out)),
            flag("WRITES_LOG_SUM_EXP", call.writes(AttentionPart::LogSumExp)),
            flag("WRITES_GRAD_K", call.writes(AttentionPart::GradK)),
            flag("WRITES_GRAD_V", call.writes(AttentionPart::GradV)),
            flag("ROUNDS", call.rounds(call.attention.part)),
            flag("COPIES_OUT", call.has_copy(AttentionPart::Out)),
            flag("ROUNDS_GRAD_V", call.rounds(AttentionPart::GradV)),
            flag("BY_ROWS", call.is_by_rows(call.attention.part)),
            flag("BY_ROWS_GRAD_V", call.is_by_rows(AttentionPart::GradV)),
        ],
    )
}

/// The geometry of a call's kernel.
pub(super) fn geometry(call: &Call) -> Geometry {
    let blocks = call.heads() * call.rows().div_ceil(PADDED);
    Geometry {
        shared_bytes: shared_bytes(call) as u32,
        ..Geometry::linear(blocks as u32, THREADS)
    }
}

/// Arguments of a call's kernel: matrices, packed or as they lie with their steps, numbers of rows,
/// results and sizes. `read` is the memory of operands in the order of [`Call::reads`].
pub(super) fn args(
    call: &Call,
    packed: Vec<View>,
    read: impl Fn(usize) -> View,
    written: Vec<View>,
) -> Vec<Arg> {
    let in_place = matrices(call).into_iter().filter(|_| call.is_in_place);
    let in_place = in_place.flat_map(|(at, _)| {
        let steps = call.steps(at).map(int);
        std::iter::once(Arg::Read(read(at))).chain(steps.collect::<Vec<_>>())
    });
    let memory = in_place.chain(packed.into_iter().map(Arg::Read));
    let memory = memory.chain(written.into_iter().map(Arg::Write));
    let leading = call.padded_leading();
    let sizes = [
        call.heads(),
        call.queries,
        call.keys,
        call.depth,
        call.width,
        call.heads_beside,
        call.values_step,
        leading[1],
        leading[2],
    ];
    let scale = Arg::Float(call.attention.scale as f32);
    memory.chain([scale]).chain(sizes.map(int)).collect()
}

/// Tiles in shared memory: rows of each, and how many there are.
struct Ring {
    rows: usize,
    slots: usize,
}

/// The ring of a kernel: as many rows as registers hold scores of, and as many slots as there is
/// shared memory for beside the block's own rows.
fn ring(call: &Call) -> Ring {
    let is_bf16 = call.precision == Precision::Bf16;
    let is_narrow = most(call) <= 64;
    let (rows, slots) = match (call.form(), is_bf16, is_narrow) {
        (Form::Forward, true, _) => (128, 4),
        (Form::Forward, false, true) => (64, 6),
        (Form::Forward, false, false) => (64, 4),
        (_, true, _) => (64, 6),
        (_, false, true) => (64, 8),
        (_, false, false) => (32, 6),
    };
    Ring { rows, slots }
}

/// The greater number of columns.
fn most(call: &Call) -> usize {
    wide(call, Q).max(wide(call, V))
}

/// Shared memory of a block: its own rows, tiles, numbers of their rows, and barriers.
fn shared_bytes(call: &Call) -> usize {
    let Ring { rows, slots } = ring(call);
    let number = match call.precision {
        Precision::Bf16 => 2,
        Precision::F32 | Precision::Tf32 => 4,
    };
    let own = match call.form() {
        Form::Forward => wide(call, Q),
        Form::GradQ | Form::GradKv | Form::Grad => wide(call, Q) + wide(call, V),
    };
    let sums = usize::from(call.form() == Form::GradKv) * slots * rows * 4;
    PADDED * own * number + slots * rows * most(call) * number + sums + (2 * slots + 1) * 8
}

/// A macro and its value.
type Define = (Cow<'static, str>, String);

fn define(name: impl Into<Cow<'static, str>>, value: usize) -> Define {
    (name.into(), value.to_string())
}

fn int(number: usize) -> Arg {
    Arg::Int(Index::from(number))
}

fn kernel(files: &'static [SourceFile], entry: &'static str, defines: Vec<Define>) -> Kernel {
    Kernel::Compiled(KernelSource {
        language: Language::Cuda,
        files: Cow::Borrowed(files),
        entry: entry.into(),
        defines,
        user: None,
    })
}

fn bf16(call: &Call) -> Define {
    define("BF16", usize::from(call.precision == Precision::Bf16))
}
