//! Calls of a library: which memory they take, and how it lies.

use super::access::{self, Axis, Coordinate};
use super::attention;
use super::plan::Plan;
use crate::graph::{Convolution, NodeId, Op};
use sweeper_program::tensor::Dtype;
use sweeper_program::{Activation, Conv2d, ConvPass, Library, Matmul, Matrix, Precision, Scale};

/// Memory of an operand of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lies {
    /// The node whose memory it is.
    pub base: NodeId,
    /// First element.
    pub start: usize,
    /// Elements from the first to the last.
    pub span: usize,
}

/// Whether a call can read all its operands in their layout.
pub(super) fn fits(plan: &Plan, id: NodeId) -> bool {
    let mut operands = plan.graph.node(id).operands.iter();
    operands.all(|&operand| takes(plan, id, operand))
}

/// Whether a call can read one operand in its layout.
pub(super) fn takes(plan: &Plan, id: NodeId, operand: NodeId) -> bool {
    match plan.graph.node(id).op {
        Op::Matmul => matrices(plan, operand).is_some(),
        Op::Attention(_) => attention::takes(plan, id, operand),
        _ => dense(plan, operand).is_some(),
    }
}

/// The place of a node's elements, if they are dense and in order.
pub(super) fn dense(plan: &Plan, id: NodeId) -> Option<Lies> {
    let shape = plan.graph.node(id).shape.clone();
    let (base, at) = position(plan, id, &shape, access::axes(shape.len()))?;
    let elements = plan.graph.node(id).elements();
    let expected = access::position(&access::axes(shape.len()), &shape);
    let is_long = |steps: &Coordinate| -> Vec<(Axis, usize)> {
        let steps = steps.steps.iter().copied();
        steps.filter(|&(axis, _)| shape[axis] > 1).collect()
    };
    (is_long(&at) == is_long(&expected)).then_some(Lies {
        base,
        start: at.start,
        span: elements,
    })
}

/// The memory that a node is read from, with the element of each of its own elements. None where it
/// has no memory, or is not stepped through.
pub(super) fn position(
    plan: &Plan,
    mut id: NodeId,
    extents: &[usize],
    mut place: access::Place,
) -> Option<(NodeId, Coordinate)> {
    let base = plan.base(id);
    while id != base {
        // The elements of a dense tensor in another shape are where they were.
        if plan.unreshaped(id) == base && !matches!(plan.graph.node(base).op, Op::Constant(_)) {
            let at = access::position(&place, &plan.graph.node(id).shape);
            return Some((base, in_memory(plan, base, at, extents)?));
        }
        let view = plan.graph.node(id);
        let operand = view.operands[0];
        place = access::through(view, &plan.graph.node(operand).shape, &place, extents).ok()?;
        id = operand;
    }
    let node = plan.graph.node(base);
    if matches!(node.op, Op::Constant(_)) {
        return None;
    }
    let at = access::position(&place, &node.shape);
    Some((base, in_memory(plan, base, at, extents)?))
}

/// The place of an element in memory, from its place among the elements of the node.
fn in_memory(plan: &Plan, node: NodeId, at: Coordinate, extents: &[usize]) -> Option<Coordinate> {
    match plan.parts.get(&node) {
        Some(part) => part.position(&at, extents).ok(),
        None => Some(at),
    }
}

/// The layout of an operand's matrices: their memory, and the steps of batch, rows and columns.
fn matrices(plan: &Plan, id: NodeId) -> Option<(Lies, Matrix)> {
    let shape = plan.graph.node(id).shape.clone();
    let (base, at) = position(plan, id, &shape, access::axes(shape.len()))?;
    let rank = shape.len();
    let (lead, last) = (&shape[..rank - 2], &shape[rank - 2..]);
    let reach = |axis: Axis| (shape[axis] - 1) * at.step(axis);
    let span = 1 + (0..rank).map(reach).sum::<usize>();
    let mut row_step = at.step(rank - 2);
    let mut column_step = at.step(rank - 1);
    // A step along one row or column is never taken; libraries want it to look right.
    if last[1] == 1 {
        column_step = 1;
    }
    if last[0] == 1 {
        row_step = if column_step == 1 { last[1] } else { 1 };
    }
    let is_one_matrix =
        (row_step == 1 && column_step >= last[0]) || (column_step == 1 && row_step >= last[1]);
    let lies = Lies {
        base,
        start: at.start,
        span,
    };
    let matrix = Matrix {
        row_step,
        column_step,
        batch_step: batch_step(&at, lead)?,
    };
    is_one_matrix.then_some((lies, matrix))
}

