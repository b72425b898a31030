//! Errors, tolerances and spreads of a judgement, by numbers that are worked out apart.

use super::super::judgement::{ErrorSums, judge, judge_by_sums};
use super::super::line::{Lines, line, scale_line};
use super::super::{AxisNoise, Noise, Spread, events_in_slice, name_of, name_of_own_error};
use super::super::{let_events_lie_anywhere, name_of_tight, sums::SliceSums};
use crate::check::{Metric, TensorCheck};
use crate::rounding::UNIT_ROUNDOFF;
use crate::tensor::{Tensor, Tensors};

/// Five elements: as a whole they are judged, and by their scale; slices have one element each.
const WHOLE: [usize; 1] = [5];

/// Sums of such a tensor: the error times the answer, squares of errors and of the answer.
fn whole(along: f64, errors: f64, sizes: f64) -> ErrorSums {
    ErrorSums::from_raw(&WHOLE, &[0.0, along, errors, sizes]).unwrap()
}

/// A spread of the whole with twelve degrees of freedom, known from four evaluations.
fn spread(mean_square: f64, scale: f64) -> Spread {
    Spread {
        probes: 4.0,
        whole: Noise {
            freedom: 12.0,
            mean_square,
        },
        scale,
        axes: Vec::new(),
    }
}

fn judged(shape: &[usize], sums: ErrorSums, spread: &Spread, own: &[f64]) -> TensorCheck {
    let elements = shape.iter().product();
    let mut expected: Tensors = [
        ("x".to_owned(), Tensor::f64(shape, vec![0.0; elements])),
        (name_of("x"), spread.clone().into_tensor()),
    ]
    .into();
    if !own.is_empty() {
        let own = Tensor::f64([own.len()], own.to_vec());
        expected.insert(name_of_own_error("x"), own);
    }
    judge_by_sums("x", shape, Some(sums), &expected)
}

fn assert_is(
    found: &TensorCheck,
    metric: Metric,
    error: f64,
    tolerance: f64,
    spreads: Option<f64>,
) {
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
    let is_right = found.metric == metric
        && is_near(found.error, error)
        && is_near(found.tolerance, tolerance)
        && match (found.spreads, spreads) {
            (Some(found), Some(spreads)) => is_near(found, spreads),
            (found, spreads) => found == spreads,
        };
    assert!(
        is_right,
        "{found:?}\n{metric:?} {error} {tolerance} {spreads:?}"
    );
    assert_eq!(found.tensor, "x");
}

#[test]
fn a_whole_tensor_is_held_against_its_noise_and_its_references_error() {
    let bound = line(12.0, 4.0, 1);
    // An error of norm 6, an answer of norm 2, noise of norm 3: relative to the answer.
    let noise = spread(9.0 / 5.0, 0.0);
    let found = judged(&WHOLE, whole(0.0, 36.0, 4.0), &noise, &[]);
    assert_is(&found, Metric::RelativeL2, 3.0, bound * 1.5, Some(2.0));
    assert_eq!(found.notices, Some(found.tolerance));
    // An answer of zeros has no scale that could be off.
    let found = judged(&WHOLE, whole(1.0, 36.0, 0.0), &noise, &[]);
    assert_is(&found, Metric::RelativeL2, 2.0, bound, Some(2.0));
    // A reference that is off by twice the noise, in the judged format.
    let own = 6.0 / 5.0_f64.sqrt();
    let far = 10.0 * bound;
    let found = judged(
        &WHOLE,
        whole(0.0, far * far, 4.0),
        &noise,
        &[far / 5.0_f64.sqrt()],
    );
    assert_is(&found, Metric::RelativeL2, far / 2.0, 1.5 * far, Some(1.0));
    // One that is less off than the noise widens nothing.
    let found = judged(&WHOLE, whole(0.0, 36.0, 4.0), &noise, &[0.1 * own]);
    assert_is(&found, Metric::RelativeL2, 3.0, bound * 1.5, Some(2.0));
    // Where the answer is zero, relative to the noise; where that is zero, too, as it is.
    let found = judged(&WHOLE, whole(0.0, 36.0, 0.0), &noise, &[]);
    assert_is(&found, Metric::RelativeL2, 2.0, bound, Some(2.0));
    let found = judged(&WHOLE, whole(0.0, 36.0, 0.0), &spread(0.0, 0.0), &[]);
    assert_is(&found, Metric::RelativeL2, 6.0, 0.0, None);
}

