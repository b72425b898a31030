//! How near to the right answer an operation's result has to be.
//!
//! Every result is measured by its relative L2 error: one wrong element among 10^8 shows, at 1e-4. The
//! tolerance follows from how f32 rounds, unit `u = 2^-24`:
//!
//! * a function of elements is off by a few units of the terms that it is made of: 8 `u`, or 16 `u`
//!   where one of them is an error function, a hyperbolic tangent or a logistic function;
//! * a sum of n terms, added up by 8 lanes or threads at least and their 8 sums after them, is off by
//!   `3 u sqrt(n / 8 + 8)` of the greatest sum on the way. Roundings are as good as independent, so
//!   errors grow with the square root of their number (Higham and Mary, "A new approach to probabilistic
//!   rounding error analysis", 2019); 3 is three deviations even if each rounding were the worst one
//!   possible, and a norm is of many sums;
//! * both are relative to the *weight* of a result, the L2 norm of the sizes of its terms before they
//!   cancel, which the oracle gives with it. In a row of two nearly equal elements, normalisation
//!   magnifies roundings of the mean three hundred times: the weight says so, and a tensor without such
//!   rows is not allowed more for it.

use super::oracle::{norm_of, weight_of};
use super::sizes::{Kind, Sizes};
use crate::check::{self, Check, Metric, TensorCheck};
use crate::tensor::Tensors;
use crate::workload::TensorSpec;

/// Half of the distance of f32 numbers around 1.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// The rounding of a sum of `terms`, relative to the greatest sum on the way.
fn sum(terms: usize) -> f64 {
    3.0 * UNIT * (terms as f64 / 8.0 + 8.0).sqrt()
}

/// The rounding of a result relative to its weight.
fn rounding(kind: Kind, sizes: &Sizes, name: &str) -> f64 {
    let (row, rows) = (sum(sizes.dimension), sum(sizes.rows()));
    let elementwise = 8.0 * UNIT;
    match (kind, name) {
        (Kind::LayerNorm | Kind::RmsNorm, "grad_gamma" | "grad_beta") => elementwise + row + rows,
        (Kind::LayerNorm | Kind::RmsNorm | Kind::Softmax, _) => elementwise + row,
        (Kind::GeluErf | Kind::GeluTanh | Kind::Swish, _) => 2.0 * elementwise,
        (Kind::Mse | Kind::CrossEntropy, "out") => elementwise + row + rows,
        (Kind::Mse, _) => elementwise,
        (Kind::CrossEntropy, _) => elementwise + row,
    }
}

/// Judges the outputs that `specs` lists.
pub(super) fn check(
    kind: Kind,
    sizes: &Sizes,
    outputs: &Tensors,
    expected: &Tensors,
    specs: &[TensorSpec],
) -> Check {
    let judge = |spec: &TensorSpec| -> TensorCheck {
        let answer = &expected[&spec.name];
        let norm = norm_of(&check::as_f64(answer));
        let weight = check::as_f64(&expected[&weight_of(&spec.name)])[0].max(norm);
        let scale = if norm > 0.0 { norm } else { 1.0 };
        let tolerance = rounding(kind, sizes, &spec.name) * weight / scale;
        let out = outputs.get(&spec.name);
        check::compare(&spec.name, out, answer, Metric::RelativeL2, tolerance)
    };
    Check {
        tensors: specs.iter().map(judge).collect(),
    }
}
