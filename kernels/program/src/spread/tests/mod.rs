//! Noise in slices, and faults that do not hide in it.

use super::*;
use crate::check::{Metric, TensorCheck};
use crate::inputs::{InputKey, Stream};

mod judgement;

const SHAPE: [usize; 3] = [4, 30, 16];

fn stream(name: &str) -> Stream {
    InputKey([3; 32]).stream(name)
}

/// Values, and evaluations whose elements are off independently by `deviation`.
fn case(shape: &[usize], probes: usize, deviation: f64) -> (Vec<f64>, Vec<Vec<f64>>) {
    let len = shape.iter().product();
    let exact: Vec<f64> = stream("exact")
        .normal(len, 1.0)
        .iter()
        .map(|&x| x.into())
        .collect();
    let probe = |at: usize| {
        let noise = stream(&format!("probe {at}")).normal(len, 1.0);
        let noisy = exact.iter().zip(noise);
        noisy
            .map(|(exact, noise)| exact + deviation * f64::from(noise))
            .collect()
    };
    let probes = (0..probes).map(probe).collect();
    (exact, probes)
}

fn answers(shape: &[usize], exact: &[f64], spread: Spread) -> Tensors {
    [
        ("x".to_owned(), Tensor::f64(shape, exact.to_vec())),
        (name_of("x"), spread.into_tensor()),
    ]
    .into()
}

fn judged(expected: &Tensors, shape: &[usize], out: Vec<f64>) -> TensorCheck {
    judge("x", Some(&Tensor::f64(shape, out)), expected)
}

/// Answers hold tensors beside outputs under names that no two share.
#[test]
fn names_differ_and_tell_their_output() {
    let all = |output: &str| {
        [
            output.to_owned(),
            name_of(output),
            name_of_own_error(output),
            name_of_probe(output, 0),
            name_of_probe(output, 1),
            name_of_raw_sums(output),
            name_of_error_sums(output),
            name_of_tight(output),
        ]
    };
    let names: std::collections::BTreeSet<String> =
        ["x", "y"].iter().flat_map(|it| all(it)).collect();
    assert_eq!(names.len(), 16, "{names:?}");
    let spreads = names.iter().filter(|name| is_name_of_spread(name));
    assert_eq!(
        spreads.cloned().collect::<Vec<_>>(),
        [name_of("x"), name_of("y")]
    );
}

#[test]
fn slices_have_several_elements_and_are_several() {
    assert!(is_sliced(2, 4) && is_sliced(1 << 16, 1 << 17));
    assert!(!is_sliced(1, 4) && !is_sliced(4, 7) && !is_sliced((1 << 16) + 1, 1 << 20));
}

/// What the format can't hold has no noise, and neither has what an evaluation makes infinite.
#[test]
fn values_that_a_format_lacks_have_no_noise() {
    let exact = [1e300, 1.0, 2.0, 4.0];
    let probes = [[1.5e300, f64::INFINITY, 2.5, 4.0]; 2];
    let spread = Spread::from_probes(Dtype::F32, &[4], &exact, &probes);
    assert!(
        (spread.whole.mean_square - 0.25 / 4.0).abs() < 1e-15,
        "{spread:?}"
    );
}

#[test]
fn noise_is_found_in_the_whole_and_in_slices() {
    let (exact, probes) = case(&SHAPE, 4, 1e-3);
    let spread = Spread::from_probes(Dtype::F32, &SHAPE, &exact, &probes);
    let close = |square: f64, by: f64| (square / 1e-6 - 1.0).abs() < by;
    assert!(close(spread.whole.mean_square, 0.1), "{spread:?}");
    assert!(spread.whole.freedom > 40.0, "{spread:?}");
    let extents: Vec<usize> = spread
        .axes
        .iter()
        .map(|axis| axis.mean_squares.len())
        .collect();
    assert_eq!(extents, SHAPE);
    for axis in &spread.axes {
        assert!(
            axis.mean_squares.iter().all(|&square| close(square, 0.6)),
            "{axis:?}"
        );
    }
    let tensor = spread.clone().into_tensor();
    assert_eq!(Spread::from_tensor(&SHAPE, &tensor), Some(spread));
    assert_eq!(Spread::from_tensor(&[4, 30], &tensor), None);
}

#[test]
fn errors_that_elements_share_have_one_degree_of_freedom() {
    let (exact, _) = case(&SHAPE, 0, 0.0);
    let probe = |by: f64| exact.iter().map(|x| x * (1.0 + by)).collect::<Vec<f64>>();
    let probes = [1e-6, -2e-6, 1.5e-6, 0.5e-6].map(probe);
    let spread = Spread::from_probes(Dtype::F32, &SHAPE, &exact, &probes);
    assert!(spread.whole.freedom < 1.1, "{spread:?}");
    assert!((1e-6..2e-6).contains(&spread.scale), "{spread:?}");
}

