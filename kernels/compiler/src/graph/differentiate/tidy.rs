//! Arithmetic that leaves out what does nothing: products with 1, what is repeated and summed
//! again, views of views.

use crate::graph::op::{Binary, Op, Reduction, Unary};
use crate::graph::{Graph, GraphError, NodeId};

type Added = Result<NodeId, GraphError>;

impl Graph {
    /// What a node is a view of; the node itself where it is none.
    pub(crate) fn viewed(&self, mut node: NodeId) -> NodeId {
        while self.node(node).op.is_view() {
            node = self.node(node).operands[0];
        }
        node
    }

    /// The number that all elements are, if the graph says so.
    pub(crate) fn number(&self, node: NodeId) -> Option<f64> {
        match self.node(self.viewed(node)).op {
            Op::Constant(number) => Some(number),
            _ => None,
        }
    }

    /// A number in the shape of `like`.
    pub(super) fn filled(&mut self, number: f64, like: NodeId) -> Added {
        let number = self.constant(number);
        let shape = self.node(like).shape.clone();
        self.broadcast(number, &shape)
    }

    /// `factor x`
    pub(super) fn times(&mut self, x: NodeId, factor: f64) -> Added {
        if let Some(number) = self.number(x) {
            return self.filled(factor * number, x);
        }
        match factor {
            1.0 => Ok(x),
            -1.0 => self.unary(Unary::Neg, x),
            _ => self.scale(x, factor),
        }
    }

    /// `a b`, for equal shapes or such that `b` broadcasts to that of `a`.
    pub(super) fn product(&mut self, a: NodeId, b: NodeId) -> Added {
        match (self.number(a), self.number(b)) {
            (_, Some(factor)) => self.times(a, factor),
            (Some(factor), None) if self.node(a).shape == self.node(b).shape => {
                self.times(b, factor)
            }
            _ => self.mul(a, b),
        }
    }

    /// `x + number`
    pub(super) fn plus(&mut self, x: NodeId, number: f64) -> Added {
        let number = self.constant(number);
        self.add(x, number)
    }

    /// `1 - x`
    pub(super) fn one_minus(&mut self, x: NodeId) -> Added {
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

    /// The sum over the dimensions in which `shape` would be broadcast to that of `x`.
    pub(super) fn sum_to(&mut self, x: NodeId, shape: &[usize]) -> Added {
        let own = self.node(x).shape.clone();
        let missing = own.len() - shape.len();
        let padded = [&vec![1; missing], shape].concat();
        let dims: Vec<usize> = (0..own.len())
            .filter(|&dim| own[dim] != padded[dim])
            .collect();
        let sum = match (dims.is_empty(), self.node(x).op == Op::Broadcast) {
            (true, _) => x,
            (false, true) if self.node(self.node(x).operands[0]).shape == padded => {
                let copies: usize = dims.iter().map(|&dim| own[dim]).product();
                let repeated = self.node(x).operands[0];
                self.times(repeated, copies as f64)?
            }
            _ => self.reduce(Reduction::Sum, x, &dims)?,
        };
        self.reshaped(sum, shape)
    }

    /// The same elements in another shape, of whatever they were reshaped from.
    pub(super) fn reshaped(&mut self, x: NodeId, shape: &[usize]) -> Added {
        let mut from = x;
        while self.node(from).op == Op::Reshape {
            from = self.node(from).operands[0];
        }
        self.reshape(from, shape)
    }

    /// Dimensions in another order, unless that takes back another transposition.
    pub(super) fn transposed(&mut self, x: NodeId, order: &[usize]) -> Added {
        let node = self.node(x);
        match &node.op {
            Op::Transpose { order: before }
                if order.iter().map(|&dim| before[dim]).eq(0..order.len()) =>
            {
                Ok(node.operands[0])
            }
            _ => self.transpose(x, order),
        }
    }

    /// The last two dimensions exchanged.
    pub(super) fn transposed_last(&mut self, x: NodeId) -> Added {
        let order = self.last_exchanged(x);
        self.transposed(x, &order)
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
    pub(super) fn is_positive(&mut self, x: NodeId) -> Added {
        let zero = self.constant(0.0);
        self.binary(Binary::Less, zero, x)
    }
}
