//! How exact functions of one element are.

use sweeper_compiler::graph::op::Unary;
use sweeper_program::check;

use super::harness::{Case, Place};
use super::nests::{self, Build, CELLS};

/// Rows of arguments; each has another magnitude.
const ROWS: u64 = 24;
const COLUMNS: u64 = 1009;

/// `f(x + shift)` of x in [-1, 1) times 2^row / 2^12, beside the argument itself.
pub(super) fn case(unary: Unary) -> Case {
    use sweeper_compiler::graph::op::Binary::{Add, Mul};
    use sweeper_compiler::nest::Value;
    let mut b = Build::new("function", 1);
    let x = b.load(&CELLS);
    let row = b.add(Value::Row(0));
    let row = b.add(Value::Cast(sweeper_program::Dtype::F32, row));
    let (ln_2, least) = (b.constant(std::f64::consts::LN_2), b.constant(-12.0));
    let power = b.binary(Add, row, least);
    let power = b.binary(Mul, power, ln_2);
    let magnitude = b.unary(Unary::Exp, power);
    let x = b.binary(Mul, x, magnitude);
    let x = match unary {
        Unary::Ln | Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => b.unary(Unary::Abs, x),
        _ => x,
    };
    let y = b.unary(unary, x);
    b.store(&CELLS, x);
    b.store(&CELLS, y);
    Case::new(b.0, &[ROWS], COLUMNS)
}

/// Errors of at most 4e-7 relatively, or 1.5e-7 of the greatest value of functions that are
/// bounded.
pub(super) fn check(unary: Unary, case: &Case, place: Place) {
    let outputs = case.outputs(place);
    let [x, y] = ["out1", "out2"].map(|name| check::elements(&outputs[name]).collect::<Vec<_>>());
    let bounded = match unary {
        Unary::Tanh | Unary::Erf | Unary::Sigmoid | Unary::Sin | Unary::Cos => 1.5e-7,
        // Less than the least normal number is 0.
        Unary::Exp => 1.2e-38,
        Unary::Ln => 1.5e-7,
        _ => 0.0,
    };
    for (x, y) in x.into_iter().zip(y) {
        let expected = unary.value(x);
        let overflows = expected.abs() > f64::from(f32::MAX) && y.is_infinite();
        let is_close = (y - expected).abs() <= 4e-7 * expected.abs() + bounded;
        assert!(
            is_close || overflows || y == expected,
            "{} {x}: {y}, not {expected} {place:?}",
            unary.name()
        );
    }
}

/// Sums of a row's e^(x - greatest) without another use: the error by the exponents is not more
/// than the mean of exponents, which is at most the logarithm of their number.
pub(super) fn check_sums_of_exponentials(place: Place) {
    for magnitude in [1.0, 16.0, 64.0] {
        let case = Case::new(nests::sums_of_exponentials(magnitude), &[ROWS], COLUMNS);
        let outputs = case.outputs(place);
        let [greatest, sum] =
            ["out1", "out2"].map(|name| check::elements(&outputs[name]).collect::<Vec<_>>());
        let scaled: Vec<f64> = check::elements(&outputs["out3"]).collect();
        for (row, (greatest, sum)) in greatest.iter().zip(sum).enumerate() {
            let row = &scaled[row * COLUMNS as usize..][..COLUMNS as usize];
            let expected: f64 = row.iter().map(|x| (x - greatest).exp()).sum();
            // Of e^x, of exponents twice, of differences, and of partial sums.
            let unit = f64::from(f32::EPSILON) / 2.0;
            let most = unit * (4.0 + 3.0 * (COLUMNS as f64).ln() + 64.0 / 8.0);
            let error = (sum / expected - 1.0).abs();
            assert!(
                error <= most,
                "{magnitude}: {sum}, not {expected} {place:?}"
            );
        }
    }
}
