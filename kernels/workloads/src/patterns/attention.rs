//! `attention`, whole or its first steps, with its gradients.

use super::{PLAIN, product};
use crate::graph_builder::{Added, Builder};
use crate::graph_oracle::Evaluated;
use crate::graph_problem::Built;
use crate::graph_workload::{Given, GraphWorkload};
use sweeper_compiler::graph::{Binary, Graph, GraphError, NodeId};
use sweeper_program::Precision;
use sweeper_program::workload::{
    DefaultValue, ParameterError, ParameterInfo, ParameterKind, Phase, Presentation, WorkloadInfo,
    size, tensor, word,
};

const POSITIONS: &str = "(batch, heads, sequence, dimension), without heads where there is one";

pub(crate) static WORKLOAD: GraphWorkload<Attention> = GraphWorkload {
    info: &WorkloadInfo {
        name: "attention",
        about: "attention, or its first steps",
        formula: "scores:  out = q k^T / sqrt(dimension)\n\
                  weights: out = softmax(scores), over each row\n\
                  full:    out = weights v\n\
                  causal:  a query sees keys up to its own position\n\
                  heads / kv_heads heads share keys and values",
        parameters: &[
            size("batch", 1 << 16, None, "sequences"),
            size("sequence", 1 << 20, None, "positions"),
            size(
                "dimension",
                1 << 16,
                None,
                "elements of a position of one head",
            ),
            size(
                "heads",
                1 << 12,
                Some(DefaultValue::Int(1)),
                "heads of queries",
            ),
            ParameterInfo {
                name: "kv_heads",
                kind: ParameterKind::Int {
                    min: 0,
                    max: 1 << 12,
                },
                default: Some(DefaultValue::Int(0)),
                about: "heads of keys and values, each for as many heads of queries; 0 for one each",
            },
            word(
                "mask",
                &[("none", &[]), ("causal", &[])],
                "none",
                "the keys that a query sees",
            ),
            word(
                "precision",
                &[("f32", &[]), ("tf32", &[]), ("bf16", &[])],
                "f32",
                "the number format of products, on GPUs tf32 and bf16 too",
            ),
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
            tensor(
                "grad_out",
                "of out",
                "incoming gradient of the backward pass",
            ),
        ],
        outputs: &[
            tensor("out", "(batch, sequence, sequence), or of q", "result"),
            tensor("grad_q", "of q", "gradient by q"),
            tensor("grad_k", "of k", "gradient by k"),
            tensor("grad_v", "of v", "with full: gradient by v"),
        ],
        phases: &Phase::ALL,
        // Powers of two to where a row of f32 fills the registers of a block of threads.
        buckets: &[(
            "sequence",
            &[16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
        )],
        presentation: Some(&PRESENTATION),
        ..PLAIN
    },
    computation: Attention::new,
};

static PRESENTATION: Presentation = Presentation {
    sizes: &["sequence", "dimension"],
    derived: &[],
    leading_axis: "sequence",
    second_axis: "dimension",
    compared: None,
    work: None,
    memory: None,
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

/// Attention of some heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    pub(super) batch: usize,
    /// Heads of keys and values.
    pub(super) kv_heads: usize,
    /// Heads of queries that share one of keys and values.
    pub(super) group: usize,
    pub(super) sequence: usize,
    pub(super) dimension: usize,
    pub(super) is_causal: bool,
    pub(super) precision: Precision,
    pub(super) until: Until,
}

impl Attention {
    fn new(given: &Given) -> Result<Attention, ParameterError> {
        let heads = given.size("heads");
        let kv_heads = match given.size("kv_heads") {
            0 => heads,
            kv_heads => kv_heads,
        };
        if !heads.is_multiple_of(kv_heads) {
            return Err(ParameterError::Together {
                reason: format!("{heads} `heads` can't share {kv_heads} `kv_heads` evenly"),
            });
        }
        Ok(Attention {
            batch: given.size("batch"),
            kv_heads,
            group: heads / kv_heads,
            sequence: given.size("sequence"),
            dimension: given.size("dimension"),
            is_causal: given.word("mask") == "causal",
            precision: given.precision(),
            until: match given.word("pattern") {
                "scores" => Until::Scores,
                "weights" => Until::Weights,
                _ => Until::Values,
            },
        })
    }

    /// The shape of an operand of so many heads: one head has no dimension.
    fn shape(&self, heads: usize) -> Vec<usize> {
        let matrix = [self.sequence, self.dimension];
        match heads {
            1 => [&[self.batch], &matrix[..]].concat(),
            heads => [&[self.batch, heads], &matrix[..]].concat(),
        }
    }

    /// Matrices with the heads that share keys and values in a dimension of their own.
    fn grouped(&self, graph: &mut Graph, x: NodeId, group: usize) -> Added {
        match self.group {
            1 => Ok(x),
            _ => {
                let [batch, heads] = [self.batch, self.kv_heads];
                let shape = [batch, heads, group, self.sequence, self.dimension];
                graph.reshape(x, &shape)
            }
        }
    }

    /// Scores of the keys that a query sees; those of others vanish in a softmax.
    fn masked(&self, graph: &mut Graph, scores: NodeId) -> Added {
        if !self.is_causal {
            return Ok(scores);
        }
        let square = [self.sequence; 2];
        let [query, key] = [graph.iota(&square, 0)?, graph.iota(&square, 1)?];
        let is_seen = graph.binary(Binary::LessEqual, key, query)?;
        let hidden = graph.constant(HIDDEN);
        graph.select(is_seen, scores, hidden)
    }
}

/// The score of a key that a query does not see: less than all others.
const HIDDEN: f64 = -1e30;

impl Evaluated for Attention {
    fn shown_inputs(&self) -> &'static [&'static str] {
        &["q"]
    }

    fn build(&self) -> Result<Built, GraphError> {
        let heads = self.kv_heads * self.group;
        let mut builder = Builder::default();
        let q = builder.operand("q", &self.shape(heads))?;
        let k = builder.operand("k", &self.shape(self.kv_heads))?;
        let graph = &mut builder.graph;
        let queries = self.grouped(graph, q, self.group)?;
        let keys = self.grouped(graph, k, 1)?;
        let keys = graph.transpose_last(keys)?;
        let products = graph.matmul(queries, keys)?;
        let scores = graph.scale(products, 1.0 / (self.dimension as f64).sqrt())?;
        let scores = self.masked(graph, scores)?;
        let mut out = match self.until {
            Until::Scores => scores,
            Until::Weights => graph.softmax(scores)?,
            Until::Values => {
                let weights = graph.softmax(scores)?;
                let v = builder.operand("v", &self.shape(self.kv_heads))?;
                let values = self.grouped(&mut builder.graph, v, 1)?;
                builder.graph.matmul(weights, values)?
            }
        };
        if self.group > 1 {
            let columns = builder.graph.node(out).shape.last().copied();
            let shape = [self.batch, heads, self.sequence, columns.unwrap_or(1)];
            out = builder.graph.reshape(out, &shape)?;
        }
        builder.with_gradients(out)
    }

    /// Rows that are reduced.
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![(self.sequence, "sequence")]
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    /// The guide's, of the forward pass. A causal mask halves them. The backward pass has two
    /// products for each of the forward pass; what is computed again is not useful work.
    fn flops(&self, phase: Phase) -> Option<f64> {
        let (products, each) = match self.until {
            Until::Scores => (1.0, 1.0),
            Until::Weights => (1.0, 6.0),
            Until::Values => (2.0, 6.0),
        };
        let scores = product(&[self.batch, self.kv_heads, self.group]);
        let scores = scores * product(&[self.sequence, self.sequence]);
        let scores = if self.is_causal { scores / 2.0 } else { scores };
        let forward = scores * (2.0 * products * self.dimension as f64 + each);
        let backward = scores * 4.0 * products * self.dimension as f64;
        Some(match phase {
            Phase::Forward => forward,
            Phase::Backward => backward,
            _ => forward + backward,
        })
    }

    fn parts(&mut self) -> Option<&mut usize> {
        Some(&mut self.batch)
    }

    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![
            &mut self.batch,
            &mut self.kv_heads,
            &mut self.sequence,
            &mut self.dimension,
        ]
    }
}
