//! The meaning of a graph: the value of its nodes, in f64.
//!
//! Nodes of [`Dtype::F32`] are computed in f64 without rounding between them, so that this is the
//! right answer to which a backend's answer is compared. Views share memory, and a value is freed
//! after its last use.

mod array;
mod attention;
mod conv;
mod indexed;
mod matmul;
mod peak;
mod reduce;
mod rounding;

pub(super) use self::array::{Array, map};
use self::indexed::Outside;
use super::op::{Binary, Op};
use super::{Graph, Node, NodeId};
use sweeper_program::check;
use sweeper_program::tensor::{Data, Dtype, Tensor, Tensors};

pub use self::peak::peak_bytes;
pub use self::rounding::Rounding;
pub(super) use self::rounding::{
    Scatter, UnaryRounding, factor_stream, moved_constant, scatter, stream, unit_of_factors,
    with_sums_apart,
};

/// Why a graph has no value for some inputs.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EvaluateError {
    /// An input is not there.
    #[error("input `{name}` ({node}) is missing")]
    Missing {
        /// Name of the input.
        name: String,
        /// Node of the input.
        node: NodeId,
    },
    /// An input has another shape or type than the graph was made for.
    #[error(
        "input `{name}` ({node}) is {found}{found_shape:?}, the graph takes {expected}{expected_shape:?}"
    )]
    Input {
        /// Name of the input.
        name: String,
        /// Node of the input.
        node: NodeId,
        /// Type of the given tensor.
        found: Dtype,
        /// Shape of the given tensor.
        found_shape: Vec<usize>,
        /// The node's type; a tensor of f64 is accepted for [`Dtype::F32`], a tensor of i32 for
        /// [`Dtype::I64`].
        expected: Dtype,
        /// The node's shape.
        expected_shape: Vec<usize>,
    },
    /// An index lies outside the tensor that it selects from.
    #[error("{op} as {node}: index {index} at position {position} is not below {extent}")]
    Index {
        /// Word of the operation.
        op: &'static str,
        /// Node of the operation.
        node: NodeId,
        /// The index.
        index: i64,
        /// Position of the bad index among the indices, counted in row-major order.
        position: usize,
        /// Number of elements to choose from.
        extent: usize,
    },
}

/// The value of a node.
#[derive(Clone)]
enum Value {
    Real(Array<f64>),
    Whole(Array<i64>),
}

impl Value {
    /// # Panics
    /// If the value is whole: the builder checked types.
    fn real(&self) -> &Array<f64> {
        match self {
            Value::Real(array) => array,
            Value::Whole(_) => unreachable!("operands have the types that the builder asked for"),
        }
    }

    /// # Panics
    /// If the value is real: the builder checked types.
    fn whole(&self) -> &Array<i64> {
        match self {
            Value::Whole(array) => array,
            Value::Real(_) => unreachable!("operands have the types that the builder asked for"),
        }
    }

    /// Whether both are views of one memory.
    fn shares_memory(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Real(one), Value::Real(other)) => one.shares_memory(other),
            (Value::Whole(one), Value::Whole(other)) => one.shares_memory(other),
            _ => false,
        }
    }

    fn into_tensor(self) -> Tensor {
        match self {
            Value::Real(array) => Tensor::f64(array.shape().to_vec(), array.into_dense()),
            Value::Whole(array) => Tensor::i64(array.shape().to_vec(), array.into_dense()),
        }
    }
}

/// `method` of the array of either type.
macro_rules! view {
    ($value:expr, $method:ident($($argument:expr),*)) => {
        match $value.clone() {
            Value::Real(array) => Value::Real(array.$method($($argument),*)),
            Value::Whole(array) => Value::Whole(array.$method($($argument),*)),
        }
    };
}

/// All results of a graph by name, of [`Data::F64`] or [`Data::I64`].
///
/// # Errors
/// An input that is missing, or of another shape or type than the graph was made for; an index
/// outside the tensor that it selects from.
pub fn evaluate(graph: &Graph, inputs: &Tensors) -> Result<Tensors, EvaluateError> {
    let outputs = graph.outputs();
    let nodes: Vec<NodeId> = outputs.iter().map(|output| output.node).collect();
    let values = evaluate_nodes(graph, inputs, &nodes)?;
    let names = outputs.iter().map(|output| output.name.clone());
    Ok(names.zip(values).collect())
}

