//! Evaluations in which each operation rounds as f32 arithmetic does: with the rounding model and
//! the random bits of the host ([`crate::graph::Rounding`]).

use crate::graph::evaluate::{Scatter, factor_stream, scatter, stream, unit_of_factors};
use crate::graph::op::Reduction;
use crate::graph::{Node, NodeId};
use sweeper_program::tensor::Dtype;

use super::launches::Arguments;
use super::lower::Lowering;
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
            } => {
                let squared: Vec<Value> = operands.iter().map(|x| self.squared(x)).collect();
                let squares = self.value(node, &squared);
                let args = Arguments::writing(&exact).ints(&[elements, key0, key1]);
                let args = args.dense(&squares).float(of_square).float(of_squares);
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

    /// Adds to `spread` its share of the squared distance of a rounded result from the exact one.
    pub(super) fn add_distance(
        &mut self,
        rounded: Value,
        exact: &Value,
        spread: &Value,
        probes: u8,
    ) {
        let rounded = self.launches.densely(rounded);
        let elements = exact.elements();
        let squares = self.launches.acquire(Dtype::F64, &[elements]);
        let args = Arguments::writing(&squares).int(elements);
        let args = args.dense(&rounded).dense(exact);
        self.launches.launch("squared_difference", elements, args);
        self.launches.release(rounded);
        let sum = self.reduce(Reduction::Sum, squares.clone(), &[0]);
        self.launches.release(squares);
        let args = Arguments::writing(spread).ints(&[1, probes.into()]);
        self.launches.launch("add_mean", 1, args.dense(&sum));
        self.launches.release(sum);
    }
}
