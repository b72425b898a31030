//! Terms that rules of gradients are written with.

use crate::graph::op::{Binary, Reduction};
use crate::graph::{Graph, GraphError, NodeId};

type Added = Result<NodeId, GraphError>;

impl Graph {
    /// A number in the shape of `like`.
    pub(super) fn filled_like(&mut self, number: f64, like: NodeId) -> Added {
        let shape = self.node(like).shape.clone();
        self.filled(number, &shape)
    }

    /// `x + number`
    pub(super) fn plus(&mut self, x: NodeId, number: f64) -> Added {
        let number = self.constant(number);
        self.add(x, number)
    }

    /// `1 - x`
    pub(in crate::graph) fn one_minus(&mut self, x: NodeId) -> Added {
        let one = self.constant(1.0);
        self.sub(one, x)
    }

    /// The sum over the last dimension, kept with extent 1.
    pub(super) fn sum_last(&mut self, x: NodeId) -> Added {
        let last = self.last(x);
        self.reduce(Reduction::Sum, x, &[last])
    }

    /// The mean over the last dimension, kept with extent 1.
    pub(super) fn mean_last(&mut self, x: NodeId) -> Added {
        let last = self.last(x);
        self.mean(x, &[last])
    }

    /// The sum over the dimensions in which `shape` would be broadcast to the shape of `x`.
    pub(super) fn sum_to(&mut self, x: NodeId, shape: &[usize]) -> Added {
        let own = self.node(x).shape.clone();
        let missing = own.len() - shape.len();
        let padded = [&vec![1; missing], shape].concat();
        let dims: Vec<usize> = (0..own.len())
            .filter(|&dim| own[dim] != padded[dim])
            .collect();
        let sum = match dims.is_empty() {
            true => x,
            false => self.reduce(Reduction::Sum, x, &dims)?,
        };
        self.reshape(sum, shape)
    }

    /// The order that exchanges the last two dimensions of `x`, which has them.
    pub(super) fn last_exchanged(&self, x: NodeId) -> Vec<usize> {
        let rank = self.node(x).shape.len();
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 1, rank - 2);
        order
    }

    /// `a` where `mask` is set, else 0.
    pub(super) fn where_set(&mut self, mask: NodeId, a: NodeId) -> Added {
        let zero = self.constant(0.0);
        self.select(mask, a, zero)
    }

    /// 1 where `x > 0`, else 0.
    pub(in crate::graph) fn is_positive(&mut self, x: NodeId) -> Added {
        let zero = self.constant(0.0);
        self.binary(Binary::Less, zero, x)
    }
}
