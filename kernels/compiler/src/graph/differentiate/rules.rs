//! The gradient of each operation by its operands.

use super::Pass;
use crate::graph::op::{Binary, Op, Reduction, Unary};
use crate::graph::primitive::Step;
use crate::graph::{Graph, GraphError, NodeId};

type Added = Result<NodeId, GraphError>;
type Given = Result<(), GraphError>;

impl Pass<'_> {
    /// Gives the operands of node `y` their part of its gradient `g`.
    pub(super) fn visit_node(&mut self, y: NodeId, g: NodeId) -> Given {
        let node = self.graph.node(y);
        let (op, operands, shape) = (node.op.clone(), node.operands.clone(), node.shape.clone());
        let Some(&x) = operands.iter().find(|&&operand| self.is_needed(operand)) else {
            return Ok(());
        };
        let x_shape = self.graph.node(x).shape.clone();
        let gradient = match op {
            Op::Input(_) | Op::Constant(_) | Op::Iota { .. } | Op::Cast(_) => return Ok(()),
            Op::Attention(_) | Op::Concat { .. } => {
                unreachable!("the compiler makes it of a graph with its gradients")
            }
            Op::Barrier => return self.give(operands[0], g),
            Op::Binary(function) => return self.binary(function, &operands, y, g),
            Op::Select => return self.select(&operands, g),
            Op::Matmul => return self.matmul(&operands, g),
            Op::Conv2d(_) | Op::Conv2dGradX(_) | Op::Conv2dGradW(_) => {
                return self.convolution(&op, &operands, g);
            }
            Op::Unary(function) => (function.entry().gradient)(self.graph, Step { x, y, g })?,
            Op::Reduce {
                reduction: Reduction::Sum,
                ..
            } => self.graph.broadcast(g, &x_shape)?,
            Op::Reduce {
                reduction: Reduction::Max,
                dims,
            } => self.greatest(x, y, &dims, g)?,
            Op::Broadcast => self.graph.sum_to(g, &x_shape)?,
            Op::Reshape => self.graph.reshape(g, &x_shape)?,
            Op::Transpose { order } => {
                let mut inverse = vec![0; order.len()];
                for (dim, &from) in order.iter().enumerate() {
                    inverse[from] = dim;
                }
                self.graph.transpose(g, &inverse)?
            }
            Op::Slice { dim, start, step } => {
                self.graph.unslice(g, dim, start, step, x_shape[dim])?
            }
            Op::Unslice { dim, start, step } => {
                self.graph.slice(g, dim, start, step, x_shape[dim])?
            }
            Op::Gather => self.graph.scatter_add(g, operands[1], x_shape[0])?,
            Op::ScatterAdd => self.graph.gather(g, operands[1])?,
            Op::Pick => self.at_index(&x_shape, operands[1], &shape, g)?,
        };
        self.give(x, gradient)
    }

    fn binary(&mut self, function: Binary, operands: &[NodeId], y: NodeId, g: NodeId) -> Given {
        let &[a, b] = operands else {
            unreachable!("a function of two elements")
        };
        match function {
            Binary::Add => {
                self.give(a, g)?;
                self.give(b, g)
            }
            Binary::Sub => {
                self.give(a, g)?;
                self.give_with(b, |graph| graph.unary(Unary::Neg, g))
            }
            Binary::Mul if a == b => self.give_with(a, |graph| {
                let twice = graph.scale(a, 2.0)?;
                graph.mul(g, twice)
            }),
            Binary::Mul => {
                self.give_with(a, |graph| graph.mul(g, b))?;
                self.give_with(b, |graph| graph.mul(g, a))
            }
            Binary::Div => {
                self.give_with(a, |graph| graph.binary(Binary::Div, g, b))?;
                self.give_with(b, |graph| {
                    let part = graph.mul(g, y)?;
                    let slope = graph.binary(Binary::Div, part, b)?;
                    graph.unary(Unary::Neg, slope)
                })
            }
            Binary::Max => self.chosen(b, a, [a, b], g),
            Binary::Min => self.chosen(a, b, [a, b], g),
            Binary::Equal | Binary::Less | Binary::LessEqual => Ok(()),
        }
    }

    /// The first of `operands` has the gradient where `lesser < greater`, else the second.
    fn chosen(
        &mut self,
        lesser: NodeId,
        greater: NodeId,
        operands: [NodeId; 2],
        g: NodeId,
    ) -> Given {
        let mask = self.graph.binary(Binary::Less, lesser, greater)?;
        self.select(&[mask, operands[0], operands[1]], g)
    }

    fn select(&mut self, operands: &[NodeId], g: NodeId) -> Given {
        let &[mask, a, b] = operands else {
            unreachable!("a mask and two operands")
        };
        self.give_with(a, |graph| graph.where_set(mask, g))?;
        self.give_with(b, |graph| {
            let zero = graph.constant(0.0);
            graph.select(mask, zero, g)
        })
    }

    /// The gradient of the greatest element over `dims`: elements that are equal to it share the
    /// gradient.
    fn greatest(&mut self, x: NodeId, y: NodeId, dims: &[usize], g: NodeId) -> Added {
        let graph = &mut *self.graph;
        let mask = graph.binary(Binary::Equal, x, y)?;
        let count = graph.reduce(Reduction::Sum, mask, dims)?;
        let share = graph.binary(Binary::Div, g, count)?;
        graph.where_set(mask, share)
    }

    fn matmul(&mut self, operands: &[NodeId], g: NodeId) -> Given {
        let &[a, b] = operands else {
            unreachable!("two matrices")
        };
        self.give_product(a, [g, b], [false, true])?;
        self.give_product(b, [a, g], [true, false])
    }

    /// Gives `to` a product of two factors, of which some are transposed. Where `to` is the
    /// transposition of another node, this node gets the transposed product, so that its gradient
    /// has the right memory layout.
    fn give_product(&mut self, to: NodeId, factors: [NodeId; 2], turned: [bool; 2]) -> Given {
        let exchanged = Op::Transpose {
            order: self.graph.last_exchanged(to),
        };
        let node = self.graph.node(to);
        let (to, factors, turned) = match node.op == exchanged {
            true => {
                let ([a, b], [turned_a, turned_b]) = (factors, turned);
                (node.operands[0], [b, a], [!turned_b, !turned_a])
            }
            false => (to, factors, turned),
        };
        self.give_with(to, |graph| {
            let mut factors = factors;
            for (factor, is_turned) in factors.iter_mut().zip(turned) {
                if is_turned {
                    *factor = graph.transpose_last(*factor)?;
                }
            }
            graph.matmul(factors[0], factors[1])
        })
    }

    /// Convolution is linear in both operands, and its gradients are each other's.
    fn convolution(&mut self, op: &Op, operands: &[NodeId], g: NodeId) -> Given {
        let &[first, second] = operands else {
            unreachable!("two operands")
        };
        match *op {
            Op::Conv2d(conv) => {
                let [x, w] = [first, second];
                self.give_with(x, |graph| graph.conv2d_grad(Op::Conv2dGradX(conv), g, w, x))?;
                self.give_with(w, |graph| graph.conv2d_grad(Op::Conv2dGradW(conv), g, x, w))
            }
            Op::Conv2dGradX(conv) => {
                let [grad, w] = [first, second];
                self.give_with(grad, |graph| graph.conv2d(g, w, conv))?;
                self.give_with(w, |graph| {
                    graph.conv2d_grad(Op::Conv2dGradW(conv), grad, g, w)
                })
            }
            Op::Conv2dGradW(conv) => {
                let [grad, x] = [first, second];
                self.give_with(grad, |graph| graph.conv2d(x, g, conv))?;
                self.give_with(x, |graph| {
                    graph.conv2d_grad(Op::Conv2dGradX(conv), grad, g, x)
                })
            }
            _ => unreachable!("called for convolutions"),
        }
    }

    /// `g` (..) at one index of the last dimension each, in zeros of `shape` (.., N).
    fn at_index(&mut self, shape: &[usize], indices: NodeId, lead: &[usize], g: NodeId) -> Added {
        let graph = &mut *self.graph;
        let columns = graph.iota(shape, lead.len())?;
        let column = [lead, &[1]].concat();
        let indices = graph.reshape(indices, &column)?;
        let mask = graph.binary(Binary::Equal, columns, indices)?;
        let g = graph.reshape(g, &column)?;
        graph.where_set(mask, g)
    }

    /// Gives a node a gradient that is made only if it is needed.
    pub(super) fn give_with(
        &mut self,
        node: NodeId,
        gradient: impl FnOnce(&mut Graph) -> Added,
    ) -> Given {
        if !self.is_needed(node) {
            return Ok(());
        }
        let gradient = gradient(self.graph)?;
        self.give(node, gradient)
    }
}
