//! `cross_entropy`

use super::exponentials::{Exponentials, of_exponential};
use super::prelude::*;
use crate::showing::{edges, kind_of_row, make_kinds};
use sweeper_program::Role;
use sweeper_program::inputs::InputKey;
use sweeper_program::rounding::FUNCTION;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::TensorInfo;

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "cross_entropy",
        about: "mean negative logarithm of the weights that a softmax gives labels",
        formula: "out = mean(ln sum(e^x) - x[label])\n\
                  sum over the last dimension, mean over batch and sequence",
        inputs: &[
            X,
            TensorInfo {
                name: "labels",
                shape: "(batch, sequence)",
                dtype: Dtype::I64,
                about: "classes, from 0 on",
            },
            GRAD_LOSS,
        ],
        outputs: &[LOSS, GRAD_X],
        ..PLAIN
    },
    computation: |given| Ok(SizedOperation::new(&CrossEntropy, given)),
};

struct CrossEntropy;

/// The mean loss of a row over all kinds, about.
const LOSS_OF_KINDS: f32 = 60.0;

impl Operation for CrossEntropy {
    fn graph(&self, builder: &mut Builder, x: NodeId, sizes: &Sizes) -> Added {
        let graph = &mut builder.graph;
        let labels = graph.input("labels", &sizes.shape()[..2], Dtype::I64, Role::Input)?;
        graph.cross_entropy(x, labels)
    }

    /// Spread so that some weights are large and some vanish.
    fn draw_x(&self, len: usize, stream: &Stream) -> Vec<f32> {
        stream.normal(len, 3.0)
    }

    /// Labels of every class, and rows that bound blocks carry half of the loss: the element of
    /// their label is far below the others.
    fn make_showing(&self, inputs: &mut Tensors, sizes: &Sizes, key: &InputKey) {
        let kind = |row: usize| kind_of_row(row, sizes.batch, sizes.sequence);
        let stream = key.stream("showing");
        let classes = sizes.dimension;
        // Kinds and classes do not go round together.
        let label = |row: usize| (row + row / classes) % classes;
        let labels = (0..sizes.rows()).map(|row| label(row) as i64).collect();
        inputs.insert(
            "labels".to_owned(),
            Tensor::i64(&sizes.shape()[..2], labels),
        );
        let Some(x) = inputs.get_mut("x").and_then(Tensor::as_f32_mut) else {
            return;
        };
        make_kinds(x, classes, kind, &stream);
        let edges = edges(sizes.rows(), &stream);
        let far = LOSS_OF_KINDS * sizes.rows() as f32 / edges.len() as f32;
        for row in edges {
            x[row * classes + label(row)] -= far;
        }
    }

    fn oracle(&self, asked: &mut Asked<'_>) {
        let (x, labels, sizes) = (asked.input("x"), asked.input("labels"), asked.sizes);
        let count = sizes.rows() as f64;
        // Labels are small whole numbers, exact in f64.
        let label = |row: usize| labels[row] as usize;
        if asked.is_forward {
            asked.answer_mean("out", count, |row| loss(sizes.row(&x, row), label(row)));
        }
        if asked.is_backward {
            let grad = asked.input("grad_out")[0] / count;
            asked.answer_rows("grad_x", |row, out, variances| {
                gradient(sizes.row(&x, row), (label(row), grad), out, variances)
            });
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        [0.9, 1.5]
    }
}

/// `ln sum(e^x) - x[label]` of one row, with its variance.
fn loss(x: &[f64], label: usize) -> [f64; 2] {
    let all = Exponentials::of(x);
    let (below, log) = (all.most - x[label], all.sum.ln());
    let loss = below + log;
    let of_log = all.of_sum + FUNCTION * log * log;
    [loss, of_log + below * below + loss * loss]
}

/// `dx_i = grad (share_i - [i = label])`
fn gradient(x: &[f64], (label, grad): (usize, f64), out: &mut [f64], variances: &mut [f64]) -> f64 {
    let all = Exponentials::of(x);
    let log = all.sum.ln();
    let mut common = 0.0;
    let places = out.iter_mut().zip(variances).zip(x);
    for (column, ((out, variance), &x)) in places.enumerate() {
        let share = all.share(x);
        let own = f64::from(u8::from(column == label));
        *out = grad * (share - own);
        let of_share = of_exponential(all.most - x + log) + all.of_sum + 1.0;
        *variance = (grad * share).powi(2) * of_share + 3.0 * *out * *out;
        common += (grad * share).powi(2) * all.of_sum + *out * *out;
    }
    common
}
