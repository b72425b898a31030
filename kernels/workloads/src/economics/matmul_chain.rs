//! `matmul_chain`

use super::{MOST, SQUARE, size};
use crate::graph_builder::Builder;
use crate::graph_oracle::Evaluated;
use crate::graph_problem::{Built, PLAIN};
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::GraphError;
use sweeper_program::workload::{WorkloadInfo, tensor};

pub(crate) static WORKLOAD: GraphWorkload<MatmulChain> = GraphWorkload {
    info: &WorkloadInfo {
        name: "matmul_chain",
        about: "products of square matrices, one after the other",
        formula: "out = x w1 w2 ... wN, N being the depth, from left to right",
        parameters: &[
            size("size", 64, MOST, "rows and columns of each matrix"),
            size("depth", 3, 64, "products"),
        ],
        inputs: &[
            tensor("x", SQUARE, "the first factor"),
            tensor("wN", SQUARE, "the others: w1, w2, and so on"),
            tensor("grad_out", SQUARE, "incoming gradient of the backward pass"),
        ],
        outputs: &[
            tensor("out", SQUARE, "result"),
            tensor("grad_x", SQUARE, "gradient by x"),
            tensor("grad_wN", SQUARE, "gradient by w1, w2, and so on"),
        ],
        ..PLAIN
    },
    computation: |given| {
        Ok(MatmulChain {
            size: given.size("size"),
            depth: given.size("depth"),
        })
    },
};

/// Products of `size` by `size` matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatmulChain {
    pub(crate) size: usize,
    pub(crate) depth: usize,
}

impl Evaluated for MatmulChain {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let shape = [self.size, self.size];
        let mut builder = Builder::default();
        let mut out = builder.operand("x", &shape)?;
        for at in 1..=self.depth {
            let w = builder.parameter(&format!("w{at}"), &shape)?;
            out = builder.graph.matmul(out, w)?;
        }
        builder.with_gradients(out)
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.depth)
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![&mut self.size]
    }
}
