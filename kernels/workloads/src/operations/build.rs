//! The graphs of operations, forward and backward.

use super::sizes::{EPS, Kind, Sizes};
use crate::graph_problem::Built;
use sweeper_compiler::graph::{self, Graph, GraphError, NodeId};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// An operation of inputs by their names in files: `x`, parameters, then `grad_out`, which the
/// backward pass takes. Results are `out` and a gradient for everything that has one.
pub(super) fn build(kind: Kind, sizes: &Sizes) -> Result<Built, GraphError> {
    let mut graph = Graph::new();
    let shape = sizes.shape();
    let x = graph.input("x", &shape, Dtype::F32, Role::Input)?;
    let mut by = vec![("grad_x", x)];
    let mut parameter = |graph: &mut Graph, name: &str, gradient| {
        let node = graph.input(name, &shape[2..], Dtype::F32, Role::Parameter)?;
        by.push((gradient, node));
        Ok::<NodeId, GraphError>(node)
    };
    let out = match kind {
        Kind::LayerNorm => {
            let gamma = parameter(&mut graph, "gamma", "grad_gamma")?;
            let beta = parameter(&mut graph, "beta", "grad_beta")?;
            graph.layernorm(x, gamma, beta, EPS)?
        }
        Kind::RmsNorm => {
            let gamma = parameter(&mut graph, "gamma", "grad_gamma")?;
            graph.rmsnorm(x, gamma, EPS)?
        }
        Kind::Softmax => graph.softmax(x)?,
        Kind::GeluErf => graph.gelu_erf(x)?,
        Kind::GeluTanh => graph.gelu_tanh(x)?,
        Kind::Swish => graph.swish(x)?,
        Kind::Mse => {
            let target = graph.input("target", &shape, Dtype::F32, Role::Input)?;
            graph.mse(x, target)?
        }
        Kind::CrossEntropy => {
            let labels = graph.input("labels", &shape[..2], Dtype::I64, Role::Input)?;
            graph.cross_entropy(x, labels)?
        }
    };
    let out_shape = graph.node(out).shape.clone();
    let grad_out = graph.input("grad_out", &out_shape, Dtype::F32, Role::Input)?;
    let nodes: Vec<NodeId> = by.iter().map(|&(_, node)| node).collect();
    let backward = graph::differentiate(&mut graph, &[(out, Some(grad_out))], &nodes)?;
    graph.output("out", out, Role::Output);
    for ((name, _), gradient) in by.into_iter().zip(backward.gradients) {
        graph.output(name, gradient, Role::Gradient);
    }
    Ok(Built {
        graph,
        backward: Some(backward.from),
    })
}