/// The values of some nodes; nodes that they don't depend on are not computed.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_nodes(
    graph: &Graph,
    inputs: &Tensors,
    nodes: &[NodeId],
) -> Result<Vec<Tensor>, EvaluateError> {
    evaluate_as(graph, inputs, nodes, None)
}

/// The values of some nodes where each operation rounds.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_rounded(
    graph: &Graph,
    inputs: &Tensors,
    nodes: &[NodeId],
    rounding: Rounding,
) -> Result<Vec<Tensor>, EvaluateError> {
    let (graph, stands_for) = with_sums_apart(graph);
    let nodes: Vec<NodeId> = nodes.iter().map(|node| stands_for[node.index()]).collect();
    evaluate_as(&graph, inputs, &nodes, Some(rounding))
}

fn evaluate_as(
    graph: &Graph,
    inputs: &Tensors,
    nodes: &[NodeId],
    rounding: Option<Rounding>,
) -> Result<Vec<Tensor>, EvaluateError> {
    let mut uses = uses(graph, nodes);
    let mut values: Vec<Option<Value>> = vec![None; graph.nodes().len()];
    let mut owners: Vec<NodeId> = graph.ids().collect();
    for id in graph
        .ids()
        .filter(|id| uses[id.index()] > 0)
        .collect::<Vec<_>>()
    {
        let node = graph.node(id);
        let sources = node.sources().iter();
        let mut operands: Vec<Value> = sources
            .filter_map(|&operand| use_of(&mut values, &mut uses, operand))
            .collect();
        let owners_of_operands = node.sources().iter().map(|source| owners[source.index()]);
        if let Some(rounding) = rounding {
            operands = rounding.factors(node, operands, owners_of_operands.clone());
        }
        let exact = value(id, node, &operands, inputs)?;
        let shared = operands.iter().zip(owners_of_operands);
        let shared = shared.filter(|(operand, _)| exact.shares_memory(operand));
        let owner = shared.map(|(_, owner)| owner).next();
        // What is behind a barrier is computed again, and rounded as factors once more.
        let owner = owner.filter(|_| node.op != Op::Barrier);
        owners[id.index()] = owner.unwrap_or(id);
        values[id.index()] = Some(match rounding {
            Some(rounding) => rounding.round(graph, id, &operands, inputs, exact)?,
            None => exact,
        });
    }
    let wanted = nodes.iter();
    let wanted = wanted.filter_map(|&node| use_of(&mut values, &mut uses, node));
    Ok(wanted.map(Value::into_tensor).collect())
}

/// How often each node's value is read; 0 for nodes that `wanted` don't depend on.
pub(super) fn uses(graph: &Graph, wanted: &[NodeId]) -> Vec<usize> {
    let mut uses = vec![0; graph.nodes().len()];
    for node in wanted {
        uses[node.index()] += 1;
    }
    for id in graph.ids().rev() {
        if uses[id.index()] > 0 {
            for operand in graph.node(id).sources() {
                uses[operand.index()] += 1;
            }
        }
    }
    uses
}

/// The value of a node, which is gone with its last use. It is there: operands come before their
/// users.
pub(super) fn use_of<V: Clone>(
    values: &mut [Option<V>],
    uses: &mut [usize],
    node: NodeId,
) -> Option<V> {
    uses[node.index()] -= 1;
    match uses[node.index()] {
        0 => values[node.index()].take(),
        _ => values[node.index()].clone(),
    }
}

