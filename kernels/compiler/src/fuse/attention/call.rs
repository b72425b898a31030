//! Launches of attention kernels: operands are read as they lie, rows by rows.

use std::borrow::Cow;

use super::hopper::{self, Packed};
use crate::fuse::Request;
use crate::fuse::access;
use crate::fuse::library::{self, Lies};
use crate::fuse::plan::{Members, Plan, TaskId};
use crate::graph::{Attention, AttentionPart, Node, NodeId, Op};
use sweeper_program::headers::{CPU_H, CUDA_H, ELEMENTARY_H, VECTOR_H};
use sweeper_program::workload::Target;
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelSource, Language, Precision, SourceFile, View,
};

static C_FILES: [SourceFile; 4] = [
    SourceFile::embedded("attention.c", include_str!("attention.c")),
    CPU_H,
    VECTOR_H,
    ELEMENTARY_H,
];

/// Rows of the result that a block of the C kernels has.
const CPU_ROWS: usize = 64;

/// Floats of a vector of the C kernels, to which widths are rounded up.
const CPU_LANES: usize = 16;

static CUDA_FILES: [SourceFile; 2] = [
    SourceFile::embedded("attention.cu", include_str!("attention.cu")),
    CUDA_H,
];

/// Threads of a block of the CUDA kernels.
const CUDA_THREADS: usize = 256;

/// Columns of a tile of scores of the CUDA kernels, to which widths are rounded up, too.
const CUDA_COLUMNS: usize = 64;

/// Floats after each row of a tile in shared memory.
const CUDA_PAD: usize = 4;

/// Leading dimensions of an operand, at most: the others are merged.
const LEADING: usize = 3;

/// An operand of several matrices, whose rows are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct Strided {
    /// Its memory.
    pub lies: Lies,
    /// Elements from one matrix to the next, for each leading dimension, outermost first.
    leading: Vec<usize>,
    /// Elements from one row to the next.
    row: usize,
}

/// A launch of an attention kernel.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::fuse) struct Call {
    pub(super) attention: Attention,
    /// Its results: parts of one attention, or of its gradient, with their nodes.
    writes: Vec<(AttentionPart, NodeId)>,
    /// Its operands in the order of the first node's, and where they lie.
    pub(super) operands: Vec<NodeId>,
    pub reads: Vec<Strided>,
    /// Leading extents, outermost first.
    leading: Vec<usize>,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Columns of queries and keys, and of values.
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) precision: Precision,
    /// Whether its kernels are those for Hopper's tensor cores.
    is_packed: bool,
}

/// The kernels of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Weighted values and the logarithms of sums, by tiles of queries.
    Forward,
    /// The gradient by queries, by tiles of queries.
    GradQ,
    /// The gradients by keys and values, by tiles of keys.
    GradKv,
}

impl Form {
    fn of(part: AttentionPart) -> Form {
        match part {
            AttentionPart::Out | AttentionPart::LogSumExp => Form::Forward,
            AttentionPart::GradQ => Form::GradQ,
            AttentionPart::GradK | AttentionPart::GradV => Form::GradKv,
        }
    }

    /// The function, and the macro by which the CUDA source has it alone.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Form::Forward => ("attention", "FORWARD"),
            Form::GradQ => ("attention_grad_q", "GRAD_Q"),
            Form::GradKv => ("attention_grad_kv", "GRAD_KV"),
        }
    }
}

/// The attention that a node is a value of.
fn of_node(node: &Node) -> Option<Attention> {
    match node.op {
        Op::Attention(attention) => Some(attention),
        _ => None,
    }
}

/// Whether a kernel can read an operand as it lies: rows without gaps; numbers of rows densely.
pub(in crate::fuse) fn takes(plan: &Plan, id: NodeId, operand: NodeId) -> bool {
    match is_of_rows(plan, id, operand) {
        true => library::dense(plan, operand).is_some(),
        false => strided(plan, operand).is_some(),
    }
}

/// Whether an operand has one number a row: the logarithm of its sum, or delta.
fn is_of_rows(plan: &Plan, id: NodeId, operand: NodeId) -> bool {
    let mut rows = plan.graph.node(id).operands.iter().skip(4);
    rows.any(|&of_rows| of_rows == operand)
}

fn strided(plan: &Plan, id: NodeId) -> Option<Strided> {
    let shape = plan.graph.node(id).shape.clone();
    let rank = shape.len();
    let (base, at) = library::position(plan, id, &shape, access::axes(rank))?;
    let reach = |axis: usize| (shape[axis] - 1) * at.step(axis);
    let is_contiguous = shape[rank - 1] == 1 || at.step(rank - 1) == 1;
    is_contiguous.then(|| Strided {
        lies: Lies {
            base,
            start: at.start,
            span: 1 + (0..rank).map(reach).sum::<usize>(),
        },
        leading: (0..rank - 2).map(|axis| at.step(axis)).collect(),
        row: at.step(rank - 2),
    })
}

