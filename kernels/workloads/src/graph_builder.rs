//! Graphs of f32 whose result is `out`, with gradients by inputs where there is a backward pass.

use crate::graph_problem::Built;
use sweeper_compiler::graph::{self, Graph, GraphError, NodeId};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// A node that was added.
pub(crate) type Added = Result<NodeId, GraphError>;

/// A graph, with the inputs by which there is a gradient.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) graph: Graph,
    pub(crate) by: Vec<(String, NodeId)>,
}

impl Builder {
    /// What an operation is applied to.
    pub(crate) fn operand(&mut self, name: &str, shape: &[usize]) -> Added {
        self.given(name, shape, Role::Input)
    }

    /// What a model would have learned.
    pub(crate) fn parameter(&mut self, name: &str, shape: &[usize]) -> Added {
        self.given(name, shape, Role::Parameter)
    }

    fn given(&mut self, name: &str, shape: &[usize], role: Role) -> Added {
        let node = self.graph.input(name, shape, Dtype::F32, role)?;
        self.by.push((name.to_owned(), node));
        Ok(node)
    }

    /// With `out` as the result of a forward pass that has no backward pass.
    pub(crate) fn forward_alone(mut self, out: NodeId) -> Built {
        self.graph.output("out", out, Role::Output);
        Built {
            graph: self.graph,
            backward: None,
        }
    }

    /// With `out` as the result, `grad_out` as its gradient, which is the last input, and gradients
    /// by all inputs before it.
    pub(crate) fn with_gradients(self, out: NodeId) -> Result<Built, GraphError> {
        let Builder { mut graph, by } = self;
        let shape = graph.node(out).shape.clone();
        let grad_out = graph.input("grad_out", &shape, Dtype::F32, Role::Input)?;
        let nodes: Vec<NodeId> = by.iter().map(|(_, node)| *node).collect();
        let backward = graph::differentiate(&mut graph, &[(out, Some(grad_out))], &nodes)?;
        graph.output("out", out, Role::Output);
        for ((name, _), gradient) in by.into_iter().zip(backward.gradients) {
            graph.output(format!("grad_{name}"), gradient, Role::Gradient);
        }
        Ok(Built {
            graph,
            backward: Some(backward.from),
        })
    }
}
