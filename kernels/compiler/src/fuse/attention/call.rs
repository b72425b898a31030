//! Launches of attention kernels: operands are read as they lie, rows by rows.

use std::borrow::Cow;
use std::ops::Range;

use super::cuda::BUSY_BLOCKS;
use super::packed::{self, Packed};
use super::{by_library, cpu, cuda, hopper, mma};
use crate::fuse::Request;
use crate::fuse::access;
use crate::fuse::body::Source;
use crate::fuse::library::{self, Lies};
use crate::fuse::plan::{Members, Plan, TaskId};
use crate::graph::{Attention, AttentionPart, Node, NodeId, Op};
use sweeper_program::workload::{Capabilities, Target};
use sweeper_program::{
    Arg, Geometry, Index, Kernel, KernelSource, Language, Precision, SourceFile, View,
};

/// Leading dimensions of an operand, at most: the others are merged.
const LEADING: usize = 3;

/// Positions of a call's operands. The last one of gradients is `delta`, or `out` for a library.
pub(super) const Q: usize = 0;
pub(super) const K: usize = 1;
pub(super) const V: usize = 2;
pub(super) const GRAD_OUT: usize = 3;
pub(super) const LOG_SUM_EXP: usize = 4;
pub(super) const LAST: usize = 5;

/// Operands before this one are matrices: queries, keys, values and the gradient of the result.
pub(in crate::fuse) const MATRICES: usize = LOG_SUM_EXP;

/// An operand of several matrices, whose rows are contiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::fuse) struct Strided {
    /// Its memory.
    pub lies: Lies,
    /// Elements from one matrix to the next, for each leading dimension, outermost first.
    pub(super) leading: Vec<usize>,
    /// Elements from one row to the next.
    pub(super) row: usize,
}

/// A launch of an attention kernel.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::fuse) struct Call {
    pub(super) attention: Attention,
    /// Its results: parts of one attention, or of its gradient, with their nodes.
    pub(super) writes: Vec<(AttentionPart, NodeId)>,
    /// Its results that are bf16 in memory.
    in_bf16: Vec<AttentionPart>,
    /// Its results that only their form in bf16 is read of.
    rounded: Vec<AttentionPart>,
    /// Its results that are f32 in memory, and once more in bf16 for products.
    with_copy: Vec<AttentionPart>,
    /// Its results with rows of all heads beside each other.
    by_rows: Vec<AttentionPart>,
    /// Heads whose rows are beside each other then.
    pub(super) heads_beside: usize,
    /// Elements from one row of the gradient by values to the next then: rows may be part of a
    /// concatenation.
    pub(super) values_step: usize,
    /// Its operands in the order of the first node's, and where they lie.
    pub(super) operands: Vec<NodeId>,
    pub reads: Vec<Strided>,
    /// Leading extents, outermost first.
    pub(super) leading: Vec<usize>,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// Columns of queries and keys, and of values.
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) precision: Precision,
    /// Whether its kernel, for tensor cores, reads matrices that are bf16 in memory as they lie.
    pub(super) is_in_place: bool,
    /// Whose kernels it is computed by.
    kernels: Kernels,
}

/// The forms in which a result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fuse) enum Stored {
    /// As it is.
    Exact,
    /// In bf16.
    Rounded,
    /// Both.
    Both,
}

/// Kernels of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernels {
    /// In C.
    Cpu,
    /// In f32, for GPUs that copy to shared memory by themselves.
    Cuda,
    /// In tf32 or bf16, for Hopper's tensor cores: products of warpgroups.
    Hopper,
    /// In tf32 or bf16, for all tensor cores that have these: products of warps.
    Mma,
    /// Those of a library, in bf16.
    Library,
}

impl Kernels {
    /// The kernels for a target and a precision of products, if it has any.
    pub(super) fn of(request: &Request<'_>) -> Option<Kernels> {
        if request.by_library {
            return Some(Kernels::Library);
        }
        let Target::Cuda { arch } = request.target else {
            return Some(Kernels::Cpu);
        };
        let able = Capabilities::of(arch);
        match request.precision {
            _ if !able.has_async_copies => None,
            Precision::F32 => Some(Kernels::Cuda),
            Precision::Tf32 | Precision::Bf16 if able.has_warp_groups => Some(Kernels::Hopper),
            Precision::Tf32 | Precision::Bf16 => Some(Kernels::Mma),
        }
    }

