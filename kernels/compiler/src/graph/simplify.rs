//! Rules that leave out arithmetic without effect: products with 1, sums of copies, views of views.
//! The backward pass is built with them.

use super::op::{Op, Unary};
use super::pattern::Pattern::{Any, Is, Number, Of};
use super::pattern::{A, B, BROADCAST, Kind, MUL, Rule, SUM, TRANSPOSE, X};
use super::{Graph, GraphError, Node, NodeId};

const NEG: Kind = |op| *op == Op::Unary(Unary::Neg);
const RESHAPE: Kind = |op| *op == Op::Reshape;

const RULES: &[Rule] = &[
    // -a, of a number
    Rule {
        from: Of(NEG, &[Number(A)]),
        to: |graph, node, found| {
            let number = graph.number(found[A])?;
            graph.filled(-number, &node.shape).ok()
        },
    },
    // a b, of numbers
    Rule {
        from: Of(MUL, &[Number(A), Number(B)]),
        to: |graph, node, found| {
            let product = graph.number(found[A])? * graph.number(found[B])?;
            graph.filled(product, &node.shape).ok()
        },
    },
    // x * 1 = x
    Rule {
        from: Of(MUL, &[Any(X), Is(1.0)]),
        to: |_, _, found| Some(found[X]),
    },
    // x * -1 = -x
    Rule {
        from: Of(MUL, &[Any(X), Is(-1.0)]),
        to: |graph, _, found| graph.unary(Unary::Neg, found[X]).ok(),
    },
    // a x = x a
    Rule {
        from: Of(MUL, &[Number(A), Any(X)]),
        to: |graph, node, found| {
            let mut turned = node.clone();
            turned.operands.reverse();
            (node.operands[0] == found[A]).then(|| graph.append(turned, None))
        },
    },
    // The sum of n copies of x: n x
    Rule {
        from: Of(SUM, &[Of(BROADCAST, &[Any(X)])]),
        to: |graph, node, found| {
            let x = graph.node(found[X]);
            let copies = graph.node(node.operands[0]).elements() / x.elements();
            let is_one_copy = x.shape == node.shape;
            is_one_copy
                .then(|| graph.scale(found[X], copies as f64))?
                .ok()
        },
    },
    Rule {
        from: Of(RESHAPE, &[Of(RESHAPE, &[Any(X)])]),
        to: |graph, node, found| graph.reshape(found[X], &node.shape).ok(),
    },
    // A transposition that takes back another one.
    Rule {
        from: Of(TRANSPOSE, &[Of(TRANSPOSE, &[Any(X)])]),
        to: |graph, node, found| {
            let (Op::Transpose { order: outer }, Op::Transpose { order: inner }) =
                (&node.op, &graph.node(node.operands[0]).op)
            else {
                return None;
            };
            let is_undone = outer.iter().map(|&dim| inner[dim]).eq(0..outer.len());
            is_undone.then_some(found[X])
        },
    },
];

/// A node of equal value with less arithmetic than a node that is about to be added.
pub(super) fn simpler(graph: &mut Graph, node: &Node) -> Option<NodeId> {
    RULES.iter().find_map(|rule| rule.apply(graph, node, &[]))
}

impl Graph {
    /// The node that a node is a view of, through all views.
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

    /// A number in a shape.
    pub(super) fn filled(&mut self, number: f64, shape: &[usize]) -> Result<NodeId, GraphError> {
        let number = self.constant(number);
        self.broadcast(number, shape)
    }
}

#[cfg(test)]
mod tests {
    use super::super::evaluate;
    use super::*;
    use sweeper_program::Role;
    use sweeper_program::tensor::{Dtype, Tensor, Tensors};

    /// The last node of a function of `x` (2, 3) after simplification, as text. Asserts that its
    /// value did not change.
    fn simplified(build: fn(&mut Graph, NodeId) -> Result<NodeId, GraphError>) -> String {
        let made = [false, true].map(|simplifies| {
            let mut graph = Graph::new();
            let x = graph.input("x", &[2, 3], Dtype::F32, Role::Input).unwrap();
            graph.simplifies = simplifies;
            let out = build(&mut graph, x).unwrap();
            graph.output("out", out, Role::Output);
            (graph, out)
        });
        let x = Tensor::f32(vec![2, 3], vec![0.5, -1.0, 2.0, 3.5, -0.25, 8.0]);
        let inputs: Tensors = [("x".to_owned(), x)].into();
        let [as_written, value] = made.each_ref().map(|(graph, _)| {
            let values = evaluate(graph, &inputs).unwrap();
            let value = &values["out"];
            (value.shape().to_vec(), value.as_f64().unwrap().to_vec())
        });
        assert_eq!(as_written, value);
        let (graph, out) = &made[1];
        let line = graph
            .to_string()
            .lines()
            .nth(out.index())
            .map(str::to_owned);
        line.unwrap()
    }

    #[test]
    fn arithmetic_that_does_nothing_is_left_out() {
        assert_eq!(
            simplified(|graph, x| graph.scale(x, 1.0)),
            "%0 = input(x) : f32[2, 3]"
        );
        assert!(simplified(|graph, x| graph.scale(x, -1.0)).contains("neg(%0)"));
        let number_first = simplified(|graph, x| {
            let two = graph.constant(2.0);
            graph.mul(two, x)
        });
        assert!(number_first.contains("mul(%0, "), "{number_first}");
        let copies = simplified(|graph, x| {
            let row = graph.slice(x, 0, 0, 1, 1)?;
            let copies = graph.broadcast(row, &[4, 3])?;
            graph.reduce(crate::graph::Reduction::Sum, copies, &[0])
        });
        assert!(copies.contains("mul("), "{copies}");
    }

    #[test]
    fn numbers_are_computed() {
        let product = simplified(|graph, _| {
            let [a, b] = [2.0, 3.0].map(|number| graph.constant(number));
            graph.mul(a, b)
        });
        assert!(product.contains("constant(6)"), "{product}");
        let negative = simplified(|graph, _| {
            let number = graph.constant(2.0);
            graph.unary(Unary::Neg, number)
        });
        assert!(negative.contains("constant(-2)"), "{negative}");
    }

    #[test]
    fn views_of_views_are_one() {
        let reshaped = simplified(|graph, x| {
            let column = graph.reshape(x, &[6, 1])?;
            graph.reshape(column, &[3, 2])
        });
        assert!(reshaped.contains("reshape(%0)"), "{reshaped}");
        let turned_back = simplified(|graph, x| {
            let turned = graph.transpose(x, &[1, 0])?;
            graph.transpose(turned, &[1, 0])
        });
        assert!(turned_back.contains("input(x)"), "{turned_back}");
    }
}
