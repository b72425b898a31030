//! `mixed`

use super::{MOST, ROWS, SQUARE, size};
use crate::graph_builder::Builder;
use crate::graph_oracle::Evaluated;
use crate::graph_problem::{Built, PLAIN};
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::GraphError;
use sweeper_program::workload::{WorkloadInfo, tensor};

/// Added to variances.
const EPS: f64 = 1e-5;

pub(crate) static WORKLOAD: GraphWorkload<Mixed> = GraphWorkload {
    info: &WorkloadInfo {
        name: "mixed",
        about: "sums, products, an activation, a matrix product, a softmax and a layer norm",
        formula: "h = relu(a + b) b\n\
                  p = softmax(h w), over each row\n\
                  z = a + p\n\
                  out = gamma (z - mean(z)) / sqrt(var(z) + 1e-5) + beta, over each row",
        parameters: &[size("size", 32, MOST, "rows and columns of each matrix")],
        inputs: &[
            tensor("a", SQUARE, "first operand"),
            tensor("b", SQUARE, "second operand"),
            tensor("w", SQUARE, "factor of the matrix product"),
            tensor("gamma", "(size)", "gain"),
            tensor("beta", "(size)", "bias"),
            tensor("grad_out", SQUARE, "incoming gradient of the backward pass"),
        ],
        outputs: &[
            tensor("out", SQUARE, "result"),
            tensor("grad_a", SQUARE, "gradient by a"),
            tensor("grad_b", SQUARE, "gradient by b"),
            tensor("grad_w", SQUARE, "gradient by w"),
            tensor("grad_gamma", "(size)", "gradient by gamma"),
            tensor("grad_beta", "(size)", "gradient by beta"),
        ],
        buckets: &[("size", ROWS)],
        ..PLAIN
    },
    computation: |given| {
        Ok(Mixed {
            size: given.size("size"),
        })
    },
};

/// Operations of many kinds on `size` by `size` matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixed {
    pub(crate) size: usize,
}

impl Evaluated for Mixed {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["a"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let shape = [self.size, self.size];
        let mut builder = Builder::default();
        let a = builder.operand("a", &shape)?;
        let b = builder.operand("b", &shape)?;
        let w = builder.parameter("w", &shape)?;
        let gamma = builder.parameter("gamma", &shape[1..])?;
        let beta = builder.parameter("beta", &shape[1..])?;
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

    /// Rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![(self.size, "size")]
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![&mut self.size]
    }
}
