//! Values as f32 arithmetic might give them: each result is moved by as much as its operation rounds, up
//! or down at random.
//!
//! The distance of such values from the right ones is how far a backend may be out, whatever cancels on the way.
//! This is discrete stochastic arithmetic (Vignes, "A stochastic arithmetic for reliable scientific computation", 1993),
//! with the bound of each operation in place of its rounding. A sum of n terms, added up by 8 lanes at least and their 8 sums
//! after them, is moved by `3 u sqrt(n / 8 + 8)` of the greater of its value and the L2 norm of its terms,
//! which is as large as the sums on the way are where terms are independent.

use super::array::{Array, map};
use super::{EvaluateError, Value};
use crate::graph::op::{Binary, Op, Reduction, Unary};
use crate::graph::{Graph, Node, NodeId};
use crate::inputs::InputKey;
use crate::program::Precision;
use crate::tensor::Tensors;

/// Half of the distance of f32 numbers around 1.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// The rounding of one evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// In what products are computed.
    pub precision: Precision,
    /// Which directions: evaluations of different probes are independent.
    pub probe: u8,
}

impl Rounding {
    /// What is left of the value of a node when it is rounded.
    pub(super) fn round(
        &self,
        graph: &Graph,
        id: NodeId,
        operands: &[Value],
        inputs: &Tensors,
        exact: Value,
    ) -> Result<Value, EvaluateError> {
        let node = graph.node(id);
        let Value::Real(exact) = exact else {
            return Ok(exact);
        };
        let size = match &node.op {
            Op::Unary(function) => map([&exact], {
                let units = of_unary(*function);
                move |[value]| units * UNIT * value.abs()
            }),
            Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div) => {
                map([&exact], |[value]| UNIT * value.abs())
            }
            op => match terms(graph, node) {
                Some(count) => {
                    let squares: Vec<Value> = operands.iter().map(squared).collect();
                    let squares = super::value(id, node, &squares, inputs)?;
                    let sum = 3.0 * UNIT * (count as f64 / 8.0 + 8.0).sqrt();
                    let operand = match op {
                        Op::Reduce { .. } | Op::ScatterAdd => 0.0,
                        _ => of_operands(self.precision),
                    };
                    map([&exact, squares.real()], move |[value, squares]| {
                        (sum + operand) * value.abs().max(squares.sqrt())
                    })
                }
                None => return Ok(Value::Real(exact)),
            },
        };
        Ok(Value::Real(self.moved(id, &exact, size)))
    }

    /// The value of a node, each element moved by its size in a direction of its own.
    fn moved(&self, id: NodeId, exact: &Array<f64>, size: Vec<f64>) -> Array<f64> {
        let stream = InputKey([self.probe; 32]).stream(&id.to_string());
        let directions = stream.uniform(size.len(), -1.0, 1.0);
        let elements = exact.to_dense();
        let each = elements.iter().zip(size).zip(directions);
        let moved = each.map(|((value, size), direction)| match direction < 0.0 {
            true => value - size,
            false => value + size,
        });
        Array::dense(exact.shape(), moved.collect())
    }
}

/// The rounding of a function of one number, in units of its result.
fn of_unary(function: Unary) -> f64 {
    match function {
        Unary::Neg | Unary::Abs => 0.0,
        Unary::Sqrt | Unary::Reciprocal => 1.0,
        Unary::Tanh | Unary::Erf => 8.0,
        _ => 4.0,
    }
}

/// The rounding of the two factors of a product: bf16 has 8 bits; tf32 has 11, and hardware may cut off
/// what follows.
fn of_operands(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 0.0,
        Precision::Tf32 => f64::exp2(-10.0),
        Precision::Bf16 => f64::exp2(-8.0),
    }
}

/// Of how many terms each element of a node is the sum; none where it is no sum.
fn terms(graph: &Graph, node: &Node) -> Option<usize> {
    let shape = |operand: usize| graph.node(node.operands[operand]).shape.as_slice();
    let product = |shape: &[usize]| shape.iter().product::<usize>();
    match &node.op {
        Op::Reduce {
            reduction: Reduction::Sum,
            ..
        } => Some(product(shape(0)) / node.elements()),
        Op::Matmul => shape(0).last().copied(),
        Op::Conv2d(_) => Some(product(&shape(1)[1..])),
        Op::Conv2dGradX(_) => Some(product(shape(1)) / shape(1)[1]),
        Op::Conv2dGradW(_) => Some(product(shape(0)) / shape(0)[1]),
        Op::ScatterAdd => Some(product(shape(1))),
        _ => None,
    }
}

fn squared(value: &Value) -> Value {
    match value {
        Value::Real(array) => Value::Real(Array::dense(array.shape(), map([array], |[x]| x * x))),
        Value::Whole(array) => Value::Whole(array.clone()),
    }
}
