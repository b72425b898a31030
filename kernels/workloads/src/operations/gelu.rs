//! `gelu`, in two forms.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, PI};

use super::elementwise::{At, Elementwise, logistic};
use super::prelude::*;
use sweeper_compiler::graph::Graph;
use sweeper_program::rounding::FUNCTION;
use sweeper_program::workload::word;

pub(crate) static WORKLOAD: GraphWorkload<SizedOperation> = GraphWorkload {
    info: &WorkloadInfo {
        name: "gelu",
        about: "x times the normal distribution's function of x",
        formula: "erf:  out = x (1 + erf(x / sqrt(2))) / 2\n\
                  tanh: out = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
        parameters: &[
            BATCH,
            SEQUENCE,
            DIMENSION,
            word(
                "form",
                &[("erf", &["exact", "none"]), ("tanh", &["approximate"])],
                "erf",
                "gelu by the error function, or the approximation by the hyperbolic tangent",
            ),
        ],
        ..PLAIN
    },
    computation: |given| {
        let form = match given.word("form") {
            "tanh" => &TANH,
            _ => &ERF,
        };
        Ok(SizedOperation::new(form, given))
    },
};

static ERF: Elementwise = Elementwise {
    graph: Graph::gelu_erf,
    at: by_erf,
    oracle_cost: [1.9, 2.2],
};

static TANH: Elementwise = Elementwise {
    graph: Graph::gelu_tanh,
    at: by_tanh,
    oracle_cost: [1.5, 6.0],
};

/// `x Phi(x)` with the normal distribution's function, by the complementary error function.
fn by_erf(x: f64) -> At {
    let below = 0.5 * libm::erfc(-x * FRAC_1_SQRT_2);
    let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
    let part = x * density;
    // Half of 1 and an error function: that of a rounded argument, rounded, and the sum.
    let erf = 2.0 * below - 1.0;
    let of_below = 0.25 * FUNCTION * erf * erf + part * part + below * below;
    // An exponential, whose error grows with its argument where the argument is rounded.
    let of_part = part * part * (2.0 * (0.5 * x * x).powi(2) + FUNCTION + 2.0);
    At::product(x, below, of_below, part, of_part)
}

/// `x / (1 + e^(-2u))` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`: the same as `x (1 + tanh u) /
/// 2`.
fn by_tanh(x: f64) -> At {
    let factor = FRAC_2_PI.sqrt();
    let u = factor * (x + 0.044_715 * x.powi(3));
    let below = logistic(2.0 * u);
    let u_slope = factor * (1.0 + 3.0 * 0.044_715 * x * x);
    let steepness = 4.0 * below * logistic(-2.0 * u);
    let part = 0.5 * x * steepness * u_slope;
    // The hyperbolic tangent: of an argument that four operations round, and rounded itself.
    let tanh = 2.0 * below - 1.0;
    let of_tanh = FUNCTION * tanh * tanh + 4.0 * (u * steepness).powi(2);
    let of_below = 0.25 * of_tanh + below * below;
    // One less the square of a tangent is as exact as one, where the tangent is not one in f32.
    let steep = if u.abs() < 10.0 { 1.0 } else { 0.0 };
    let of_steepness = steep * (4.0 * tanh * tanh * of_tanh + tanh.powi(4)) + steepness * steepness;
    let of_part = (0.5 * x * u_slope).powi(2) * of_steepness + 4.0 * part * part;
    At::product(x, below, of_below, part, of_part)
}
