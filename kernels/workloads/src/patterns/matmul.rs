//! `matmul`

use super::{K, M, N, PLAIN, product};
use crate::graph_builder::Builder;
use crate::graph_oracle::Evaluated;
use crate::graph_problem::Built;
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::GraphError;
use sweeper_program::Precision;
use sweeper_program::workload::{Phase, WorkloadInfo, tensor, word};

pub(crate) static WORKLOAD: GraphWorkload<Matmul> = GraphWorkload {
    info: &WorkloadInfo {
        name: "matmul",
        about: "product of two matrices",
        formula: "out = a b",
        parameters: &[
            M,
            K,
            N,
            word(
                "precision",
                &[("f32", &[]), ("tf32", &[]), ("bf16", &[])],
                "f32",
                "in what the product is computed, on GPUs tf32 and bf16 too: with bf16 the factors are rounded before, untimed",
            ),
        ],
        inputs: &[
            tensor("a", "(m, k)", "first factor"),
            tensor("b", "(k, n)", "second factor"),
        ],
        outputs: &[tensor("out", "(m, n)", "product")],
        ..PLAIN
    },
    computation: |given| {
        Ok(Matmul {
            m: given.size("m"),
            k: given.size("k"),
            n: given.size("n"),
            precision: given.precision(),
        })
    },
};

/// (m, k) by (k, n).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matmul {
    pub(super) m: usize,
    pub(super) k: usize,
    pub(super) n: usize,
    pub(super) precision: Precision,
}

impl Evaluated for Matmul {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["a"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let mut builder = Builder::default();
        let a = builder.operand("a", &[self.m, self.k])?;
        let b = builder.operand("b", &[self.k, self.n])?;
        let out = builder.graph.matmul(a, b)?;
        Ok(builder.forward_alone(out))
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn flops(&self, _phase: Phase) -> Option<f64> {
        Some(2.0 * product(&[self.m, self.k, self.n]))
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.m)
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![&mut self.m, &mut self.k, &mut self.n]
    }
}
