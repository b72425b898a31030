//! The graphs of bodies, forward and backward.

use super::body::Loss;
use crate::graph_problem::Built;
use sweeper_compiler::graph::{self, Graph, GraphError, NodeId};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// Added to variances.
const EPS: f64 = 1e-5;

type Added = Result<NodeId, GraphError>;

/// A graph, with the inputs by which there is a gradient.
#[derive(Default)]
struct Builder {
    graph: Graph,
    by: Vec<(String, NodeId)>,
}

impl Builder {
    fn operand(&mut self, name: &str, shape: &[usize]) -> Added {
        self.given(name, shape, Role::Input)
    }

    fn parameter(&mut self, name: &str, shape: &[usize]) -> Added {
        self.given(name, shape, Role::Parameter)
    }

    fn given(&mut self, name: &str, shape: &[usize], role: Role) -> Added {
        let node = self.graph.input(name, shape, Dtype::F32, role)?;
        self.by.push((name.to_owned(), node));
        Ok(node)
    }

    /// `x w^T`, `w` being (out, in).
    fn project(&mut self, x: NodeId, w: NodeId) -> Added {
        let turned = self.graph.transpose_last(w)?;
        self.graph.matmul(x, turned)
    }

    /// With `out` as the result, `grad_out` as its gradient, and gradients of all inputs before it.
    fn with_gradients(self, out: NodeId) -> Result<Built, GraphError> {
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

pub(super) fn matmul_chain(size: usize, depth: usize) -> Result<Built, GraphError> {
    let mut builder = Builder::default();
    let mut out = builder.operand("x", &[size, size])?;
    for at in 1..=depth {
        let w = builder.parameter(&format!("w{at}"), &[size, size])?;
        out = builder.graph.matmul(out, w)?;
    }
    builder.with_gradients(out)
}

pub(super) fn mlp(
    batch: usize,
    widths: [usize; 4],
    loss: Loss,
    rate: f64,
) -> Result<Built, GraphError> {
    let mut builder = Builder::default();
    let (input, f32) = (Role::Input, Dtype::F32);
    let mut out = builder.graph.input("x", &[batch, widths[0]], f32, input)?;
    for (at, pair) in widths.windows(2).enumerate() {
        if at > 0 {
            out = builder.graph.relu(out)?;
        }
        let w = builder.parameter(&format!("w{}", at + 1), &[pair[1], pair[0]])?;
        let b = builder.parameter(&format!("b{}", at + 1), &[pair[1]])?;
        let turned = builder.graph.transpose_last(w)?;
        out = builder.graph.linear(out, turned, b)?;
    }
    let Builder { mut graph, by } = builder;
    let loss = match loss {
        Loss::SquaredError => {
            let target = graph.input("target", &[batch, widths[3]], f32, input)?;
            graph.mse(out, target)?
        }
        Loss::CrossEntropy => {
            let labels = graph.input("labels", &[batch], Dtype::I64, input)?;
            graph.cross_entropy(out, labels)?
        }
    };
    graph.output("loss", loss, Role::Output);
    let nodes: Vec<NodeId> = by.iter().map(|(_, node)| *node).collect();
    let backward = graph::differentiate(&mut graph, &[(loss, None)], &nodes)?;
    for ((name, node), gradient) in by.into_iter().zip(backward.gradients) {
        let after = graph.group("sgd", |graph| {
            let step = graph.scale(gradient, rate)?;
            graph.sub(node, step)
        })?;
        graph.output(format!("after.{name}"), after, Role::Parameter);
    }
    Ok(Built {
        graph,
        backward: Some(backward.from),
    })
}

pub(super) fn attention_block(sequence: usize, dimension: usize) -> Result<Built, GraphError> {
    let mut builder = Builder::default();
    let x = builder.operand("x", &[sequence, dimension])?;
    let weights = ["wq", "wk", "wv", "wo"];
    let mut given = [x; 4];
    for (node, name) in given.iter_mut().zip(weights) {
        *node = builder.parameter(name, &[dimension, dimension])?;
    }
    let [wq, wk, wv, wo] = given;
    let q = builder.project(x, wq)?;
    let k = builder.project(x, wk)?;
    let v = builder.project(x, wv)?;
    let scores = builder.project(q, k)?;
    let scores = builder
        .graph
        .scale(scores, 1.0 / (dimension as f64).sqrt())?;
    let shares = builder.graph.softmax(scores)?;
    let mixed = builder.graph.matmul(shares, v)?;
    let out = builder.project(mixed, wo)?;
    builder.with_gradients(out)
}

pub(super) fn mixed(size: usize) -> Result<Built, GraphError> {
    let mut builder = Builder::default();
    let a = builder.operand("a", &[size, size])?;
    let b = builder.operand("b", &[size, size])?;
    let w = builder.parameter("w", &[size, size])?;
    let gamma = builder.parameter("gamma", &[size])?;
    let beta = builder.parameter("beta", &[size])?;
    let graph = &mut builder.graph;
    let sum = graph.add(a, b)?;
    let positive = graph.relu(sum)?;
    let h = graph.mul(positive, b)?;
    let product = graph.matmul(h, w)?;
    let p = graph.softmax(product)?;
    let z = graph.add(a, p)?;
    let out = graph.layernorm(z, gamma, beta, EPS)?;
    builder.with_gradients(out)
}