#[test]
fn a_common_scale_has_a_line_of_its_own() {
    let noise = spread(1e-9, 1e-3);
    // Along the answer, of norm 2, by a tenth.
    let sums = whole(0.4, 1e-12, 4.0);
    let found = judged(&WHOLE, sums.clone(), &noise, &[]);
    let tolerance = scale_line(4.0) * 1e-3 + 2.0 * UNIT_ROUNDOFF;
    let spreads = 0.1 / (1e-3 + UNIT_ROUNDOFF / 4.0);
    assert_is(&found, Metric::CommonScale, 0.1, tolerance, Some(spreads));
    // The whole's tolerance is what the check notices, whatever is furthest out.
    let whole_tolerance = line(12.0, 4.0, 1) * 5e-9_f64.sqrt() / 2.0;
    assert!((found.notices.unwrap() / whole_tolerance - 1.0).abs() < 1e-12);
    // A reference that is off by a root mean square of 0.05, where the answer has 2 / sqrt(5).
    let found = judged(&WHOLE, sums, &spread(1e-9, 1e-9), &[0.05]);
    let own = 0.05 / (2.0 / 5.0_f64.sqrt());
    assert_is(&found, Metric::CommonScale, 0.1, 3.0 * own, Some(0.1 / own));
    let exact = [1.0, 2.0, 3.0, 4.0, 5.0];
    let expected: Tensors = [
        ("x".to_owned(), Tensor::f64(WHOLE, exact.to_vec())),
        (name_of("x"), spread(1.0, 1e-9).into_tensor()),
    ]
    .into();
    let out = Tensor::f64(WHOLE, exact.iter().map(|x| 1.25 * x).collect());
    let found = judge("x", Some(&out), &expected);
    assert_eq!((found.metric, found.error), (Metric::CommonScale, 0.25));
    // An answer of zeros has no scale.
    let found = judged(&WHOLE, whole(0.0, 1e-20, 0.0), &noise, &[]);
    assert_eq!(found.metric, Metric::RelativeL2);
}

#[test]
fn a_slice_is_held_against_its_own_noise() {
    let shape = [2, 3];
    let noise = |mean_squares: [f64; 2]| Spread {
        axes: vec![
            AxisNoise {
                mean_squares: mean_squares.to_vec(),
                freedoms: vec![3.0, 2.0],
            },
            AxisNoise {
                mean_squares: vec![1.0; 3],
                freedoms: vec![2.0; 3],
            },
        ],
        ..spread(1.0, 0.0)
    };
    // The second row, of three elements and norm 5, is off by 60.
    let raw = [
        [0.0, 0.0].as_slice(),
        &[3600.0, 0.0, 3600.0, 1200.0, 1200.0, 1200.0],
        &[50.0, 25.0, 25.0, 20.0, 20.0, 10.0],
    ]
    .concat();
    let sums = || ErrorSums::from_raw(&shape, &raw).unwrap();
    let of_row = Lines::new(4.0, 2).at(2.0);
    let found = judged(&shape, sums(), &noise([1.0, 0.04]), &[]);
    let norm = 0.12_f64.sqrt();
    assert_is(
        &found,
        Metric::RelativeL2,
        12.0,
        of_row * norm / 5.0,
        Some(60.0 / norm),
    );
    // Its reference is off by a root mean square of 10 there, and by less elsewhere; or by more.
    for (own_of_whole, least) in [(9.0, 10.0), (11.0, 11.0)] {
        let own = [own_of_whole, 1.0, 10.0, 10.0, 10.0, 10.0];
        let found = judged(&shape, sums(), &noise([1.0, 0.04]), &own);
        let own = least * 3.0_f64.sqrt();
        let (tolerance, spreads) = (3.0 * own / 5.0, Some(60.0 / own));
        assert_is(&found, Metric::RelativeL2, 12.0, tolerance, spreads);
    }
    // Noise of nothing is that of a rounding of the others'.
    let found = judged(&shape, sums(), &noise([1.0, 0.0]), &[]);
    let norm = UNIT_ROUNDOFF * 3.0_f64.sqrt();
    assert!((found.spreads.unwrap() / (60.0 / norm) - 1.0).abs() < 1e-12);
}

#[test]
fn sums_of_other_shapes_or_with_wrong_elements_are_none() {
    let raw = [0.0, 1.0, 36.0, 4.0];
    assert!(ErrorSums::from_raw(&WHOLE, &raw).is_some());
    assert!(ErrorSums::from_raw(&WHOLE, &[1.0, 1.0, 36.0, 4.0]).is_none());
    assert!(ErrorSums::from_raw(&WHOLE, &[0.0, 1.0, 36.0, 4.0, 0.0]).is_none());
    assert!(ErrorSums::from_raw(&WHOLE, &raw[..3]).is_none());
    assert!(ErrorSums::from_raw(&WHOLE, &[1.0, 1.0, 36.0, 4.0, 0.0]).is_none());
}

