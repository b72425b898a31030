//! `mse`

use super::prelude::*;
use crate::showing::edges;
use sweeper_program::Role;
use sweeper_program::inputs::InputKey;
use sweeper_program::rounding::of_sum;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "mse",
        about: "mean squared error",
        formula: "out = mean((x - target)^2)\nmean over everything",
        inputs: &[X, tensor("target", FULL, "what x should be"), GRAD_LOSS],
        outputs: &[LOSS, GRAD_X],
        ..PLAIN
    },
    computation: |given| Ok(SizedOperation::new(&Mse, given)),
};

struct Mse;

impl Operation for Mse {
    fn graph(&self, builder: &mut Builder, x: NodeId, sizes: &Sizes) -> Added {
        let graph = &mut builder.graph;
        let target = graph.input("target", &sizes.shape(), Dtype::F32, Role::Input)?;
        graph.mse(x, target)
    }

    /// Everything is one sum: its edges carry half of it.
    fn make_showing(&self, inputs: &mut Tensors, sizes: &Sizes, key: &InputKey) {
        let edges = edges(sizes.elements(), &key.stream("showing"));
        let size = (sizes.elements() as f32 / edges.len() as f32).sqrt();
        if let Some(x) = inputs.get_mut("x").and_then(Tensor::as_f32_mut) {
            for at in edges {
                x[at] = x[at].signum() * size * (1.0 + x[at].abs().min(1.0));
            }
        }
    }

    fn oracle(&self, asked: &mut Asked<'_>) {
        let (x, target, sizes) = (asked.input("x"), asked.input("target"), asked.sizes);
        let count = sizes.elements() as f64;
        if asked.is_forward {
            asked.answer_mean("out", count, |row| {
                let places = sizes.row(&x, row).iter().zip(sizes.row(&target, row));
                let terms = places.map(|(x, target)| (x - target).powi(2));
                let sum = terms.clone().sum::<f64>();
                let squares = square_sum(terms);
                // A square is that of a difference, whose rounding counts twice, and rounded
                // itself.
                [sum, of_sum(sizes.dimension, sum, squares) + 5.0 * squares]
            });
        }
        if asked.is_backward {
            let grad = asked.input("grad_out")[0];
            asked.answer_rows("grad_x", |row, out, variances| {
                let places = sizes.row(&x, row).iter().zip(sizes.row(&target, row));
                for ((out, variance), (x, target)) in out.iter_mut().zip(variances).zip(places) {
                    *out = grad * 2.0 / count * (x - target);
                    // The difference, the factor, and their product.
                    *variance = 3.0 * *out * *out;
                }
                // All rows have the factor's in common.
                square_sum(out.iter().copied())
            });
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        [0.7, 1.1]
    }
}
