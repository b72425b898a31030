//! Attention as one call of cuDNN: what it takes, and how operands lie.

use std::collections::BTreeSet;

use super::call::{Call, Form, GRAD_OUT, LAST, LOG_SUM_EXP, Stored, Strided};
use crate::fuse::Request;
use crate::fuse::body::Source;
use crate::fuse::library::Lies;
use crate::fuse::plan::Plan;
use crate::graph::{AttentionPart, Graph, NodeId, Op};
use sweeper_program::workload::{Refusal, Target};
use sweeper_program::{Attention, AttentionPass, Heads, Library, Precision, Scale};

/// Leading dimensions of an operand, at most: sequences and heads.
pub(super) const LEADING: usize = 2;

/// Checks that there is a library for the attentions of a graph, if it has any.
///
/// # Errors
/// That there is none.
pub(super) fn check(graph: &Graph, request: &Request<'_>) -> Result<(), Refusal> {
    let operations = operations(graph);
    let is_attention = |op: &Op| matches!(op, Op::Attention(_));
    let is_call = |op: &Op| {
        let is_convolution = matches!(op, Op::Conv2d(_) | Op::Conv2dGradX(_) | Op::Conv2dGradW(_));
        *op == Op::Matmul || is_attention(op) || is_convolution
    };
    let reason = match (request.target, request.precision) {
        _ if !operations.iter().any(|op| is_attention(op)) => return Ok(()),
        (Target::Cuda { .. }, Precision::Bf16) => return Ok(()),
        // Advice would not help.
        _ if !operations.iter().all(|op| is_call(op)) => {
            "no library that is linked here has the operations beside attention"
        }
        (Target::Cpu, _) => "no library that is linked here has attention on CPUs",
        (Target::Cuda { .. }, Precision::F32 | Precision::Tf32) => {
            "cuDNN's attention takes bf16 only; set precision = \"bf16\""
        }
    };
    Err(Refusal::Unavailable(reason.to_owned()))
}

/// Operations that results depend on, but for those that compute nothing.
fn operations(graph: &Graph) -> Vec<&Op> {
    let mut is_live = vec![false; graph.nodes().len()];
    for output in graph.outputs() {
        is_live[output.node.index()] = true;
    }
    let mut found = vec![];
    for id in graph.ids().rev() {
        if !is_live[id.index()] {
            continue;
        }
        let node = graph.node(id);
        for source in node.sources() {
            is_live[source.index()] = true;
        }
        let is_given = matches!(node.op, Op::Input(_) | Op::Constant(_) | Op::Concat { .. });
        if !is_given && !node.op.is_view() {
            found.push(&node.op);
        }
    }
    found
}

/// An attention, or its gradients, as one call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::fuse) struct Fused {
    pub call: Library,
    /// Memory of its operands.
    pub reads: Vec<Lies>,
    /// Nodes that it reads in bf16.
    pub rounded: Vec<NodeId>,
    /// Memory of its results: those that are not bf16 in memory have a form that is.
    pub stores: Vec<Source>,
    /// Results that are read in f32, to which a launch after it copies them.
    pub widened: Vec<NodeId>,
}

impl Fused {
    /// The library's form of a call, with the forms in which its results are read.
    ///
    /// # Errors
    /// That the library does not have it.
    pub(in crate::fuse) fn new(
        of: &Call,
        plan: &Plan,
        read: impl Fn(NodeId) -> Stored,
    ) -> Result<Fused, Refusal> {
        let call = attention(of).map_err(Refusal::Unavailable)?;
        if let Some(reason) = call.refusal() {
            return Err(Refusal::Unavailable(reason));
        }
        let is_in_bf16 = |id: &NodeId| plan.in_bf16.contains(id);
        let matrices = of.reads.iter().enumerate();
        let matrices = matrices.filter(|&(at, _)| is_matrix(at));
        let rounded: BTreeSet<NodeId> = matrices.map(|(_, read)| read.lies.base).collect();
        let is_rounded = |&&(part, id): &&(AttentionPart, NodeId)| {
            part != AttentionPart::LogSumExp && !is_in_bf16(&id)
        };
        let in_two_forms = of.writes.iter().filter(is_rounded).map(|&(_, id)| id);
        Ok(Fused {
            call: Library::Attention(call),
            reads: of.reads.iter().map(|read| read.lies).collect(),
            rounded: rounded.into_iter().filter(|id| !is_in_bf16(id)).collect(),
            stores: (of.writes.iter())
                .map(|write| match is_rounded(&write) {
                    true => Source::Rounded(write.1),
                    false => Source::Node(write.1),
                })
                .collect(),
            widened: in_two_forms
                .filter(|&id| read(id) != Stored::Rounded)
                .collect(),
        })
    }

    /// The memory that it reads an operand from.
    pub(in crate::fuse) fn source(&self, operand: usize) -> Source {
        let base = self.reads[operand].base;
        match is_matrix(operand) && self.rounded.contains(&base) {
            true => Source::Rounded(base),
            false => Source::Node(base),
        }
    }
}

fn attention(of: &Call) -> Result<Attention, String> {
    let (depth, width) = (of.depth, of.width);
    if depth != width {
        return Err(format!(
            "cuDNN's attention takes keys as wide as values here, not {depth} and {width}"
        ));
    }
    let matrices = of.reads.iter().enumerate();
    let mut matrices = matrices.filter(|&(at, _)| is_matrix(at));
    if matrices.any(|(_, read)| !read.lies.start.is_multiple_of(Attention::ALIGNMENT)) {
        return Err(Attention::MISALIGNED.to_owned());
    }
    let (batch, heads) = match of.leading[..] {
        [] => (1, 1),
        [batch] => (batch, 1),
        [batch, heads] => (batch, heads),
        _ => return Err("cuDNN's attention takes sequences and heads at even steps".into()),
    };
    let pass = match of.form() {
        Form::Forward => AttentionPass::Forward {
            with_sums: of.writes(AttentionPart::LogSumExp),
        },
        _ => AttentionPass::Gradients {
            grad_out: heads_of(&of.reads[GRAD_OUT]),
            out: heads_of(&of.reads[LAST]),
        },
    };
    let parts: &[AttentionPart] = match pass {
        AttentionPass::Forward { .. } => &[AttentionPart::Out],
        AttentionPass::Gradients { .. } => &[
            AttentionPart::GradQ,
            AttentionPart::GradK,
            AttentionPart::GradV,
        ],
    };
    if !parts.iter().all(|&part| of.writes(part)) {
        return Err("cuDNN's attention yields weighted values, or all of its gradients".into());
    }
    let [q, k, v] = [0, 1, 2].map(|at| heads_of(&of.reads[at]));
    Ok(Attention {
        pass,
        batch,
        heads,
        queries: of.queries,
        keys: of.keys,
        width,
        scale: Scale::new(of.attention.scale as f32),
        is_causal: of.attention.is_causal,
        q,
        k,
        v,
    })
}

/// How an operand of at most [`LEADING`] leading dimensions lies.
fn heads_of(read: &Strided) -> Heads {
    let (batch_step, head_step) = match read.leading[..] {
        [batch, head] => (batch, head),
        [batch] => (batch, 0),
        _ => (0, 0),
    };
    Heads {
        batch_step,
        head_step,
        row_step: read.row,
    }
}

/// Whether an operand is a matrix: all are but the logarithms of sums.
pub(in crate::fuse) fn is_matrix(operand: usize) -> bool {
    operand != LOG_SUM_EXP
}
