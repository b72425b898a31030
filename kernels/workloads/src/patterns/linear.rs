//! `linear`

use super::{K, M, N, PLAIN, product};
use crate::graph_builder::Builder;
use crate::graph_oracle::Evaluated;
use crate::graph_problem::Built;
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::GraphError;
use sweeper_program::workload::{Phase, WorkloadInfo, tensor, word};

pub(crate) static WORKLOAD: GraphWorkload<Linear> = GraphWorkload {
    info: &WorkloadInfo {
        name: "linear",
        about: "a linear layer with its bias and an activation",
        formula: "y = x w^T + b\n\
                  bias: out = y; bias_relu: out = max(y, 0)\n\
                  bias_gelu:      out = y (1 + erf(y / sqrt(2))) / 2\n\
                  bias_gelu_tanh: out = y (1 + tanh(sqrt(2 / pi) (y + 0.044715 y^3))) / 2",
        parameters: &[
            M,
            K,
            N,
            word(
                "pattern",
                &[
                    ("bias", &["Linear_Bias"]),
                    ("bias_relu", &["Linear_Bias_ReLU"]),
                    ("bias_gelu", &["Linear_Bias_GELU"]),
                    ("bias_gelu_tanh", &[]),
                ],
                "bias",
                "what follows the product",
            ),
        ],
        inputs: &[
            tensor("x", "(m, k)", "what the layer is applied to"),
            tensor("w", "(n, k)", "weights"),
            tensor("b", "(n)", "biases"),
        ],
        outputs: &[tensor("out", "(m, n)", "result")],
        ..PLAIN
    },
    computation: |given| {
        Ok(Linear {
            m: given.size("m"),
            k: given.size("k"),
            n: given.size("n"),
            activation: match given.word("pattern") {
                "bias_relu" => Activation::Relu,
                "bias_gelu" => Activation::Gelu,
                "bias_gelu_tanh" => Activation::GeluTanh,
                _ => Activation::None,
            },
        })
    },
};

/// What follows the product and the bias.
#[derive(Clone, Copy, Debug)]
pub(super) enum Activation {
    /// Nothing.
    None,
    /// `max(y, 0)`
    Relu,
    /// GELU by the error function.
    Gelu,
    /// GELU by the hyperbolic tangent.
    GeluTanh,
}

/// (m, k) by (n, k) transposed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) activation: Activation,
}

impl Evaluated for Linear {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["x"]
    }

    /// The guide's operations: a product, a bias, an activation. A layer of a framework is the
    /// first two at once.
    fn build(&self) -> Result<Built, GraphError> {
        let mut builder = Builder::default();
        let x = builder.operand("x", &[self.m, self.k])?;
        let w = builder.parameter("w", &[self.n, self.k])?;
        let b = builder.parameter("b", &[self.n])?;
        let graph = &mut builder.graph;
        let w = graph.transpose_last(w)?;
        let product = graph.matmul(x, w)?;
        let y = graph.add(product, b)?;
        let out = match self.activation {
            Activation::None => y,
            Activation::Relu => graph.relu(y)?,
            Activation::Gelu => graph.gelu_erf(y)?,
            Activation::GeluTanh => graph.gelu_tanh(y)?,
        };
        Ok(builder.forward_alone(out))
    }

    fn flops(&self, _phase: Phase) -> Option<f64> {
        let each = match self.activation {
            Activation::None | Activation::Relu => 1.0,
            Activation::Gelu | Activation::GeluTanh => 9.0,
        };
        Some(2.0 * product(&[self.m, self.k, self.n]) + each * product(&[self.m, self.n]))
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.m)
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![&mut self.m, &mut self.k, &mut self.n]
    }
}
