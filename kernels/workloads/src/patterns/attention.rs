//! `attention`

use super::{PLAIN, product};
use crate::graph_builder::Builder;
use crate::graph_oracle::Evaluated;
use crate::graph_problem::Built;
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::GraphError;
use sweeper_program::workload::{Phase, WorkloadInfo, size, tensor, word};

const POSITIONS: &str = "(batch, sequence, dimension)";

pub(crate) static WORKLOAD: GraphWorkload<Attention> = GraphWorkload {
    info: &WorkloadInfo {
        name: "attention",
        about: "attention of one head, or its first steps",
        formula: "scores:  out = q k^T / sqrt(dimension)\n\
                  weights: out = softmax(scores), over each row\n\
                  full:    out = weights v",
        parameters: &[
            size("batch", 1 << 16, None, "sequences"),
            size("sequence", 1 << 20, None, "positions"),
            size("dimension", 1 << 16, None, "elements of a position"),
            word(
                "pattern",
                &[
                    ("scores", &["QK^T", "Q_KT"]),
                    ("weights", &["QK^T_Softmax", "Q_KT_Softmax"]),
                    ("full", &["FullAttention", "sdpa"]),
                ],
                "full",
                "how much of it",
            ),
        ],
        inputs: &[
            tensor("q", POSITIONS, "queries"),
            tensor("k", POSITIONS, "keys"),
            tensor("v", POSITIONS, "with full: values"),
        ],
        outputs: &[tensor(
            "out",
            "(batch, sequence, sequence), or of q",
            "result",
        )],
        // Powers of two to where a row of f32 fills the registers of a block of threads.
        buckets: &[(
            "sequence",
            &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
        )],
        ..PLAIN
    },
    computation: |given| {
        Ok(Attention {
            batch: given.size("batch"),
            sequence: given.size("sequence"),
            dimension: given.size("dimension"),
            until: match given.word("pattern") {
                "scores" => Until::Scores,
                "weights" => Until::Weights,
                _ => Until::Values,
            },
        })
    },
};

/// The last step that is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// Scaled products of queries and keys.
    Scores,
    /// Their softmax.
    Weights,
    /// Values, weighted.
    Values,
}

/// One head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(super) batch: usize,
    pub(super) sequence: usize,
    pub(super) dimension: usize,
    pub(super) until: Until,
}

impl Evaluated for Attention {
    fn build(&self) -> Result<Built, GraphError> {
        let shape = [self.batch, self.sequence, self.dimension];
        let mut builder = Builder::default();
        let q = builder.operand("q", &shape)?;
        let k = builder.operand("k", &shape)?;
        let graph = &mut builder.graph;
        let keys = graph.transpose_last(k)?;
        let products = graph.matmul(q, keys)?;
        let scores = graph.scale(products, 1.0 / (self.dimension as f64).sqrt())?;
        let out = match self.until {
            Until::Scores => scores,
            Until::Weights => graph.softmax(scores)?,
            Until::Values => {
                let weights = graph.softmax(scores)?;
                let v = builder.operand("v", &shape)?;
                builder.graph.matmul(weights, v)?
            }
        };
        Ok(builder.forward_alone(out))
    }

    /// Rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![(self.sequence, "sequence")]
    }

    fn flops(&self, _phase: Phase) -> Option<f64> {
        let (products, each) = match self.until {
            Until::Scores => (1.0, 1.0),
            Until::Weights => (1.0, 6.0),
            Until::Values => (2.0, 6.0),
        };
        let scores = product(&[self.batch, self.sequence, self.sequence]);
        Some(scores * (2.0 * products * self.dimension as f64 + each))
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.batch)
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![&mut self.batch, &mut self.sequence, &mut self.dimension]
    }
}