    /// Whether they take packed operands, and write results in the forms that are asked for.
    pub(super) fn are_on_tensor_cores(self) -> bool {
        matches!(self, Kernels::Hopper | Kernels::Mma)
    }

    /// The form of the kernel that computes a part.
    fn form(self, part: AttentionPart) -> Form {
        match part {
            AttentionPart::Out | AttentionPart::LogSumExp => Form::Forward,
            _ if !self.are_on_tensor_cores() => Form::Grad,
            AttentionPart::GradQ => Form::GradQ,
            AttentionPart::GradK | AttentionPart::GradV => Form::GradKv,
        }
    }
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
    /// All gradients, by tiles of keys.
    Grad,
}

impl Form {
    /// The function, and the macro by which sources for tensor cores have it alone.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Form::Forward => ("attention", "FORWARD"),
            Form::GradQ => ("attention_grad_q", "GRAD_Q"),
            Form::GradKv => ("attention_grad_kv", "GRAD_KV"),
            Form::Grad => ("attention_grad", "GRAD"),
        }
    }
}

/// Words of 64 bits that a kernel needs beside operands and results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::fuse) struct Words {
    /// The first of them, which are zeros before each launch.
    pub zeros: usize,
    pub all: usize,
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
    let node = plan.graph.node(id);
    let has_delta = !of_node(node).is_some_and(|of| of.takes_out);
    let count = if has_delta { 2 } else { 1 };
    let mut rows = node.operands.iter().skip(LOG_SUM_EXP).take(count);
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

