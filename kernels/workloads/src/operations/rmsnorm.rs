//! `rmsnorm`

use super::norm::{EPS, Norm};
use super::prelude::*;

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "rmsnorm",
        about: "normalises each position to root mean square 1, with gain",
        formula: "out = gamma x / sqrt(mean(x^2) + 1e-5)\nmean over the last dimension",
        inputs: &[X, GAMMA, GRAD_OUT],
        outputs: &[OUT, GRAD_X, GRAD_GAMMA],
        ..PLAIN
    },
    computation: |given| Ok(SizedOperation::new(&RmsNorm, given)),
};

struct RmsNorm;

impl Operation for RmsNorm {
    fn graph(&self, builder: &mut Builder, x: NodeId, sizes: &Sizes) -> Added {
        let gamma = builder.parameter("gamma", &[sizes.dimension])?;
        builder.graph.rmsnorm(x, gamma, EPS)
    }

    fn oracle(&self, asked: &mut Asked<'_>) {
        let norm = Norm::new(asked, false);
        if asked.is_forward {
            norm.forward(asked, &vec![0.0; asked.sizes.dimension]);
        }
        if asked.is_backward {
            norm.backward(asked);
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        [1.5, 2.5]
    }
}
