//! Evaluations in which each operation rounds as f32 arithmetic does: with the rounding model and
//! the random bits of the host ([`crate::graph::Rounding`]).

use crate::graph::evaluate::{
    Scatter, factor_stream, moved_constant, scatter, stream, unit_of_factors,
};
use crate::graph::op::{Binary, Op, Reduction};
use crate::graph::{Node, NodeId};
use sweeper_program::spread::is_sliced;
use sweeper_program::tensor::Dtype;

use super::launches::Arguments;
use super::lower::{Lowering, of_binary};
use super::values::Value;

impl Lowering<'_> {
    /// The operands of a node, factors of a product as its number format has them. `owners` are the
    /// nodes in whose memory they lie.
    pub(super) fn factors(
        &mut self,
        node: &Node,
        operands: Vec<Value>,
        owners: &[NodeId],
        probe: u8,
    ) -> Vec<Value> {
        let Some(unit) = unit_of_factors(node, self.precision) else {
            return operands;
        };
        let mut factors = Vec::with_capacity(operands.len());
        for (operand, &owner) in operands.into_iter().zip(owners) {
            let memory = self.launches.memory_of(&operand);
            let moved = self.launches.acquire(Dtype::F64, memory.shape());
            let elements = memory.elements();
            let key = factor_stream(probe, owner).key().map(|word| word as usize);
            let args = Arguments::writing(&moved).int(elements).ints(&key);
            let args = args.float(unit).dense(&memory);
            self.launches.launch("move_factors", elements, args);
            factors.push(operand.in_memory_of(&moved));
            self.launches.release(moved);
            self.launches.release(memory);
            self.launches.release(operand);
        }
        factors
    }

    /// The exact value of a node, moved by the rounding of its operation.
    pub(super) fn rounded(
        &mut self,
        id: NodeId,
        operands: &[Value],
        exact: Value,
        probe: u8,
    ) -> Value {
        let node = self.graph.node(id);
        let Some(scatter) = scatter(self.graph, id, self.precision) else {
            return exact;
        };
        let [key0, key1] = stream(probe, id).key().map(|word| word as usize);
        let elements = exact.elements();
        match scatter {
            Scatter::Arithmetic => {
                let args = Arguments::writing(&exact).ints(&[elements, key0, key1]);
                self.launches.launch("round_arithmetic", elements, args);
            }
            Scatter::Constant { size } => {
                if let Op::Constant(value) = node.op {
                    let moved = moved_constant(probe, id, value, size);
                    self.launches.fill(&exact, moved);
                }
            }
            Scatter::Unary(function) => {
                let args = Arguments::writing(&exact).result(exact.shape());
                let flags = [function.is_exponential, function.is_sigmoid].map(usize::from);
                let args = args.ints(&[key0, key1]).ints(&flags);
                let args = args.float(function.least).operand(&operands[0]);
                self.launches.launch("round_unary", elements, args);
            }
            Scatter::Sum {
                of_square,
                of_squares,
                shortfall,
            } => {
                let squared: Vec<Value> = operands.iter().map(|x| self.squared(x)).collect();
                let squares = self.value(node, &squared);
                let args = Arguments::writing(&exact).ints(&[elements, key0, key1]);
                let args = args.dense(&squares).float(of_square).float(of_squares);
                let args = args.float(shortfall);
                self.launches.launch("round_sum", elements, args);
                let held = squared.into_iter().chain([squares]);
                held.for_each(|value| self.launches.release(value));
            }
        }
        exact
    }

    fn squared(&mut self, x: &Value) -> Value {
        match x.dtype {
            Dtype::I64 => x.clone(),
            _ => self.elementwise("square", x.shape(), std::slice::from_ref(x)),
        }
    }

    /// Adds the sums of a result's noise to those that [`Spread::from_raw_sums`] takes, in its
    /// order.
    ///
    /// [`Spread::from_raw_sums`]: sweeper_program::spread::Spread::from_raw_sums
    pub(super) fn add_noise(&mut self, rounded: Value, exact: &Value, sums: &mut NoiseSums) {
        let shape = exact.shape().to_vec();
        let product = |lowering: &mut Self, one: &Value, other: &Value| {
            let both = [one.clone(), other.clone()];
            lowering.elementwise(of_binary(Binary::Mul, false), &shape, &both)
        };
        let both = [rounded, exact.clone()];
        let noise = self.elementwise(of_binary(Binary::Sub, false), exact.shape(), &both);
        let [rounded, _] = both;
        self.launches.release(rounded);
        let squares = product(self, &noise, &noise);
        let along = product(self, &noise, exact);
        self.add_sums(squares, sums, true);
        self.add_sums(along, sums, false);
        match sums.first_of_pair.take() {
            None => sums.first_of_pair = Some(noise),
            Some(first) => {
                let products = product(self, &first, &noise);
                self.add_sums(products, sums, true);
                self.launches.release(first);
                self.launches.release(noise);
            }
        }
    }

    /// Adds the sum of the squares of the exact result, the last of its sums.
    pub(super) fn add_size(&mut self, exact: &Value, sums: &mut NoiseSums) {
        let squares = self.squared(exact);
        self.add_sums(squares, sums, false);
    }

    /// Adds the sum of all elements, and those of the slices along each axis if they are asked for.
    fn add_sums(&mut self, x: Value, sums: &mut NoiseSums, by_slices: bool) {
        let shape = x.shape().to_vec();
        let elements = x.elements();
        let axes = (0..shape.len()).filter(|axis| by_slices && is_sliced(shape[*axis], elements));
        let axes: Vec<usize> = axes.collect();
        let flat = x.clone().reshape(&[elements]);
        let mut found = vec![self.reduce(Reduction::Sum, flat, &[0])];
        for axis in axes {
            let others: Vec<usize> = (0..shape.len()).filter(|other| *other != axis).collect();
            found.push(self.reduce(Reduction::Sum, x.clone(), &others));
        }
        self.launches.release(x);
        for sum in found {
            let count = sum.elements();
            let place = sums.all.clone().slice(0, sums.filled, 1, count);
            sums.filled += count;
            let sum = sum.reshape(&[count]);
            self.launches.copy_into(&sum, &place);
            self.launches.release(sum);
        }
    }
}

/// The sums of a result's noise so far.
pub(super) struct NoiseSums {
    /// All of them, one after another.
    pub(super) all: Value,
    filled: usize,
    /// The noise of the first evaluation of a pair.
    first_of_pair: Option<Value>,
}

impl NoiseSums {
    /// Room for the sums of a result.
    pub(super) fn new(all: Value) -> Self {
        NoiseSums {
            all,
            filled: 0,
            first_of_pair: None,
        }
    }
}
