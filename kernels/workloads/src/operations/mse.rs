//! `mse`

use super::prelude::*;
use sweeper_program::Role;
use sweeper_program::rounding::Order;
use sweeper_program::tensor::Dtype;

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

    fn oracle(&self, asked: &mut Asked<'_>) {
        let (x, target, sizes) = (asked.input("x"), asked.input("target"), asked.sizes);
        let count = sizes.elements() as f64;
        if asked.is_forward {
            let in_row = Order::in_row(sizes.dimension);
            asked.answer_mean("out", count, |row| {
                let places = sizes.row(&x, row).iter().zip(sizes.row(&target, row));
                let terms = places.map(|(x, target)| (x - target).powi(2));
                let sum = terms.clone().sum::<f64>();
                let squares = square_sum(terms);
                // A square is that of a difference, whose rounding counts twice, and rounded
                // itself.
                [sum, in_row.variance(sum, squares) + 5.0 * squares]
            });
        }
        if asked.is_backward {
            let grad = asked.input("grad_out")[0];
            asked.answer_rows("grad_x", |row, out| {
                let places = sizes.row(&x, row).iter().zip(sizes.row(&target, row));
                for (out, (x, target)) in out.iter_mut().zip(places) {
                    *out = grad * 2.0 / count * (x - target);
                }
                // The difference, the factor, and their product.
                3.0 * square_sum(out.iter().copied())
            });
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        [0.7, 1.1]
    }
}