/// Merges tasks whose values one kernel computes, such as weighted values and the logarithms of
/// sums.
pub(in crate::fuse) fn merge(plan: &mut Plan, request: &Request<'_>) {
    let Some(kernels) = Kernels::of(request) else {
        return;
    };
    let attention = |plan: &Plan, task: TaskId| {
        let node = plan.graph.node(plan.tasks[task].node);
        let attention = of_node(node)?;
        let is_by_rows = false;
        Some((
            Attention {
                is_by_rows,
                ..attention
            },
            node.operands.clone(),
        ))
    };
    for task in 0..plan.tasks.len() {
        let Some((of, operands)) = attention(plan, task) else {
            continue;
        };
        // The first part has all operands of the others.
        let is_partner = |other: &TaskId| {
            attention(plan, *other).is_some_and(|(found, with)| {
                let with_its_part = Attention {
                    part: found.part,
                    ..of
                };
                found == with_its_part
                    && of.part < found.part
                    && kernels.form(found.part) == kernels.form(of.part)
                    && operands.starts_with(&with)
            })
        };
        let partners: Vec<TaskId> = (0..plan.tasks.len()).filter(is_partner).collect();
        for other in partners {
            let [home, of_other] = [task, other].map(|task| plan.home(task));
            if let (Some(home), true) = (home, of_other == Some(other) && home != Some(other)) {
                plan.merge(home, other);
            }
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
        let rounded = writes.iter().filter(|(_, id)| plan.in_bf16.contains(id));
        let is_by_rows = |id: NodeId| of_node(plan.graph.node(id)).is_some_and(|of| of.is_by_rows);
        let beside = writes.iter().filter(|&&(_, id)| is_by_rows(id));
        let heads_beside = leading.last().copied().unwrap_or(1);
        let part_of = |wanted| {
            let written = writes.iter().find(|&&(part, _)| part == wanted);
            written.and_then(|(_, id)| plan.parts.get(id))
        };
        let values_step = part_of(AttentionPart::GradV).map_or(heads_beside * width, |it| it.step);
        let mut call = Call {
            attention: of_node(node)?,
            in_bf16: rounded.map(|&(part, _)| part).collect(),
            rounded: vec![],
            with_copy: vec![],
            by_rows: beside.map(|&(part, _)| part).collect(),
            heads_beside,
            values_step,
            writes,
            operands: node.operands.clone(),
            reads,
            leading: leading.to_vec(),
            queries,
            keys: k.shape[k.shape.len() - 2],
            depth,
            width,
            precision: request.precision,
            is_in_place: false,
            kernels: Kernels::of(request)?,
        };
        let least = match call.kernels {
            Kernels::Library => by_library::LEADING,
            Kernels::Cpu | Kernels::Cuda | Kernels::Hopper | Kernels::Mma => 1,
        };
        call.merge_leading(least);
        call.prefer_warps();
        (call.leading.len() <= LEADING).then_some(call)
    }

    /// Makes neighbouring leading dimensions one where all operands step through both as through
    /// one, as long as there are more than `least`.
    fn merge_leading(&mut self, least: usize) {
        let mut at = 0;
        while at + 1 < self.leading.len() && self.leading.len() > least {
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

    /// Takes products of warps, not of warpgroups, in tf32 where blocks of these would leave half
    /// of a large GPU without work: those of warps have half as many rows.
    fn prefer_warps(&mut self) {
        let is_short = hopper::blocks(self) <= BUSY_BLOCKS / 2;
        if self.kernels == Kernels::Hopper && self.precision == Precision::Tf32 && is_short {
            self.kernels = Kernels::Mma;
        }
    }

    /// Elements of an operand.
    pub(in crate::fuse) fn elements(&self, at: usize, plan: &Plan) -> usize {
        plan.graph.node(self.operands[at]).elements()
    }

    /// Whether it writes a part.
    pub(super) fn writes(&self, part: AttentionPart) -> bool {
        self.writes.iter().any(|&(written, _)| written == part)
    }

    /// Has its kernel store results that are read in bf16 in that form, in place of f32 or, where
    /// they are read in f32, too, beside it.
    pub(in crate::fuse) fn store_rounded(&mut self, rounded: impl Fn(NodeId) -> Stored) {
        if !self.kernels.are_on_tensor_cores() {
            return;
        }
        for &(part, node) in &self.writes {
            match rounded(node) {
                _ if self.in_bf16.contains(&part) => {}
                Stored::Exact => {}
                Stored::Rounded => self.rounded.push(part),
                Stored::Both => self.with_copy.push(part),
            }
        }
    }

    /// Has its kernel read matrices as they lie where all are bf16 in memory: none is packed then.
    pub(in crate::fuse) fn read_in_place(&mut self, is_bf16: impl Fn(NodeId) -> bool) {
        self.is_in_place = self.kernels == Kernels::Hopper && packed::reads_in_place(self, is_bf16);
    }

    /// Positions of the operands that its kernel reads itself; the others it has packed.
    pub(in crate::fuse) fn reads_itself(&self) -> Range<usize> {
        match self.kernels {
            Kernels::Hopper if self.is_in_place => 0..self.reads.len().min(MATRICES),
            Kernels::Hopper | Kernels::Mma => 0..0,
            Kernels::Cpu | Kernels::Cuda | Kernels::Library => 0..self.reads.len(),
        }
    }

    /// Its results in the order of the kernel's arguments, and whether each is the node's own
    /// memory or that of its form in bf16.
    pub(in crate::fuse) fn stores(&self) -> impl Iterator<Item = Source> {
        self.writes.iter().flat_map(|&(part, node)| {
            let own = match self.rounded.contains(&part) {
                true => Source::Rounded(node),
                false => Source::Node(node),
            };
            let copy = self.has_copy(part).then_some(Source::Rounded(node));
            [Some(own), copy].into_iter().flatten()
        })
    }

    /// Whether it writes a part in f32 and in bf16.
    pub(super) fn has_copy(&self, part: AttentionPart) -> bool {
        self.with_copy.contains(&part)
    }

    /// Whether it rounds a part that it writes to bf16.
    pub(super) fn rounds(&self, part: AttentionPart) -> bool {
        self.in_bf16.contains(&part) || self.rounded.contains(&part)
    }

    /// Whether rows of all heads of a part are beside each other.
    pub(super) fn is_by_rows(&self, part: AttentionPart) -> bool {
        self.by_rows.contains(&part)
    }

    pub(super) fn form(&self) -> Form {
        self.kernels.form(self.attention.part)
    }

    /// Rows of the result, which blocks share out.
    pub(super) fn rows(&self) -> usize {
        match self.form() {
            Form::GradKv | Form::Grad => self.keys,
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
        match self.kernels.are_on_tensor_cores() {
            true => packed::packs(self),
            false => vec![],
        }
    }

    /// Whether operands of products over their rows are packed by columns.
    pub(super) fn packs_columns(&self) -> bool {
        self.kernels == Kernels::Hopper && self.precision == Precision::Tf32
    }

    /// The kernel, for widths up to a multiple of a vector or a tile.
    pub(in crate::fuse) fn kernel(&self, target: &Target) -> Kernel {
        match self.kernels {
            Kernels::Hopper => return hopper::kernel(self),
            Kernels::Mma => return mma::kernel(self, target),
            Kernels::Cpu | Kernels::Cuda | Kernels::Library => {}
        }
        let flags = [
            ("CAUSAL", self.attention.is_causal),
            ("WRITES_OUT", self.writes(AttentionPart::Out)),
            ("WRITES_LOG_SUM_EXP", self.writes(AttentionPart::LogSumExp)),
            ("WRITES_GRAD_Q", self.writes(AttentionPart::GradQ)),
            ("WRITES_GRAD_K", self.writes(AttentionPart::GradK)),
            ("WRITES_GRAD_V", self.writes(AttentionPart::GradV)),
        ];
        let flags = flags.map(|(name, is_set)| (name, usize::from(is_set)));
        let (entry, _) = self.form().names();
        let mut options = Vec::new();
        let (language, (files, own)): (_, (&'static [SourceFile], Vec<_>)) = match target {
            Target::Cpu => (Language::C, cpu::source(self)),
            Target::Cuda { arch } => {
                let (files, mut own) = cuda::source(self, arch);
                options.extend(cuda::options(self).iter().map(|&option| option.into()));
                own.push(("ALIGNED", usize::from(self.is_aligned())));
                (Language::Cuda, (files, own))
            }
        };
        let defines = own.into_iter().chain(flags);
        Kernel::Compiled(KernelSource {
            language,
            files: Cow::Borrowed(files),
            entry: entry.into(),
            defines: defines
                .map(|(name, value)| KernelSource::define(name, value))
                .collect(),
            options,
            user: None,
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
        let rows = self.reads.iter().take(MATRICES);
        widths.iter().all(|width| width.is_multiple_of(4)) && rows.into_iter().all(is_whole)
    }

    pub(in crate::fuse) fn geometry(&self, target: &Target) -> Geometry {
        match self.kernels {
            Kernels::Hopper => return hopper::geometry(self),
            Kernels::Mma => return mma::geometry(self, target),
            Kernels::Cpu | Kernels::Cuda | Kernels::Library => {}
        }
        match target {
            Target::Cpu => cpu::geometry(self),
            Target::Cuda { arch } => cuda::geometry(self, arch),
        }
    }

    /// The memory that the kernel needs beside operands and results.
    pub(in crate::fuse) fn words(&self, target: &Target) -> Words {
        match target {
            Target::Cuda { arch } if self.kernels == Kernels::Cuda => cuda::words(self, arch),
            Target::Cpu => cpu::words(self),
            Target::Cuda { .. } => Words::default(),
        }
    }

    /// Arguments: operands, packed or not, results, sizes, and of operands that are not packed the
    /// steps of matrices and rows of `q`, `k`, `v` and `grad_out`; then, where several blocks share
    /// a tile, the keys of a block, and of gradients on a CPU the number of a head's blocks.
    /// Operands that a kernel does not have, have neither memory nor steps.
    pub(in crate::fuse) fn args(
        &self,
        target: &Target,
        of_packs: Vec<View>,
        read: impl Fn(usize) -> View,
        written: Vec<View>,
    ) -> Vec<Arg> {
        if self.kernels.are_on_tensor_cores() {
            return packed::args(self, of_packs, read, written);
        }
        let memory = self.reads_itself().map(|at| Arg::Read(read(at)));
        let memory = memory.chain(written.into_iter().map(Arg::Write));
        let leading = self.padded_leading().into_iter();
        let sizes = leading.chain([self.queries, self.keys, self.depth, self.width]);
        let matrices = 0..self.reads.len().min(MATRICES);
        let share = match target {
            Target::Cuda { arch } if self.kernels == Kernels::Cuda => cuda::part_keys(self, arch),
            Target::Cuda { .. } => None,
            Target::Cpu => cpu::parts(self),
        };
        let numbers = sizes
            .chain(matrices.flat_map(|at| self.steps(at)))
            .chain(share)
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
