//! Functions of one element: `gelu` and `swish`.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, PI};

use super::Asked;
use crate::operations::sizes::Kind;

/// A function's value and slope at one place, and the sizes of the terms that each is made of.
struct At {
    value: f64,
    slope: f64,
    value_terms: f64,
    slope_terms: f64,
}

/// `x Phi(x)` with the normal distribution's function, by the complementary error function.
fn gelu_erf(x: f64) -> At {
    let below = 0.5 * libm::erfc(-x * FRAC_1_SQRT_2);
    let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
    At {
        value: x * below,
        slope: below + x * density,
        value_terms: x.abs(),
        slope_terms: 1.0 + x.abs() * density * (1.0 + x * x),
    }
}

/// `x / (1 + e^(-2u))` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`: the same as `x (1 + tanh u) / 2`.
fn gelu_tanh(x: f64) -> At {
    let factor = FRAC_2_PI.sqrt();
    let u = factor * (x + 0.044_715 * x.powi(3));
    let below = logistic(2.0 * u);
    let u_slope = factor * (1.0 + 3.0 * 0.044_715 * x * x);
    let part = 2.0 * x * below * logistic(-2.0 * u) * u_slope;
    // One less the square of a tangent is as exact as one, where the tangent is not one in f32.
    let steep = if u.abs() < 10.0 { 1.0 } else { 0.0 };
    At {
        value: x * below,
        slope: below + part,
        value_terms: x.abs(),
        slope_terms: 1.0 + (x * u_slope).abs() * steep,
    }
}

/// The gate is an exponential, whose error grows with its argument where the argument is rounded.
fn swish(x: f64) -> At {
    let gate = logistic(x);
    let rest = logistic(-x);
    let growth = 1.0 + x.abs() * rest;
    // One less the gate is as exact as one, where the gate is not one in f32.
    let steep = if x < 20.0 { 1.0 } else { 0.0 };
    At {
        value: x * gate,
        slope: gate + x * gate * rest,
        value_terms: (x * gate).abs() * growth,
        slope_terms: gate * growth + (x * gate).abs() * (rest * growth + steep),
    }
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
            let mut square = 0.0;
            for (out, &x) in out.iter_mut().zip(&x[at * dimension..]) {
                let found = function(x);
                *out = found.value;
                square += found.value_terms.powi(2);
            }
            square
        });
    }
    if is_backward {
        let grad = asked.input("grad_out");
        asked.answer_rows("grad_x", |at, out| {
            let mut square = 0.0;
            let places = x[at * dimension..].iter().zip(&grad[at * dimension..]);
            for (out, (&x, grad)) in out.iter_mut().zip(places) {
                let found = function(x);
                *out = grad * found.slope;
                square += (grad * found.slope_terms).powi(2);
            }
            square
        });
    }
}