/// Merges tasks whose values one kernel computes: weighted values with the logarithms of sums, and
/// the gradients by keys and by values.
pub(in crate::fuse) fn merge(plan: &mut Plan) {
    let attention = |plan: &Plan, task: TaskId| {
        let node = plan.graph.node(plan.tasks[task].node);
        of_node(node).map(|attention| (attention, node.operands.clone()))
    };
    for task in 0..plan.tasks.len() {
        let Some((of, operands)) = attention(plan, task) else {
            continue;
        };
        let partner = match of.part {
            AttentionPart::Out => AttentionPart::LogSumExp,
            AttentionPart::GradK => AttentionPart::GradV,
            _ => continue,
        };
        let is_partner = |other: &TaskId| {
            attention(plan, *other).is_some_and(|(found, with)| {
                let wanted = Attention {
                    part: partner,
                    ..of
                };
                found == wanted && operands.starts_with(&with)
            })
        };
        let other = (0..plan.tasks.len()).find(is_partner);
        if let Some(other) = other.filter(|&other| plan.home(other) == Some(other)) {
            plan.merge(task, other);
        }
    }
}

impl Call {
    /// The call of a kernel's tasks; none if an operand can't be read as it lies.
    pub(in crate::fuse) fn new(
        plan: &Plan,
        tasks: &Members,
        request: &Request<'_>,
    ) -> Option<Call> {
        let nodes = tasks.iter().map(|&task| plan.tasks[task].node);
        let mut writes: Vec<(AttentionPart, NodeId)> = nodes
            .filter_map(|id| Some((of_node(plan.graph.node(id))?.part, id)))
            .collect();
        writes.sort_unstable();
        let &(_, first) = writes.first()?;
        let node = plan.graph.node(first);
        let operand = |at: usize| plan.graph.node(node.operands[at]);
        let (q, k) = (operand(0), operand(1));
        let (leading, &[queries, depth]) = q.shape.split_last_chunk::<2>()?;
        let width = node.operands.get(2).map_or(depth, |&v| {
            plan.graph.node(v).shape.last().copied().unwrap_or(1)
        });
        let reads = node
            .operands
            .iter()
            .map(|&operand| strided(plan, operand))
            .collect::<Option<Vec<_>>>()?;
        let mut call = Call {
            attention: of_node(node)?,
            writes,
            operands: node.operands.clone(),
            reads,
            leading: leading.to_vec(),
            queries,
            keys: k.shape[k.shape.len() - 2],
            depth,
            width,
            precision: request.precision,
            is_packed: hopper::is_for(request.target, request.precision),
        };
        call.merge_leading();
        (call.leading.len() <= LEADING).then_some(call)
    }

    /// Makes neighbouring leading dimensions one where all operands step through both as through
    /// one.
    fn merge_leading(&mut self) {
        let mut at = 0;
        while at + 1 < self.leading.len() {
            let inner = self.leading[at + 1];
            let is_one = |read: &Strided| {
                read.leading[at] == read.leading[at + 1] * inner || self.leading[at] == 1
            };
            if !self.reads.iter().all(is_one) {
                at += 1;
                continue;
            }
            self.leading[at] *= inner;
            self.leading.remove(at + 1);
            for read in &mut self.reads {
                read.leading.remove(at);
            }
        }
    }

    /// Elements of an operand.
    pub(in crate::fuse) fn elements(&self, at: usize, plan: &Plan) -> usize {
        plan.graph.node(self.operands[at]).elements()
    }

    /// The nodes that it yields.
    pub(in crate::fuse) fn yields(&self) -> impl Iterator<Item = NodeId> {
        self.writes.iter().map(|&(_, node)| node)
    }

    /// Whether it writes a part.
    pub(super) fn writes(&self, part: AttentionPart) -> bool {
        self.writes.iter().any(|&(written, _)| written == part)
    }

    pub(super) fn form(&self) -> Form {
        Form::of(self.attention.part)
    }

    /// Rows of the result, which blocks share out.
    pub(super) fn rows(&self) -> usize {
        match self.form() {
            Form::GradKv => self.keys,
            _ => self.queries,
        }
    }

    /// Matrices of the result.
    pub(super) fn heads(&self) -> usize {
        self.leading.iter().product()
    }

    /// Leading extents, outermost first, as many as kernels take.
    pub(super) fn padded_leading(&self) -> Vec<usize> {
        padded(&self.leading, 1).collect()
    }

    /// Steps of an operand's leading dimensions, as many as kernels take, and of its rows.
    pub(super) fn steps(&self, at: usize) -> impl Iterator<Item = usize> {
        let read = &self.reads[at];
        padded(&read.leading, 0).chain([read.row])
    }

    /// Its operands as its kernel takes them, where it takes them packed.
    pub(in crate::fuse) fn packs(&self) -> Vec<Packed> {
        match self.is_packed {
            true => hopper::packs(self),
            false => vec![],
        }
    }