/// Of three rows the first has noise at right angles, the second the same noise twice, and the
/// third none: that one tells nothing of the others.
#[test]
fn degrees_of_freedom_follow_from_cosines() {
    let exact = [0.0; 12];
    let probes = [
        [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        [1.0, -1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    ];
    let spread = Spread::from_probes(Dtype::F32, &[3, 4], &exact, &probes);
    let expected = [1.0 / (0.5 + 1.0 / 48.0), 1.0, 1.0];
    for (found, expected) in spread.axes[0].freedoms.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{spread:?}");
    }
    assert_eq!(spread.axes[0].mean_squares, [0.5, 0.25, 0.0]);
    assert_eq!((spread.whole.mean_square, spread.scale), (0.25, 0.0));
    let none = Spread::from_probes(Dtype::F32, &[3, 4], &exact, &[exact, exact]);
    assert_eq!(none.axes[0].freedoms, [1.0; 3]);
}

/// A few percent of an honest error, all of an output's noise, and gross faults of single slices.
#[test]
fn a_fault_does_not_hide_in_other_slices() {
    let (exact, probes) = case(&SHAPE, 5, 1e-6);
    let (honest, probes) = (&probes[4], &probes[..4]);
    let expected = answers(
        &SHAPE,
        &exact,
        Spread::from_probes(Dtype::F32, &SHAPE, &exact, probes),
    );
    let check = judged(&expected, &SHAPE, honest.clone());
    assert!(check.passed() && check.spreads.unwrap() < 2.0, "{check:?}");
    // An element of the first row, one channel of it, and all elements by a little.
    let mut one = honest.clone();
    one[5] += 1e-4;
    assert!(!judged(&expected, &SHAPE, one).passed());
    let mut channel = honest.clone();
    channel
        .iter_mut()
        .skip(7)
        .step_by(16)
        .for_each(|x| *x += 4e-6);
    assert!(!judged(&expected, &SHAPE, channel).passed());
    let scaled = honest.iter().map(|x| x * (1.0 + 2e-6)).collect();
    let check = judged(&expected, &SHAPE, scaled);
    assert!(
        !check.passed() && check.metric == Metric::CommonScale,
        "{check:?}"
    );
}

/// A sign turns in few elements of a slice, in others each time: a slice without any in two
/// evaluations may have one in the next, and none may have more than all.
#[test]
fn noise_of_few_elements_may_lie_in_any_slice() {
    let shape = [64, 512];
    let (exact, mut evaluations) = case(&shape, 12, 1e-7);
    for (number, evaluation) in evaluations.iter_mut().enumerate() {
        let places = stream(&format!("signs {number}")).integers(100, 0, 64 * 512 - 1);
        for at in places {
            evaluation[at as usize] += 1e-3;
        }
    }
    let (probes, honest) = evaluations.split_at(2);
    let spread = Spread::from_probes(Dtype::F32, &shape, &exact, probes);
    assert_eq!(
        spread.axes[0].mean_squares,
        [64.0 * spread.whole.mean_square; 64]
    );
    assert!(spread.whole.freedom > 40.0, "{spread:?}");
    let expected = answers(&shape, &exact, spread);
    for out in honest {
        let check = judged(&expected, &shape, out.clone());
        assert!(check.passed(), "{check:?}");
    }
    let mut row = honest[0].clone();
    row[512..1024].iter_mut().for_each(|x| *x += 5e-3);
    assert!(!judged(&expected, &shape, row).passed());
}

#[test]
fn a_reference_that_is_itself_less_exact_widens_the_line() {
    let (exact, probes) = case(&SHAPE, 4, 1e-6);
    let mut expected = answers(
        &SHAPE,
        &exact,
        Spread::from_probes(Dtype::F32, &SHAPE, &exact, &probes),
    );
    let out: Vec<f64> = exact
        .iter()
        .zip(&probes[0])
        .map(|(x, y)| x + 10.0 * (y - x))
        .collect();
    assert!(!judged(&expected, &SHAPE, out.clone()).passed());
    expected.insert(name_of_own_error("x"), Tensor::f64([], vec![5e-6]));
    assert!(judged(&expected, &SHAPE, out).passed());
}

/// A channel in which the reference itself is as far out may be so, and no other.
#[test]
fn a_reference_may_be_less_exact_in_one_slice() {
    let (exact, probes) = case(&SHAPE, 4, 1e-6);
    let spread = Spread::from_probes(Dtype::F32, &SHAPE, &exact, &probes);
    let mut expected = answers(&SHAPE, &exact, spread);
    let off_in = |channel: usize| {
        let mut out = exact.clone();
        out.iter_mut()
            .skip(channel)
            .step_by(16)
            .for_each(|x| *x += 4e-6);
        out
    };
    let mut own = SliceSums::zero(&SHAPE);
    own.whole = 1e-6;
    own.axes[2][7] = 4e-6;
    let roots = [vec![own.whole], own.axes.concat()].concat();
    expected.insert(name_of_own_error("x"), Tensor::f64([roots.len()], roots));
    let check = judged(&expected, &SHAPE, off_in(7));
    assert!(check.passed() && check.spreads.unwrap() < 1.1, "{check:?}");
    assert!(!judged(&expected, &SHAPE, off_in(8)).passed());
}

#[test]
fn values_that_are_not_finite_agree_or_are_wrong() {
    let exact = vec![1.0, f64::INFINITY, f64::NAN, -2.0];
    let noisy = |by: f64| exact.iter().map(|x| x * (1.0 + by)).collect::<Vec<f64>>();
    let probes = [noisy(1e-7), noisy(-1e-7)];
    let finite = |values: &[f64]| {
        values
            .iter()
            .map(|x| if x.is_finite() { *x } else { 0.0 })
            .collect()
    };
    let probes: Vec<Vec<f64>> = probes.iter().map(|probe| finite(probe)).collect();
    let spread = Spread::from_probes(Dtype::F32, &[4], &finite(&exact), &probes);
    let expected = answers(&[4], &exact, spread);
    assert!(judged(&expected, &[4], exact.clone()).passed());
    for (at, wrong) in [
        (0, f64::NAN),
        (1, 1e30),
        (1, f64::NEG_INFINITY),
        (2, 0.0),
        (3, f64::INFINITY),
    ] {
        let mut out = exact.clone();
        out[at] = wrong;
        assert!(!judged(&expected, &[4], out).passed(), "{at} {wrong}");
    }
    assert!(!judge("x", None, &expected).passed());
    let misshapen = Tensor::f64([2, 2], exact);
    assert!(!judge("x", Some(&misshapen), &expected).passed());
}

#[test]
fn sums_of_devices_give_the_spread_of_the_host() {
    let (exact, probes) = case(&SHAPE, 4, 1e-3);
    let difference = |probe: usize, at: usize| probes[probe][at] - exact[at];
    let mut raw = vec![];
    let push = |raw: &mut Vec<f64>, number: &(dyn Fn(usize) -> f64 + Sync)| {
        let sums = SliceSums::from_elements(&SHAPE, number);
        raw.push(sums.whole);
        sums.axes.into_iter().for_each(|sums| raw.extend(sums));
    };
    for probe in 0..4 {
        push(&mut raw, &|at| difference(probe, at).powi(2));
        raw.push(
            (0..exact.len())
                .map(|at| difference(probe, at) * exact[at])
                .sum(),
        );
        if probe % 2 == 1 {
            push(&mut raw, &|at| {
                difference(probe - 1, at) * difference(probe, at)
            });
        }
    }
    raw.push(exact.iter().map(|x| x * x).sum());
    assert_eq!(raw.len(), raw_sums_length(&SHAPE, 4));
    let found = Spread::from_raw_sums(&SHAPE, &raw).unwrap();
    let expected = Spread::from_probes(Dtype::F32, &SHAPE, &exact, &probes);
    let close = |found: f64, expected: f64| (found / expected - 1.0).abs() < 1e-9;
    assert!(close(found.whole.mean_square, expected.whole.mean_square));
    assert!(close(found.scale, expected.scale));
    for (found, expected) in found.axes.iter().zip(&expected.axes) {
        let places = found.freedoms.iter().zip(&expected.freedoms);
        assert!(
            places
                .into_iter()
                .all(|(found, expected)| close(*found, *expected))
        );
    }
    assert_eq!(Spread::from_raw_sums(&SHAPE, &raw[1..]), None);
}

#[test]
fn evaluations_among_answers_become_a_spread() {
    let (exact, probes) = case(&SHAPE, 2, 1e-6);
    let spread = Spread::from_probes(Dtype::F32, &SHAPE, &exact, &probes);
    let tensor = |values: &[f64]| Tensor::f64(SHAPE, values.to_vec());
    let alone = Tensors::from([("x".to_owned(), tensor(&exact))]);
    let mut found = alone.clone();
    finish_probes(&mut found, "x", Dtype::F32);
    finish_sums(&mut found, "x", &SHAPE);
    assert!(found.keys().eq(alone.keys()), "there are no evaluations");
    for (number, probe) in probes.iter().enumerate() {
        found.insert(name_of_probe("x", number), tensor(probe));
    }
    finish_probes(&mut found, "x", Dtype::F32);
    assert_eq!(found.len(), 2);
    let of_x = |found: &Tensors| Spread::from_tensor(&SHAPE, &found[&name_of("x")]);
    assert_eq!(of_x(&found), Some(spread));
    let zeros = vec![0.0; raw_sums_length(&SHAPE, 2)];
    let mut found = alone;
    found.insert(name_of_raw_sums("x"), Tensor::f64([zeros.len()], zeros));
    finish_sums(&mut found, "x", &SHAPE);
    assert_eq!(found.len(), 2);
    assert_eq!(
        of_x(&found).map(|spread| spread.whole.mean_square),
        Some(0.0)
    );
}
