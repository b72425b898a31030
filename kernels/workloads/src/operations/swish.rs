//! `swish`

use super::elementwise::{At, Elementwise, logistic};
use super::prelude::*;
use sweeper_compiler::graph::Graph;
use sweeper_program::rounding::FUNCTION;

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "swish",
        about: "x times the logistic function of x",
        formula: "out = x / (1 + e^-x)",
        ..PLAIN
    },
    computation: |given| Ok(SizedOperation::new(&SWISH, given)),
};

static SWISH: Elementwise = Elementwise {
    graph: Graph::swish,
    at: swish,
    oracle_cost: [1.4, 1.8],
};

/// The gate is an exponential, whose error grows with its argument where the argument is rounded.
fn swish(x: f64) -> At {
    let gate = logistic(x);
    let rest = logistic(-x);
    // The exponential is `rest` of the sum of which the gate is the inverse.
    let relative = rest * rest * (2.0 * x * x + FUNCTION) + 2.0;
    let of_gate = gate * gate * relative;
    // One less the gate is as exact as one, where the gate is not one in f32.
    let steep = if x < 20.0 { 1.0 } else { 0.0 };
    let part = x * gate * rest;
    let of_rest = steep * of_gate + rest * rest;
    let of_part = (x * gate).powi(2) * of_rest + part * part * (relative + 2.0);
    At::product(x, gate, of_gate, part, of_part)
}