    /// The kernel, for widths up to a multiple of a vector or a tile.
    pub(in crate::fuse) fn kernel(&self, target: &Target) -> Kernel {
        if self.is_packed {
            return hopper::main_kernel(self);
        }
        let define = KernelSource::define;
        let (entry, macro_name) = self.form().names();
        let unit = match target {
            Target::Cpu => CPU_LANES,
            Target::Cuda { .. } => CUDA_COLUMNS,
        };
        let mut defines = vec![
            define("DEPTH", self.depth.next_multiple_of(unit)),
            define("WIDTH", self.width.next_multiple_of(unit)),
        ];
        let mut flag = |name: &'static str, is_set: bool| {
            defines.push(define(name, usize::from(is_set)));
        };
        flag("CAUSAL", self.attention.is_causal);
        flag("WRITES_OUT", self.writes(AttentionPart::Out));
        flag("WRITES_LOG_SUM_EXP", self.writes(AttentionPart::LogSumExp));
        flag("WRITES_GRAD_K", self.writes(AttentionPart::GradK));
        flag("WRITES_GRAD_V", self.writes(AttentionPart::GradV));
        let (language, files): (_, &'static [SourceFile]) = match target {
            Target::Cpu => {
                defines.push(define("ROWS", CPU_ROWS));
                (Language::C, &C_FILES)
            }
            Target::Cuda { .. } => {
                flag("ALIGNED", self.is_aligned());
                defines.push(define(macro_name, 1));
                (Language::Cuda, &CUDA_FILES)
            }
        };
        Kernel::Compiled(KernelSource {
            language,
            files: Cow::Borrowed(files),
            entry: entry.into(),
            defines,
        })
    }

    /// Whether all rows are whole float4.
    fn is_aligned(&self) -> bool {
        let is_whole = |read: &Strided| {
            let mut steps = read.leading.iter().chain([&read.row, &read.lies.start]);
            steps.all(|step| step.is_multiple_of(4))
        };
        let widths = [self.depth, self.width];
        // Numbers of rows are read one by one.
        let rows = self.reads.iter().take(4);
        widths.iter().all(|width| width.is_multiple_of(4)) && rows.into_iter().all(is_whole)
    }

    pub(in crate::fuse) fn geometry(&self, target: &Target) -> Geometry {
        if self.is_packed {
            return hopper::geometry(self);
        }
        let blocks = |rows: usize| (self.heads() * self.rows().div_ceil(rows)) as u32;
        match target {
            Target::Cpu => Geometry::blocks(blocks(CPU_ROWS)),
            Target::Cuda { .. } => {
                let rows = self.cuda_rows();
                Geometry {
                    shared_bytes: (4 * self.shared_floats(rows)) as u32,
                    ..Geometry::linear(blocks(rows), CUDA_THREADS as u32)
                }
            }
        }
    }

    /// Rows of the result that a block of the CUDA kernel has.
    fn cuda_rows(&self) -> usize {
        match self.form() {
            Form::Forward => 128,
            _ => 64,
        }
    }

    /// Floats of shared memory of a block of the CUDA kernel: tiles of its own rows, of the columns
    /// that it goes over, and of weights.
    fn shared_floats(&self, rows: usize) -> usize {
        let step = |columns: usize| columns.next_multiple_of(CUDA_COLUMNS) + CUDA_PAD;
        let (depth, width) = (step(self.depth), step(self.width));
        let weights = rows * (CUDA_COLUMNS + CUDA_PAD);
        let queries_and_keys = (rows + CUDA_COLUMNS) * depth;
        match self.form() {
            Form::Forward => {
                let values = usize::from(self.writes(AttentionPart::Out)) * CUDA_COLUMNS * width;
                queries_and_keys + weights + values
            }
            Form::GradQ => queries_and_keys + (rows + CUDA_COLUMNS) * width + weights,
            Form::GradKv => queries_and_keys + (rows + CUDA_COLUMNS) * width + 2 * weights,
        }
    }

    /// Arguments: operands, packed or not, results, sizes, and of operands that are not packed the
    /// steps of matrices and rows of `q`, `k`, `v` and `grad_out`. Operands that a kernel does not
    /// have, have neither memory nor steps.
    pub(in crate::fuse) fn args(&self, read: Vec<View>, written: Vec<View>) -> Vec<Arg> {
        if self.is_packed {
            return hopper::args(self, read, written);
        }
        let memory = read.into_iter().map(Arg::Read);
        let memory = memory.chain(written.into_iter().map(Arg::Write));
        let leading = self.padded_leading().into_iter();
        let sizes = leading.chain([self.queries, self.keys, self.depth, self.width]);
        let matrices = 0..self.reads.len().min(4);
        let numbers = sizes
            .chain(matrices.flat_map(|at| self.steps(at)))
            .map(|number| Arg::Int(Index::from(number)));
        let scale = Arg::Float(self.attention.scale as f32);
        memory.chain([scale]).chain(numbers).collect()
    }
}

/// As many numbers as there are leading dimensions, the last ones those given.
fn padded(of: &[usize], fill: usize) -> impl Iterator<Item = usize> {
    let missing = LEADING - of.len();
    std::iter::repeat_n(fill, missing).chain(of.to_vec())
}
