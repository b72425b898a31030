//! `attention_block`

use super::{MOST, ROWS, size};
use crate::graph_builder::{Added, Builder};
use crate::graph_oracle::Evaluated;
use crate::graph_problem::{Built, PLAIN};
use crate::graph_workload::GraphWorkload;
use sweeper_compiler::graph::{Graph, GraphError, NodeId};
use sweeper_program::workload::{WorkloadInfo, tensor};

const SEQUENCE: &str = "(sequence, dimension)";
const PROJECTION: &str = "(dimension, dimension)";

pub(crate) static WORKLOAD: GraphWorkload<AttentionBlock> = GraphWorkload {
    info: &WorkloadInfo {
        name: "attention_block",
        about: "attention of one head over a sequence, with its four projections",
        formula: "q = x wq^T; k = x wk^T; v = x wv^T\n\
                  out = softmax(q k^T / sqrt(dimension)) v wo^T\n\
                  softmax over each row",
        parameters: &[
            size("sequence", 64, MOST, "positions"),
            size("dimension", 64, MOST, "elements of a position"),
        ],
        inputs: &[
            tensor("x", SEQUENCE, "the sequence"),
            tensor("wq", PROJECTION, "weights of queries"),
            tensor("wk", PROJECTION, "weights of keys"),
            tensor("wv", PROJECTION, "weights of values"),
            tensor("wo", PROJECTION, "weights of the result"),
            tensor(
                "grad_out",
                SEQUENCE,
                "incoming gradient of the backward pass",
            ),
        ],
        outputs: &[
            tensor("out", SEQUENCE, "result"),
            tensor("grad_x", SEQUENCE, "gradient by x"),
            tensor("grad_wq", PROJECTION, "gradient by wq"),
            tensor("grad_wk", PROJECTION, "gradient by wk"),
            tensor("grad_wv", PROJECTION, "gradient by wv"),
            tensor("grad_wo", PROJECTION, "gradient by wo"),
        ],
        buckets: &[("sequence", ROWS)],
        ..PLAIN
    },
    computation: |given| {
        Ok(AttentionBlock {
            sequence: given.size("sequence"),
            dimension: given.size("dimension"),
        })
    },
};

/// Attention with its projections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionBlock {
    pub(crate) sequence: usize,
    pub(crate) dimension: usize,
}

/// `x w^T`, `w` being (out, in).
fn project(graph: &mut Graph, x: NodeId, w: NodeId) -> Added {
    let turned = graph.transpose_last(w)?;
    graph.matmul(x, turned)
}

impl Evaluated for AttentionBlock {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["x"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let dimension = self.dimension;
        let mut builder = Builder::default();
        let x = builder.operand("x", &[self.sequence, dimension])?;
        let mut given = [x; 4];
        for (node, name) in given.iter_mut().zip(["wq", "wk", "wv", "wo"]) {
            *node = builder.parameter(name, &[dimension, dimension])?;
        }
        let [wq, wk, wv, wo] = given;
        let graph = &mut builder.graph;
        let q = project(graph, x, wq)?;
        let k = project(graph, x, wk)?;
        let v = project(graph, x, wv)?;
        let products = project(graph, q, k)?;
        let scores = graph.scale(products, 1.0 / (dimension as f64).sqrt())?;
        let shares = graph.softmax(scores)?;
        let mixed = graph.matmul(shares, v)?;
        let out = project(graph, mixed, wo)?;
        builder.with_gradients(out)
    }

    /// Rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![(self.sequence, "sequence")]
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![&mut self.sequence, &mut self.dimension]
    }
}
