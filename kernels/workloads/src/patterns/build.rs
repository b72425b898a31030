//! The graphs of patterns.

use super::pattern::{Attention, Conv, Linear};
use crate::graph_problem::Built;
use sweeper_compiler::graph::{Convolution, Graph, GraphError, NodeId, Unary};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// Added to variances.
const EPS: f64 = 1e-5;

type Made = Result<(Graph, NodeId), GraphError>;

/// A graph of one result.
pub(super) fn built(mut graph: Graph, out: NodeId) -> Built {
    graph.output("out", out, Role::Output);
    Built {
        graph,
        backward: None,
    }
}

fn operand(graph: &mut Graph, name: &str, shape: &[usize]) -> Result<NodeId, GraphError> {
    graph.input(name, shape, Dtype::F32, Role::Input)
}

fn parameter(graph: &mut Graph, name: &str, shape: &[usize]) -> Result<NodeId, GraphError> {
    graph.input(name, shape, Dtype::F32, Role::Parameter)
}

pub(super) fn matmul(m: usize, k: usize, n: usize) -> Made {
    let mut graph = Graph::new();
    let a = operand(&mut graph, "a", &[m, k])?;
    let b = operand(&mut graph, "b", &[k, n])?;
    let out = graph.matmul(a, b)?;
    Ok((graph, out))
}

pub(super) fn linear([m, k, n]: [usize; 3], pattern: Linear) -> Made {
    let mut graph = Graph::new();
    let x = operand(&mut graph, "x", &[m, k])?;
    let w = parameter(&mut graph, "w", &[n, k])?;
    let b = parameter(&mut graph, "b", &[n])?;
    let w = graph.transpose_last(w)?;
    // The guide's operations: a product, a bias, an activation. A layer of a framework is the first
    // two at once.
    let product = graph.matmul(x, w)?;
    let y = graph.add(product, b)?;
    let out = match pattern {
        Linear::Bias => y,
        Linear::BiasRelu => graph.relu(y)?,
        Linear::BiasGelu => graph.gelu_erf(y)?,
        Linear::BiasGeluTanh => graph.gelu_tanh(y)?,
    };
    Ok((graph, out))
}

pub(super) fn conv(
    batch: usize,
    [channels_in, channels_out]: [usize; 2],
    size: usize,
    kernel: usize,
    pattern: Conv,
) -> Made {
    let mut graph = Graph::new();
    let x = operand(&mut graph, "x", &[batch, channels_in, size, size])?;
    let w = parameter(
        &mut graph,
        "w",
        &[channels_out, channels_in, kernel, kernel],
    )?;
    let window = Convolution {
        stride: 1,
        padding: kernel / 2,
    };
    let y = graph.conv2d(x, w, window)?;
    let out = match pattern {
        Conv::Relu => graph.relu(y)?,
        Conv::BatchNorm => batch_norm(&mut graph, y, channels_out)?,
        Conv::BatchNormRelu => {
            let normal = batch_norm(&mut graph, y, channels_out)?;
            graph.relu(normal)?
        }
    };
    Ok((graph, out))
}

/// A batch norm of inference, one kernel of an eager framework.
fn batch_norm(graph: &mut Graph, y: NodeId, channels: usize) -> Result<NodeId, GraphError> {
    let mut given = [y; 4];
    for (node, name) in given.iter_mut().zip(["gamma", "beta", "mean", "var"]) {
        let channel = parameter(graph, name, &[channels])?;
        *node = graph.reshape(channel, &[channels, 1, 1])?;
    }
    let [gamma, beta, mean, var] = given;
    graph.group("batch_norm", |graph| {
        let eps = graph.constant(EPS);
        let var = graph.add(var, eps)?;
        let scale = graph.unary(Unary::Rsqrt, var)?;
        let centred = graph.sub(y, mean)?;
        let normal = graph.mul(centred, scale)?;
        let scaled = graph.mul(normal, gamma)?;
        graph.add(scaled, beta)
    })
}

pub(super) fn attention(shape: [usize; 3], pattern: Attention) -> Made {
    let mut graph = Graph::new();
    let q = operand(&mut graph, "q", &shape)?;
    let k = operand(&mut graph, "k", &shape)?;
    let keys = graph.transpose_last(k)?;
    let products = graph.matmul(q, keys)?;
    let scores = graph.scale(products, 1.0 / (shape[2] as f64).sqrt())?;
    let out = match pattern {
        Attention::Scores => scores,
        Attention::Weights => graph.softmax(scores)?,
        Attention::Full => {
            let weights = graph.softmax(scores)?;
            let v = operand(&mut graph, "v", &shape)?;
            graph.matmul(weights, v)?
        }
    };
    Ok((graph, out))
}