#[test]
fn an_output_is_inexact_beyond_four_tight_spreads_and_three_errors_of_its_reference() {
    let is_inexact = |tight: f64, own: f64| {
        let expected: Tensors = [
            ("x".to_owned(), Tensor::f64(WHOLE, vec![0.0; 5])),
            (name_of("x"), spread(9.0, 0.0).into_tensor()),
            (name_of_own_error("x"), Tensor::f64([1], vec![own])),
            (name_of_tight("x"), Tensor::f64([1], vec![tight])),
        ]
        .into();
        // The root mean square of the error is 6.
        judge_by_sums("x", &WHOLE, Some(whole(0.0, 180.0, 20.0)), &expected).is_inexact
    };
    assert!(is_inexact(1.49, 1.99));
    assert!(!is_inexact(1.51, 1.99));
    assert!(!is_inexact(1.49, 2.01));
    // At a line it is not over it.
    assert!(!is_inexact(1.5, 0.0));
}

#[test]
fn lines_follow_from_rates_and_numbers_of_slices() {
    // Beyond 6.1094 and 6.4670 deviations there is one normal number in 10^9 and in 10^10.
    assert!((line(1.0, f64::INFINITY, 1) / (2.0 * 6.1094) - 1.0).abs() < 1e-4);
    assert!((line(1.0, f64::INFINITY, 10) / (2.0 * 6.4670) - 1.0).abs() < 1e-4);
    let mut lines = Lines::new(f64::INFINITY, 10);
    for freedom in [1.0, 5.3, 1000.0, 77_777.0] {
        let found = lines.at(freedom);
        let widest = line(freedom * (-0.125_f64).exp2(), f64::INFINITY, 10);
        let exact = line(freedom, f64::INFINITY, 10);
        assert!(
            (exact..=widest * (1.0 + 1e-12)).contains(&found),
            "{freedom}: {found}"
        );
    }
}

#[test]
fn events_of_slices_follow_from_how_their_sums_differ() {
    // Pairs of evaluations, in slices along one axis: of each pair a slice's squares are `a` and
    // `b`, and a slice without noise says nothing.
    let squares = |pairs: usize, a: f64, b: f64| {
        let sums = |held: f64| SliceSums {
            elements: 100,
            whole: 9.0,
            axes: vec![[vec![held; 4], vec![0.0; 2]].concat()],
        };
        let pair = (0..pairs).flat_map(|_| [sums(a), sums(b)]);
        pair.collect::<Vec<SliceSums>>()
    };
    let is_near = |found: f64, events: f64| (found / events - 1.0).abs() < 1e-12;
    // Sums that differ by half of their total: four events, less one.
    assert!(is_near(events_in_slice(&squares(4, 3.0, 1.0), 0, 1e3), 3.0));
    assert!(is_near(events_in_slice(&squares(4, 1.0, 3.0), 0, 1e3), 3.0));
    // Sums of one alone.
    assert!(is_near(events_in_slice(&squares(4, 3.0, 0.0), 0, 1e3), 1.0));
    // Clearly fewer than a third of the degrees of freedom, and than sixteen.
    assert!(events_in_slice(&squares(4, 3.0, 1.0), 0, 9.0).is_infinite());
    assert!(is_near(events_in_slice(&squares(4, 3.0, 1.0), 0, 9.1), 3.0));
    assert!(events_in_slice(&squares(4, 5.0, 3.0), 0, 44.0).is_infinite());
    assert!(is_near(
        events_in_slice(&squares(4, 5.0, 3.0), 0, 1e3),
        15.0
    ));
    assert!(events_in_slice(&squares(4, 6.0, 4.0), 0, 1e3).is_infinite());
    // Fewer than sixteen pairs tell nothing.
    assert!(events_in_slice(&squares(3, 3.0, 1.0), 0, 1e3).is_infinite());
}

#[test]
fn a_whole_has_no_more_degrees_of_freedom_than_events() {
    let sums = |held: f64| SliceSums {
        elements: 160,
        whole: 9.0,
        axes: vec![vec![held; 16]],
    };
    let mut axes = [AxisNoise {
        mean_squares: vec![0.5; 16],
        freedoms: vec![1e3; 16],
    }];
    let whole = Noise {
        freedom: 1e3,
        mean_square: 0.25,
    };
    // Three events in each of sixteen slices, any of which may hold the noise of all.
    let whole = let_events_lie_anywhere(&[sums(3.0), sums(1.0)], whole, &mut axes);
    assert!((whole.freedom - 48.0).abs() < 1e-9, "{whole:?}");
    assert_eq!(axes[0].mean_squares, [4.0; 16]);
    assert_eq!(axes[0].freedoms, [whole.freedom; 16]);
}