/// The value of one node from the values of its operands.
fn value(
    id: NodeId,
    node: &Node,
    operands: &[Value],
    inputs: &Tensors,
) -> Result<Value, EvaluateError> {
    let real = |at: usize| operands[at].real();
    let shape = &node.shape;
    let outside = |extent: usize| {
        move |Outside { position, index }| EvaluateError::Index {
            op: node.op.name(),
            node: id,
            index,
            position,
            extent,
        }
    };
    let elements =
        match &node.op {
            Op::Input(name) => return given(id, node, name, inputs),
            Op::Iota { dim } => return Ok(iota(shape, *dim)),
            Op::Cast(dtype) => return Ok(cast(&operands[0], *dtype)),
            Op::Barrier => return Ok(operands[0].clone()),
            Op::Broadcast => return Ok(view!(operands[0], broadcast(shape))),
            Op::Reshape => return Ok(view!(operands[0], reshape(shape))),
            Op::Transpose { order } => return Ok(view!(operands[0], transpose(order))),
            &Op::Slice { dim, start, step } => {
                return Ok(view!(operands[0], slice(dim, start, step, shape[dim])));
            }
            Op::Constant(value) => vec![*value],
            Op::Unary(function) => (function.entry().each)([real(0)]),
            Op::Binary(function) => binary(*function, &operands[0], &operands[1]),
            Op::Select => map([real(0), real(1), real(2)], |[mask, a, b]| match mask {
                0.0 => b,
                _ => a,
            }),
            Op::Reduce { reduction, dims } => reduce::reduce(*reduction, real(0).clone(), dims),
            &Op::Unslice { dim, start, step } => indexed::unslice(real(0), shape, dim, start, step),
            Op::Concat { dim } => indexed::concat(operands.iter().map(Value::real), shape, *dim),
            Op::Matmul => matmul::matmul(real(0), real(1)),
            Op::Conv2d(conv) => conv::conv2d(real(0), real(1), shape, *conv),
            Op::Conv2dGradX(conv) => conv::grad_x(real(0), real(1), shape, *conv),
            Op::Conv2dGradW(conv) => conv::grad_w(real(0), real(1), shape, *conv),
            Op::Attention(which) => attention::attention(which, operands),
            Op::Gather => indexed::gather(real(0), operands[1].whole())
                .map_err(outside(real(0).shape()[0]))?,
            Op::Pick => indexed::pick(real(0), operands[1].whole())
                .map_err(outside(real(0).shape()[shape.len()]))?,
            Op::ScatterAdd => indexed::scatter_add(real(0), operands[1].whole(), shape)
                .map_err(outside(shape[0]))?,
        };
    Ok(Value::Real(Array::dense(shape, elements)))
}

/// A given tensor.
fn given(id: NodeId, node: &Node, name: &str, inputs: &Tensors) -> Result<Value, EvaluateError> {
    let tensor = inputs.get(name).ok_or_else(|| EvaluateError::Missing {
        name: name.to_owned(),
        node: id,
    })?;
    match (node.dtype, tensor.data()) {
        _ if tensor.shape() != node.shape => {}
        (Dtype::F32, Data::F32(_) | Data::F64(_)) => {
            let elements = check::as_f64(tensor).into_owned();
            return Ok(Value::Real(Array::dense(&node.shape, elements)));
        }
        (Dtype::I64, Data::I64(elements)) => {
            return Ok(Value::Whole(Array::dense(&node.shape, elements.clone())));
        }
        (Dtype::I64, Data::I32(elements)) => {
            let elements = elements.iter().map(|&element| element.into()).collect();
            return Ok(Value::Whole(Array::dense(&node.shape, elements)));
        }
        _ => {}
    }
    Err(EvaluateError::Input {
        name: name.to_owned(),
        node: id,
        found: tensor.dtype(),
        found_shape: tensor.shape().to_vec(),
        expected: node.dtype,
        expected_shape: node.shape.clone(),
    })
}

/// Indices along one dimension, repeated over the other dimensions.
fn iota(shape: &[usize], dim: usize) -> Value {
    let mut own = vec![1; shape.len()];
    own[dim] = shape[dim];
    let indices = (0..shape[dim] as i64).collect();
    Value::Whole(Array::dense(&own, indices).broadcast(shape))
}

/// The numbers in another type: real numbers are truncated towards zero.
fn cast(x: &Value, dtype: Dtype) -> Value {
    match (x, dtype) {
        (Value::Real(x), Dtype::I64) => {
            Value::Whole(Array::dense(x.shape(), map([x], |[x]| x as i64)))
        }
        (Value::Whole(x), Dtype::F32) => {
            Value::Real(Array::dense(x.shape(), map([x], |[x]| x as f64)))
        }
        (x, _) => x.clone(),
    }
}

fn binary(function: Binary, a: &Value, b: &Value) -> Vec<f64> {
    let entry = function.entry();
    match (a, b, entry.of_whole) {
        (Value::Whole(a), Value::Whole(b), Some((compare, _))) => compare([a, b]),
        _ => (entry.each)([a.real(), b.real()]),
    }
}

#[cfg(test)]
mod tests;
