//! `layernorm`

use super::norm::{EPS, Norm};
use super::prelude::*;

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "layernorm",
        about: "normalises each position to mean 0 and variance 1, with gain and bias",
        formula: "out = gamma (x - mean(x)) / sqrt(var(x) + 1e-5) + beta\n\
                  mean and variance over the last dimension, the variance biased",
        inputs: &[X, GAMMA, tensor("beta", "(dimension)", "bias"), GRAD_OUT],
        outputs: &[
            OUT,
            GRAD_X,
            GRAD_GAMMA,
            tensor("grad_beta", "(dimension)", "gradient by beta"),
        ],
        ..PLAIN
    },
    computation: |given| Ok(SizedOperation::new(&LayerNorm, given)),
};

struct LayerNorm;

impl Operation for LayerNorm {
    fn graph(&self, builder: &mut Builder, x: NodeId, sizes: &Sizes) -> Added {
        let gamma = builder.parameter("gamma", &[sizes.dimension])?;
        let beta = builder.parameter("beta", &[sizes.dimension])?;
        builder.graph.layernorm(x, gamma, beta, EPS)
    }

    fn oracle(&self, asked: &mut Asked<'_>) {
        let norm = Norm::new(asked, true);
        if asked.is_forward {
            norm.forward(asked, &asked.input("beta"));
        }
        if asked.is_backward {
            norm.backward(asked);
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        [1.5, 2.5]
    }
}
