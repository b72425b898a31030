//! Operands of attention on tensor cores, packed: rounded, and in the order of tiles of shared
//! memory, which the kernels of an attention and of its gradients share; and what kernels by warps
//! and by warpgroups have in common.

use std::borrow::Cow;

use super::call::{Call, Form, GRAD_OUT, K, LAST as DELTA, LOG_SUM_EXP, Q, V};
use crate::fuse::bf16::each_job;
use crate::graph::{AttentionPart, NodeId};
use sweeper_program::headers::{CUDA_H, FACTORS_H};
use sweeper_program::tensor::Dtype;
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelSource, Language, Precision, SourceFile, View,
};

pub(super) const PACKED_H: SourceFile = SourceFile::embedded("packed.h", include_str!("packed.h"));

/// Weights in registers, rows of results; includes `packed.h`.
pub(super) const WEIGHTS_H: SourceFile =
    SourceFile::embedded("weights.h", include_str!("weights.h"));

static PACK_FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention_pack.cu", include_str!("pack.cu")),
    PACKED_H,
    FACTORS_H,
    CUDA_H,
];

static SUMS_FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention_pack_sums.cu", include_str!("pack_sums.cu")),
    PACKED_H,
    FACTORS_H,
    CUDA_H,
];

/// Rows of a packed matrix are a multiple of this, and this one of a block's rows.
pub(super) const PADDED: usize = 128;

/// Columns of a packed matrix are a multiple of this: those of 128 bytes in bf16.
const COLUMNS: usize = 64;

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
    /// Rows of a matrix, for products over its columns; also over its rows, but by warpgroups in
    /// tf32.
    Rows,
    /// Columns of a matrix, for products over its rows by warpgroups in tf32.
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

/// The matrices of a call in the order of the kernel's arguments: positions of its operands, and
/// how they are packed where they are.
fn matrices(call: &Call) -> Vec<(usize, Packing)> {
    let by_columns = call.packs_columns();
    // The second product of an operand: over its rows.
    let again = |at: usize| by_columns.then_some((at, Packing::Columns));
    let rows = |at: usize| Some((at, Packing::Rows));
    let of_form = match call.form() {
        Form::Forward => {
            let values = match by_columns {
                true => again(V),
                false => rows(V),
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
pub(super) fn wide(call: &Call, at: usize) -> usize {
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

/// The greater number of columns.
pub(super) fn most(call: &Call) -> usize {
    wide(call, Q).max(wide(call, V))
}

/// Columns of the operands of which a block has its own rows in shared memory.
pub(super) fn own_columns(call: &Call) -> usize {
    match call.form() {
        Form::Forward => wide(call, Q),
        Form::GradQ | Form::GradKv | Form::Grad => wide(call, Q) + wide(call, V),
    }
}

/// Bytes of a number of a packed matrix.
pub(super) fn number_bytes(call: &Call) -> usize {
    match call.precision {
        Precision::Bf16 => 2,
        Precision::F32 | Precision::Tf32 => 4,
    }
}

/// The kernel of a call, from files that have it, and sizes of its tiles.
pub(super) fn main_kernel(
    call: &Call,
    files: &'static [SourceFile],
    tiles: &[(&'static str, usize)],
) -> Kernel {
    let (entry, macro_name) = call.form().names();
    let flag = |name: &'static str, is_set: bool| define(name, usize::from(is_set));
    let own = [
        define(macro_name, 1),
        bf16(call),
        define("DEPTH", wide(call, Q)),
        define("WIDTH", wide(call, V)),
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
    ];
    let tiles = tiles.iter().map(|&(name, value)| define(name, value));
    kernel(files, entry, own.into_iter().chain(tiles).collect())
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
        options: Vec::new(),
        user: None,
    })
}

fn bf16(call: &Call) -> Define {
    define("BF16", usize::from(call.precision == Precision::Bf16))
}
