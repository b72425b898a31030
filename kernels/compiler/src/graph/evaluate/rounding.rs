//! Values as f32 arithmetic might give them: each result is moved by the size of its operation's
//! rounding, up or down at random.
//!
//! The distance of such values from the right ones bounds a backend's error, including
//! cancellation. This is discrete stochastic arithmetic (Vignes, "A stochastic arithmetic for
//! reliable scientific computation", 1993), with the standard deviation of each operation in the
//! place of its rounding ([`sweeper_program::rounding`]). Products of matrices and convolutions are
//! sums of terms one after another, other sums are sums of parts.

use super::array::{Array, map};
use super::{EvaluateError, Value};
use crate::graph::op::{Binary, Op, Reduction, Unary};
use crate::graph::{Graph, Node, NodeId, may_be_bf16};
use sweeper_program::Precision;
use sweeper_program::inputs::{InputKey, Stream};
use sweeper_program::rounding::{DEVIATION, FUNCTION, Order};
use sweeper_program::tensor::Tensors;

/// The rounding of one evaluation.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// The number format of products.
    pub precision: Precision,
    /// Seed of the directions: evaluations of different probes are independent.
    pub probe: u8,
}

impl Rounding {
    /// The value of a node after its rounding.
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
        let size = match scatter(graph, id, self.precision) {
            None => return Ok(Value::Real(exact)),
            Some(Scatter::Arithmetic) => map([&exact], |[value]| DEVIATION * value.abs()),
            Some(Scatter::Unary(function)) => map([&exact, operands[0].real()], {
                move |[value, x]| DEVIATION * function.variance(x).sqrt() * value.abs()
            }),
            Some(Scatter::Sum {
                of_square,
                of_squares,
            }) => {
                let squares: Vec<Value> = operands.iter().map(squared).collect();
                let squares = super::value(id, node, &squares, inputs)?;
                map([&exact, squares.real()], move |[value, squares]| {
                    DEVIATION * (of_square * value * value + of_squares * squares).sqrt()
                })
            }
        };
        Ok(Value::Real(self.moved(id, &exact, size)))
    }

    /// The value of a node, each element moved by its size in a direction of its own.
    fn moved(&self, id: NodeId, exact: &Array<f64>, size: Vec<f64>) -> Array<f64> {
        let directions = stream(self.probe, id).uniform(size.len(), -1.0, 1.0);
        let elements = exact.to_dense();
        let each = elements.iter().zip(size).zip(directions);
        let moved = each.map(|((value, size), direction)| match direction < 0.0 {
            true => value - size,
            false => value + size,
        });
        Array::dense(exact.shape(), moved.collect())
    }
}

/// The random numbers whose signs are the directions of a node's elements.
pub(in crate::graph) fn stream(probe: u8, id: NodeId) -> Stream {
    InputKey([probe; 32]).stream(&id.to_string())
}

/// The variance of a result by the rounding of its operation, in squares of [`DEVIATION`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::graph) enum Scatter {
    /// The result's square: it is rounded once.
    Arithmetic,
    /// The result's square times the square of a function of the operand.
    Unary(OfUnary),
    /// A share of the result's square, and a share of the sum of its terms' squares.
    Sum { of_square: f64, of_squares: f64 },
}

/// The variance of a function of one number relative to its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::graph) struct OfUnary {
    /// For every argument.
    pub(in crate::graph) least: f64,
    /// An exponential: its argument is rounded once more, on the way to a power of 2.
    pub(in crate::graph) is_exponential: bool,
    /// A sigmoid: so is its exponential's.
    pub(in crate::graph) is_sigmoid: bool,
}

impl OfUnary {
    fn new(function: Unary) -> Self {
        OfUnary {
            least: match function {
                Unary::Neg | Unary::Abs => 0.0,
                // Near 0 they are differences.
                Unary::Tanh | Unary::Erf => 4.0 * FUNCTION,
                _ => FUNCTION,
            },
            is_exponential: function == Unary::Exp,
            is_sigmoid: function == Unary::Sigmoid,
        }
    }

    fn variance(self, x: f64) -> f64 {
        match (self.is_exponential, self.is_sigmoid) {
            (true, _) => self.least + x * x,
            (_, true) => self.least + x * x / (1.0 + x.exp()).powi(2),
            _ => self.least,
        }
    }
}

/// The scatter of a node's results by its operation; `None` for an operation without rounding.
pub(in crate::graph) fn scatter(
    graph: &Graph,
    id: NodeId,
    precision: Precision,
) -> Option<Scatter> {
    let node = graph.node(id);
    match &node.op {
        Op::Unary(function) => Some(Scatter::Unary(OfUnary::new(*function))),
        Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div) => {
            Some(Scatter::Arithmetic)
        }
        op => {
            let count = terms(graph, node)?;
            let (order, factors) = match op {
                Op::Reduce { .. } | Op::ScatterAdd => (Order::over_rows(count), Factors::F32),
                _ => (Order::sequential(count), Factors::of(precision)),
            };
            let [of_square, of_squares] = order.weights();
            Some(Scatter::Sum {
                of_square: of_square + factors.of_all.powi(2) + of_store(graph, id, precision),
                of_squares: of_squares + factors.of_term.powi(2),
            })
        }
    }
}

/// The variance of a result by the rounding with which it is stored, in squares of [`DEVIATION`]
/// and of the result.
fn of_store(graph: &Graph, id: NodeId, precision: Precision) -> f64 {
    match may_be_bf16(graph, id, precision) {
        // bf16 has 8 bits, f32 has 24.
        true => f64::exp2(16.0).powi(2),
        false => 0.0,
    }
}

/// The rounding of the factors of products, in units of the rounding of one f32.
#[derive(Clone, Copy, Debug)]
struct Factors {
    /// The standard deviation of a term, which is independent of the other terms.
    of_term: f64,
    /// The greatest part by which all terms are too small.
    of_all: f64,
}

impl Factors {
    const F32: Factors = Factors {
        of_term: 0.0,
        of_all: 0.0,
    };

    /// bf16 has 8 bits; tf32 has 11, and hardware may truncate, which makes numbers smaller by half
    /// a unit in the last place in the mean.
    fn of(precision: Precision) -> Self {
        let unit = f64::exp2(-24.0);
        match precision {
            Precision::F32 => Factors::F32,
            Precision::Tf32 => Factors {
                of_term: 2f64.sqrt() * f64::exp2(-11.0) / unit,
                of_all: 2.0 * f64::exp2(-11.0) / unit,
            },
            Precision::Bf16 => Factors {
                of_term: 2f64.sqrt() * f64::exp2(-8.0) / unit,
                of_all: 0.0,
            },
        }
    }
}

/// Number of terms whose sum each element of a node is; none for nodes without sums.
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
