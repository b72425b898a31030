//! `softmax`

use super::exponentials::{Exponentials, of_exponential};
use super::prelude::*;
use sweeper_program::rounding;

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "softmax",
        about: "weights of each position that sum to 1",
        formula: "out = e^x / sum(e^x)\nsum over the last dimension",
        ..PLAIN
    },
    computation: |given| Ok(SizedOperation::new(&Softmax, given)),
};

struct Softmax;

impl Operation for Softmax {
    fn graph(&self, builder: &mut Builder, x: NodeId, _: &Sizes) -> Added {
        builder.graph.softmax(x)
    }

    /// Spread so that some weights are large and some vanish.
    fn draw_x(&self, len: usize, stream: &Stream) -> Vec<f32> {
        stream.normal(len, 3.0)
    }

    fn oracle(&self, asked: &mut Asked<'_>) {
        let (x, sizes) = (asked.input("x"), asked.sizes);
        if asked.is_forward {
            asked.answer_rows("out", |row, out, variances| {
                forward(sizes.row(&x, row), out, variances)
            });
        }
        if asked.is_backward {
            let grad = asked.input("grad_out");
            asked.answer_rows("grad_x", |row, out, variances| {
                backward([sizes.row(&x, row), sizes.row(&grad, row)], out, variances)
            });
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        [1.2, 2.2]
    }
}

fn forward(x: &[f64], out: &mut [f64], variances: &mut [f64]) -> f64 {
    let all = Exponentials::of(x);
    for ((out, variance), &x) in out.iter_mut().zip(variances).zip(x) {
        *out = all.share(x);
        // The sum's inverse, and a product with it.
        *variance = *out * *out * (of_exponential(all.most - x) + all.of_sum + 2.0);
    }
    all.of_sum * square_sum(out.iter().copied())
}

/// `dx_i = share_i (grad_i - sum(share grad))`
fn backward([x, grad]: [&[f64]; 2], out: &mut [f64], variances: &mut [f64]) -> f64 {
    let all = Exponentials::of(x);
    let of_sum = all.of_sum + 2.0;
    let (mut mean, mut squares, mut terms) = (0.0, 0.0, 0.0);
    for (&x, grad) in x.iter().zip(grad) {
        let term = all.share(x) * grad;
        mean += term;
        squares += term * term;
        terms += term * term * (of_exponential(all.most - x) + 1.0);
    }
    let of_mean = rounding::of_sum(x.len(), mean, squares) + terms + mean * mean * of_sum;
    let places = out.iter_mut().zip(variances).zip(x.iter().zip(grad));
    let mut common = 0.0;
    for ((out, variance), (&x, grad)) in places {
        let share = all.share(x);
        *out = share * (grad - mean);
        let of_share = of_exponential(all.most - x) + of_sum;
        *variance = *out * *out * (of_share + 2.0) + share * share * of_mean;
        common += *out * *out * of_sum + share * share * of_mean;
    }
    common
}