/// The one step that all leading dimensions are, outermost first.
fn batch_step(at: &Coordinate, lead: &[usize]) -> Option<usize> {
    let mut step = None;
    let mut inner = 1;
    for axis in (0..lead.len()).rev().filter(|&axis| lead[axis] > 1) {
        let own = at.step(axis);
        let first = *step.get_or_insert(own);
        if own != first * inner {
            return None;
        }
        inner *= lead[axis];
    }
    Some(step.unwrap_or(0))
}

/// A product, and where its factors lie.
pub(super) fn matmul(plan: &Plan, id: NodeId, precision: Precision) -> Option<(Matmul, [Lies; 2])> {
    let node = plan.graph.node(id);
    let (from_a, a) = matrices(plan, node.operands[0])?;
    let (from_b, b) = matrices(plan, node.operands[1])?;
    let (lead, &[m, n]) = node.shape.split_last_chunk::<2>()?;
    let k = *plan.graph.node(node.operands[0]).shape.last()?;
    let batch: usize = lead.iter().product();
    let out = Matrix {
        row_step: n,
        column_step: 1,
        batch_step: m * n,
    };
    let mut call = Matmul {
        batch,
        m,
        n,
        k,
        a,
        b,
        out,
        precision,
        stores: Dtype::F32,
        scale: Scale::default(),
        has_bias: false,
        activation: Activation::None,
    };
    // One second factor for all: the first factors are one taller matrix.
    let is_tall = b.batch_step == 0 && a.column_step == 1 && a.batch_step == m * a.row_step;
    if batch > 1 && is_tall {
        (call.batch, call.m) = (1, batch * m);
    }
    if call.batch == 1 {
        for matrix in [&mut call.a, &mut call.b, &mut call.out] {
            matrix.batch_step = 0;
        }
    }
    Some((call, [from_a, from_b]))
}

/// A convolution or a gradient of one.
pub(super) fn conv2d(plan: &Plan, id: NodeId, precision: Precision) -> Option<Conv2d> {
    let node = plan.graph.node(id);
    let shape = |at: usize| plan.graph.node(node.operands[at]).shape.as_slice();
    let (pass, window, x, w) = match node.op {
        Op::Conv2d(window) => (ConvPass::Forward, window, shape(0), shape(1)),
        Op::Conv2dGradX(window) => (ConvPass::GradX, window, node.shape.as_slice(), shape(1)),
        Op::Conv2dGradW(window) => (ConvPass::GradW, window, shape(1), node.shape.as_slice()),
        _ => return None,
    };
    let (&[batch, channels_in, height, width], &[channels_out, _, rows, columns]) = (x, w) else {
        return None;
    };
    let Convolution { stride, padding } = window;
    Some(Conv2d {
        pass,
        batch,
        channels_in,
        channels_out,
        picture: [height, width],
        kernel: [rows, columns],
        stride,
        padding,
        precision,
        has_bias: false,
        activation: Activation::None,
    })
}

/// The call of a node, with the memory of its operands in the order of the call's arguments.
pub(super) fn call(plan: &Plan, id: NodeId, precision: Precision) -> Option<(Library, Vec<Lies>)> {
    let operands = plan.graph.node(id).operands.iter();
    match plan.graph.node(id).op {
        Op::Matmul => {
            let (call, lies) = matmul(plan, id, precision)?;
            Some((Library::Matmul(call), lies.to_vec()))
        }
        _ => {
            let lies = operands
                .map(|&operand| dense(plan, operand))
                .collect::<Option<_>>()?;
            Some((Library::Conv2d(conv2d(plan, id, precision)?), lies))
        }
    }
}
