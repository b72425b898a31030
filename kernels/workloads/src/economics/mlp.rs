//! `mlp`

use super::{MOST, ROWS, size};
use crate::graph_builder::{Added, Builder};
use crate::graph_oracle::{Evaluated, elements};
use crate::graph_problem::{Built, PLAIN};
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::{self, GraphError, NodeId};
use sweeper_program::Role;
use sweeper_program::inputs::Stream;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{
    DefaultValue, ParameterInfo, ParameterKind, Phase, TensorInfo, TensorSpec, WorkloadInfo,
    tensor, word,
};

pub(crate) static WORKLOAD: GraphWorkload<Mlp> = GraphWorkload {
    info: &WorkloadInfo {
        name: "mlp",
        about: "a training step of three layers with ReLU between them, by gradient descent",
        formula: "h1 = relu(x w1^T + b1); h2 = relu(h1 w2^T + b2); y = h2 w3^T + b3\n\
                  loss: mse = mean((y - target)^2) over everything\n\
                  \x20     cross_entropy = mean(ln sum(e^y) - y[label]) over the batch\n\
                  after.p = p - rate d loss / d p, for each of w1, b1, w2, b2, w3, b3\n\
                  forward is the loss alone, both is the whole step",
        parameters: &[
            size("batch", 16, 1 << 24, "rows of x"),
            size("input", 32, MOST, "columns of x"),
            size("hidden1", 64, MOST, "width of the first layer"),
            size("hidden2", 32, MOST, "width of the second layer"),
            size("output", 10, MOST, "width of the third layer, classes"),
            word(
                "loss",
                &[("mse", &[]), ("cross_entropy", &[])],
                "mse",
                "mean squared error of the outputs, or cross entropy of labels",
            ),
            ParameterInfo {
                name: "rate",
                kind: ParameterKind::Float { min: 0.0, max: 1e3 },
                default: Some(DefaultValue::Float(0.01)),
                about: "learning rate",
            },
        ],
        phases: &[Phase::Forward, Phase::Both],
        inputs: &[
            tensor("x", "(batch, input)", "what the first layer is applied to"),
            tensor("w1", "(hidden1, input)", "weights of the first layer"),
            tensor("b1", "(hidden1)", "biases of the first layer"),
            tensor("w2", "(hidden2, hidden1)", "weights of the second layer"),
            tensor("b2", "(hidden2)", "biases of the second layer"),
            tensor("w3", "(output, hidden2)", "weights of the third layer"),
            tensor("b3", "(output)", "biases of the third layer"),
            tensor(
                "target",
                "(batch, output)",
                "with loss = mse: what y should be",
            ),
            TensorInfo {
                name: "labels",
                shape: "(batch)",
                dtype: Dtype::I64,
                about: "with loss = cross_entropy: classes, from 0 on",
            },
        ],
        outputs: &[
            tensor("loss", "()", "before the step"),
            tensor("after.w1", "(hidden1, input)", "w1 after the step"),
            tensor("after.b1", "(hidden1)", "b1 after the step"),
            tensor("after.w2", "(hidden2, hidden1)", "w2 after the step"),
            tensor("after.b2", "(hidden2)", "b2 after the step"),
            tensor("after.w3", "(output, hidden2)", "w3 after the step"),
            tensor("after.b3", "(output)", "b3 after the step"),
        ],
        buckets: &[("output", ROWS)],
        ..PLAIN
    },
    computation: |given| {
        Ok(Mlp {
            batch: given.size("batch"),
            widths: ["input", "hidden1", "hidden2", "output"].map(|name| given.size(name)),
            loss: match given.word("loss") {
                "cross_entropy" => Loss::CrossEntropy,
                _ => Loss::SquaredError,
            },
            rate: given.number("rate"),
        })
    },
};

/// What a training step minimises.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// Mean of squared differences.
    SquaredError,
    /// Mean of what the labels' logarithms lack.
    CrossEntropy,
}

/// A training step of layers from one of `widths` to the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mlp {
    pub(crate) batch: usize,
    pub(crate) widths: [usize; 4],
    pub(crate) loss: Loss,
    pub(crate) rate: f64,
}

impl Mlp {
    /// The three layers and the loss.
    fn forward(&self, builder: &mut Builder) -> Added {
        let (batch, classes) = (self.batch, self.widths[3]);
        let (input, f32) = (Role::Input, Dtype::F32);
        let shape = [batch, self.widths[0]];
        let mut out = builder.graph.input("x", &shape, f32, input)?;
        for (at, pair) in self.widths.windows(2).enumerate() {
            if at > 0 {
                out = builder.graph.relu(out)?;
            }
            let w = builder.parameter(&format!("w{}", at + 1), &[pair[1], pair[0]])?;
            let b = builder.parameter(&format!("b{}", at + 1), &[pair[1]])?;
            let turned = builder.graph.transpose_last(w)?;
            out = builder.graph.linear(out, turned, b)?;
        }
        let graph = &mut builder.graph;
        match self.loss {
            Loss::SquaredError => {
                let target = graph.input("target", &[batch, classes], f32, input)?;
                graph.mse(out, target)
            }
            Loss::CrossEntropy => {
                let labels = graph.input("labels", &[batch], Dtype::I64, input)?;
                graph.cross_entropy(out, labels)
            }
        }
    }
}

impl Evaluated for Mlp {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let mut builder = Builder::default();
        let loss = self.forward(&mut builder)?;
        let Builder { mut graph, by } = builder;
        graph.output("loss", loss, Role::Output);
        let nodes: Vec<NodeId> = by.iter().map(|(_, node)| *node).collect();
        let backward = graph::differentiate(&mut graph, &[(loss, None)], &nodes)?;
        for ((name, node), gradient) in by.into_iter().zip(backward.gradients) {
            let after = graph.group("sgd", |graph| {
                let step = graph.scale(gradient, self.rate)?;
                graph.sub(node, step)
            })?;
            graph.output(format!("after.{name}"), after, Role::Parameter);
        }
        Ok(Built {
            graph,
            backward: Some(backward.from),
        })
    }

    /// Rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![(self.widths[3], "output")]
    }

    fn elements(&self, spec: &TensorSpec, stream: &Stream) -> Vec<f32> {
        match spec.name.starts_with('b') {
            true => stream.normal(spec.shape.iter().product(), 0.1),
            false => elements(spec, stream),
        }
    }

    fn classes(&self) -> usize {
        self.widths[3]
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.batch)
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        self.widths.iter_mut().chain([&mut self.batch]).collect()
    }
}
