//! Operations that are a function of one element.

use super::oracle::Asked;
use super::sized::Operation;
use super::sizes::Sizes;
use crate::graph_builder::{Added, Builder};
use sweeper_compiler::graph::{Graph, NodeId};

/// A function of one element.
pub(super) struct Elementwise {
    /// Adds it to a graph.
    pub(super) graph: fn(&mut Graph, NodeId) -> Added,
    /// The oracle at one place.
    pub(super) at: fn(f64) -> At,
    /// As [`Operation::oracle_cost`].
    pub(super) oracle_cost: [f64; 2],
}

/// A function's value and slope at one place, and the variances of what f32 makes of them, in
/// squares of [`sweeper_program::rounding::DEVIATION`].
pub(super) struct At {
    pub(super) value: f64,
    pub(super) slope: f64,
    pub(super) of_value: f64,
    pub(super) of_slope: f64,
}

impl At {
    /// `x` times `share`, which has a variance, and the slope `share + part`, a sum.
    pub(super) fn product(x: f64, share: f64, of_share: f64, part: f64, of_part: f64) -> At {
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

/// `1 / (1 + e^-x)`
pub(super) fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Operation for Elementwise {
    fn graph(&self, builder: &mut Builder, x: NodeId, _: &Sizes) -> Added {
        (self.graph)(&mut builder.graph, x)
    }

    fn oracle(&self, asked: &mut Asked<'_>) {
        let (x, sizes) = (asked.input("x"), asked.sizes);
        if asked.is_forward {
            asked.answer_rows("out", |row, out, variances| {
                let places = out.iter_mut().zip(variances).zip(sizes.row(&x, row));
                for ((out, variance), &x) in places {
                    let found = (self.at)(x);
                    (*out, *variance) = (found.value, found.of_value);
                }
                0.0
            });
        }
        if asked.is_backward {
            let grad = asked.input("grad_out");
            asked.answer_rows("grad_x", |row, out, variances| {
                let places = sizes.row(&x, row).iter().zip(sizes.row(&grad, row));
                for ((out, variance), (&x, grad)) in out.iter_mut().zip(variances).zip(places) {
                    let found = (self.at)(x);
                    *out = grad * found.slope;
                    *variance = grad * grad * found.of_slope + *out * *out;
                }
                0.0
            });
        }
    }

    fn oracle_cost(&self) -> [f64; 2] {
        self.oracle_cost
    }
}
