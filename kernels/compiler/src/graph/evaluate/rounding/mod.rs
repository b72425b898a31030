//! Values as f32 arithmetic might give them: each result is moved by the size of its operation's
//! rounding, up or down at random.
//!
//! The distance of such values from the right ones bounds a backend's error, including
//! cancellation. This is discrete stochastic arithmetic (Vignes, "A stochastic arithmetic for
//! reliable scientific computation", 1993), with the standard deviation of each operation in the
//! place of its rounding ([`sweeper_program::rounding`]). Sums are those of terms one after
//! another, in any order.
//!
//! Products in tf32 and bf16 are those of moved factors. A factor is rounded once for all terms
//! that it is in, so that its error is the same in a whole row of the product and in all products
//! that read it, and does not cancel where these are added up.

mod apart;

pub(in crate::graph) use self::apart::with_sums_apart;
use super::array::{Array, map};
use super::{EvaluateError, Value};
use crate::graph::op::{Op, Reduction};
use crate::graph::{Graph, Node, NodeId, may_be_bf16};
use rayon::prelude::*;
use sweeper_program::Precision;
use sweeper_program::inputs::{InputKey, Stream};
use sweeper_program::rounding::{DEVIATION, LEAST, UNIT_ROUNDOFF, weights_of_sum};
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
    /// The operands of a node, factors of a product as its number format has them. `owners` are the
    /// nodes in whose memory they lie.
    pub(super) fn factors(
        &self,
        node: &Node,
        operands: Vec<Value>,
        owners: impl Iterator<Item = NodeId>,
    ) -> Vec<Value> {
        let Some(unit) = unit_of_factors(node, self.precision) else {
            return operands;
        };
        let each = operands.iter().zip(owners);
        each.map(|(operand, owner)| Value::Real(self.factor(operand.real(), owner, unit)))
            .collect()
    }

    /// A factor whose elements are off by up to `unit` of their size. The move of an element
    /// depends on its place in memory, so that it is the same in all views.
    fn factor(&self, x: &Array<f64>, owner: NodeId, unit: f64) -> Array<f64> {
        let moves = factor_stream(self.probe, owner).uniform(x.memory().len(), -1.0, 1.0);
        let moved = x.memory().par_iter().zip(&moves);
        let moved = moved.map(|(x, &by)| x * (1.0 + unit * f64::from(by)));
        x.in_memory(moved.collect())
    }

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
            Some(Scatter::Arithmetic) => map([&exact], |[value]| DEVIATION * rounded_size(value)),
            Some(Scatter::Constant { size }) => {
                let moved = map([&exact], |[value]| {
                    moved_constant(self.probe, id, value, size)
                });
                return Ok(Value::Real(Array::dense(exact.shape(), moved)));
            }
            Some(Scatter::Unary(function)) => map([&exact, operands[0].real()], {
                move |[value, x]| DEVIATION * function.variance(x).sqrt() * rounded_size(value)
            }),
            Some(Scatter::Sum {
                of_square,
                of_squares,
                shortfall,
            }) => {
                let squares: Vec<Value> = operands.iter().map(squared).collect();
                let squares = super::value(id, node, &squares, inputs)?;
                let size = map([&exact, squares.real()], move |[value, squares]| {
                    let variance = of_square * value * value + of_squares * squares;
                    DEVIATION * rounded_size(variance.sqrt())
                });
                let short = Array::dense(
                    exact.shape(),
                    map([&exact], move |[value]| value * (1.0 - shortfall)),
                );
                return Ok(Value::Real(self.moved(id, &short, size)));
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

/// The size of a number as its rounding has it.
fn rounded_size(value: f64) -> f64 {
    value.abs().max(LEAST)
}

/// The random numbers whose signs are the directions of a node's elements.
pub(in crate::graph) fn stream(probe: u8, id: NodeId) -> Stream {
    InputKey([probe; 32]).stream(&id.to_string())
}

/// A number that is moved by `size` in the direction of a node's first element.
pub(in crate::graph) fn moved_constant(probe: u8, id: NodeId, value: f64, size: f64) -> f64 {
    match stream(probe, id).uniform(1, -1.0, 1.0)[0] < 0.0 {
        true => value - size,
        false => value + size,
    }
}

/// The random numbers by which the elements of a node's memory are off as factors.
pub(in crate::graph) fn factor_stream(probe: u8, owner: NodeId) -> Stream {
    InputKey([probe; 32]).stream(&format!("{owner} as a factor"))
}

/// The part of its size that a factor of a product in this number format may be off by, which is
/// half a unit in the last place: bf16 has 8 bits, tf32 11. `None` for operands that are not
/// rounded.
pub(in crate::graph) fn unit_of_factors(node: &Node, precision: Precision) -> Option<f64> {
    let bits = match precision {
        Precision::F32 => return None,
        Precision::Tf32 => 11,
        Precision::Bf16 => 8,
    };
    is_product(node).then(|| f64::exp2(-f64::from(bits)))
}

/// Whether a node is a sum of products, which tensor cores compute where its precision allows it.
fn is_product(node: &Node) -> bool {
    matches!(
        node.op,
        Op::Matmul | Op::Conv2d(_) | Op::Conv2dGradX(_) | Op::Conv2dGradW(_)
    )
}

/// The part of a product of so many terms by which it is short on tensor cores: one unit roundoff
/// for each step, which adds eight terms in tf32 and sixteen in bf16.
fn shortfall(node: &Node, terms: usize, precision: Precision) -> f64 {
    let terms_in_step = match precision {
        Precision::Tf32 if is_product(node) => 8.0,
        Precision::Bf16 if is_product(node) => 16.0,
        _ => return 0.0,
    };
    UNIT_ROUNDOFF * terms as f64 / terms_in_step
}

/// The variance of a result by the rounding of its operation, in squares of [`DEVIATION`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::graph) enum Scatter {
    /// The result's square: it is rounded once.
    Arithmetic,
    /// A constant: the difference of its f32 from it, which is known.
    Constant { size: f64 },
    /// The result's square times the square of a function of the operand.
    Unary(UnaryRounding),
    /// A share of the result's square, and a share of the sum of its terms' squares; the result is
    /// short by a part of itself.
    Sum {
        of_square: f64,
        of_squares: f64,
        shortfall: f64,
    },
}

/// The variance of a function of one number relative to its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UnaryRounding {
    /// For every argument.
    pub(crate) least: f64,
    /// An exponential: its argument is rounded once more, on the way to a power of 2.
    pub(crate) is_exponential: bool,
    /// A sigmoid: so is its exponential's.
    pub(crate) is_sigmoid: bool,
}

impl UnaryRounding {
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
        Op::Unary(function) => Some(Scatter::Unary(function.entry().rounding)),
        Op::Binary(function) if function.entry().is_rounded => Some(Scatter::Arithmetic),
        // A program has the constant in f32, or works it into another one.
        Op::Constant(value) => {
            let size = (f64::from(*value as f32) - value).abs();
            (size > 0.0).then_some(Scatter::Constant { size })
        }
        _ => {
            let count = terms(graph, node)?;
            let [of_square, of_squares] = weights_of_sum(count);
            Some(Scatter::Sum {
                of_square: of_square + of_store(graph, id, precision),
                of_squares,
                shortfall: shortfall(node, count, precision),
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

#[cfg(test)]
mod tests;
