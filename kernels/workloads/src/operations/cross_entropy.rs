//! `cross_entropy`

use super::exponentials::{Exponentials, of_exponential};
use super::prelude::*;
use sweeper_program::Role;
use sweeper_program::rounding::FUNCTION;
use sweeper_program::tensor::Dtype;
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
            asked.answer_rows("grad_x", |row, out| {
                gradient(sizes.row(&x, row), label(row), grad, out)
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
fn gradient(x: &[f64], label: usize, grad: f64, out: &mut [f64]) -> f64 {
    let all = Exponentials::of(x);
    let log = all.sum.ln();
    let mut variance = 0.0;
    for (column, (out, &x)) in out.iter_mut().zip(x).enumerate() {
        let share = all.share(x);
        let own = f64::from(u8::from(column == label));
        *out = grad * (share - own);
        let of_share = of_exponential(all.most - x + log) + all.of_sum + 1.0;
        variance += (grad * share).powi(2) * of_share + 3.0 * *out * *out;
    }
    variance
}
