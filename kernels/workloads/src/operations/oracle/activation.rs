//! Functions of one element: `gelu` and `swish`.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, PI};

use super::Asked;
use crate::operations::sizes::Kind;
use sweeper_program::rounding::FUNCTION;

/// A function's value and slope at one place, and the variances of what f32 makes of them.
struct At {
    value: f64,
    slope: f64,
    of_value: f64,
    of_slope: f64,
}

impl At {
    /// `x` times `share`, which has a variance, and the slope `share + part`, a sum.
    fn product(x: f64, share: f64, of_share: f64, part: f64, of_part: f64) -> At {
        let (value, slope) = (x * share, share + part);
        At {
            value,
            slope,
            // Two products, of which a half is one.
            of_value: x * x * of_share + 2.0 * value * value,
            of_slope: of_share + of_part + slope * slope,
        }
    }
}

/// `x Phi(x)` with the normal distribution's function, by the complementary error function.
fn gelu_erf(x: f64) -> At {
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
fn gelu_tanh(x: f64) -> At {
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

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub(super) fn answer(asked: &mut Asked<'_>, kind: Kind, is_forward: bool, is_backward: bool) {
    let function = match kind {
        Kind::GeluErf => gelu_erf,
        Kind::GeluTanh => gelu_tanh,
        _ => swish,
    };
    let x = asked.input("x");
    let dimension = asked.sizes.dimension;
    if is_forward {
        asked.answer_rows("out", |at, out| {
            let mut variance = 0.0;
            for (out, &x) in out.iter_mut().zip(&x[at * dimension..]) {
                let found = function(x);
                *out = found.value;
                variance += found.of_value;
            }
            variance
        });
    }
    if is_backward {
        let grad = asked.input("grad_out");
        asked.answer_rows("grad_x", |at, out| {
            let mut variance = 0.0;
            let places = x[at * dimension..].iter().zip(&grad[at * dimension..]);
            for (out, (&x, grad)) in out.iter_mut().zip(places) {
                let found = function(x);
                *out = grad * found.slope;
                variance += grad * grad * found.of_slope + *out * *out;
            }
            variance
        });
    }
}
