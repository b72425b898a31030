//! Why a node can't be added: the node, and the operand that does not fit.

use super::NodeId;
use sweeper_program::tensor::Dtype;

/// Why a node can't be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The operands' shapes don't fit each other.
    #[error("{op} as {node}: shapes {one:?} and {other:?} don't fit: {reason}")]
    Shapes {
        /// Word of the operation.
        op: &'static str,
        /// The node that it would have been.
        node: NodeId,
        /// Shape of the first operand.
        one: Vec<usize>,
        /// Shape of the other operand, or the requested shape.
        other: Vec<usize>,
        /// The rule that is broken.
        reason: String,
    },
    /// An operand is of a type that the operation is not defined for.
    #[error("{op} as {node}: {operand} is {found}, expected {expected}")]
    Type {
        /// Word of the operation.
        op: &'static str,
        /// The node that it would have been.
        node: NodeId,
        /// The operand.
        operand: NodeId,
        /// Type of the operand.
        found: Dtype,
        /// The type that the operation is defined for.
        expected: Dtype,
    },
    /// The result has more elements than can be counted.
    #[error("{op} as {node}: a tensor of shape {shape:?} has too many elements")]
    TooLarge {
        /// Word of the operation.
        op: &'static str,
        /// The node that it would have been.
        node: NodeId,
        /// The shape.
        shape: Vec<usize>,
    },
    /// The result has no elements: no kernel is made for that.
    #[error("{op} as {node}: a tensor of shape {shape:?} has no elements")]
    Empty {
        /// Word of the operation.
        op: &'static str,
        /// The node that it would have been.
        node: NodeId,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A type that no tensor of a graph has.
    #[error("{op} as {node}: tensors are f32, or i64 for labels and indices, not {dtype}")]
    Dtype {
        /// Word of the operation.
        op: &'static str,
        /// The node that it would have been.
        node: NodeId,
        /// The type that was asked for.
        dtype: Dtype,
    },
    /// Two inputs with one name.
    #[error("input as {node}: `{name}` is the name of {other} already")]
    Name {
        /// The name.
        name: String,
        /// The node that it would have been.
        node: NodeId,
        /// The node that has the name.
        other: NodeId,
    },
}
