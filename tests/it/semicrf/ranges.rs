//! Where f32 runs out: forbidden transitions and durations, large scores, long sequences.

use super::*;

const DECOMPOSED: [&str; 2] = [
    "potentials=decomposed",
    "potentials=decomposed transition=per_duration",
];
const FORBIDDEN: f32 = -1e9;

/// A decomposed problem whose inputs are changed.
fn changed(sizes: [i64; 4], options: &str, change_inputs: impl Fn(&mut Tensors)) -> Case {
    let problem = problem(sizes, options);
    let mut inputs = problem.generate(&InputKey([42; 32]));
    change_inputs(&mut inputs);
    with_inputs(problem, inputs, format!("{sizes:?} {options}"))
}

/// The cases of the two decomposed forms and all semirings.
fn for_all(check: impl Fn(&str)) {
    for form in DECOMPOSED {
        for semiring in ["log", "max", "entropy"] {
            check(&format!("{form} semiring={semiring} lengths=random"));
        }
    }
}

/// The materialized form of a decomposed case: with equal edges, and therefore with equal
/// difficulties.
fn materialized(case: &Case, [t, k, c, b]: [usize; 4], options: &str) -> Case {
    let form = options
        .replace("potentials=decomposed", "potentials=materialized")
        .replace("transition=per_duration", "");
    // Boundaries 0..=T of the decomposed form are the boundaries of T + 1 positions.
    let problem = problem([t as i64 + 1, k as i64, c as i64, b as i64], &form);
    let read = |name: &str, at: usize| case.inputs[name].as_f32().unwrap()[at];
    let per_duration = options.contains("per_duration");
    let mut edge = vec![0.0; b * t * k * c * c];
    for (at, score) in edge.iter_mut().enumerate() {
        let (src, dst) = (at % c, at / c % c);
        let (duration, from) = (at / (c * c) % k, at / (c * c * k) % t);
        let sequence = at / (c * c * k * t);
        if duration == 0 || from + duration > t {
            continue;
        }
        let sum = |n: usize| read("cum_scores", (sequence * (t + 1) + n) * c + dst);
        let table = if per_duration { duration } else { 0 };
        *score = sum(from + duration) - sum(from)
            + read("duration_bias", duration * c + dst)
            + read("transition", (table * c + src) * c + dst);
    }
    let lengths = case.inputs["lengths"].as_i64().unwrap();
    let inputs = [
        ("edge".to_owned(), Tensor::f32([b, t, k, c, c], edge)),
        (
            "lengths".to_owned(),
            Tensor::i64([b], lengths.iter().map(|length| length + 1).collect()),
        ),
    ];
    with_inputs(problem, inputs.into(), format!("{form} {t},{k},{c},{b}"))
}

fn conforms_in_both_forms(place: Place, case: &Case, sizes: [i64; 4], options: &str) {
    case.conforms_everywhere(place);
    if !options.contains("per_duration") {
        materialized(case, sizes.map(|size| size as usize), options).conforms_everywhere(place);
    }
}

fn forbid_self_transitions(inputs: &mut Tensors, c: usize) {
    change(inputs, "transition", |at, score| {
        let (src, dst) = (at / c % c, at % c);
        if src == dst { FORBIDDEN } else { score }
    });
}

/// Label d follows label d - 1 only.
fn allow_ring_only(inputs: &mut Tensors, c: usize) {
    change(inputs, "transition", |at, score| {
        let (src, dst) = (at / c % c, at % c);
        if (src + 1) % c == dst {
            score
        } else {
            FORBIDDEN
        }
    });
}

fn forbid_short_segments(inputs: &mut Tensors, c: usize, least: usize) {
    change(inputs, "duration_bias", |at, score| {
        if at / c < least { FORBIDDEN } else { score }
    });
}

fn scale_scores(inputs: &mut Tensors, factor: f32) {
    for name in ["cum_scores", "transition", "duration_bias"] {
        change(inputs, name, |_, score| {
            if score == FORBIDDEN {
                score
            } else {
                score * factor
            }
        });
    }
}

#[test]
fn without_self_transitions() {
    no_self_transitions(Place::Cpu);
}

pub(super) fn no_self_transitions(place: Place) {
    let sizes = [90, 8, 5, 2];
    for_all(|options| {
        let case = changed(sizes, options, |inputs| forbid_self_transitions(inputs, 5));
        conforms_in_both_forms(place, &case, sizes, options);
    });
}

#[test]
fn forbidden_durations_and_labels() {
    some_durations_and_labels(Place::Cpu);
}

pub(super) fn some_durations_and_labels(place: Place) {
    let sizes = [90, 9, 4, 2];
    for_all(|options| {
        let case = changed(sizes, options, |inputs| {
            // Label 2 is never entered; label 1 lasts 3 or 7.
            change(inputs, "transition", |at, score| {
                if at % 4 == 2 { FORBIDDEN } else { score }
            });
            change(inputs, "duration_bias", |at, score| {
                let allowed = at % 4 != 1 || [3, 7].contains(&(at / 4));
                if allowed { score } else { FORBIDDEN }
            });
        });
        conforms_in_both_forms(place, &case, sizes, options);
    });
}

#[test]
fn a_ring_with_a_minimum_duration() {
    ring(Place::Cpu);
}

pub(super) fn ring(place: Place) {
    // Some boundaries can't be reached at all, and the only source of a label may lie far below the
    // best one.
    let sizes = [240, 24, 6, 2];
    for_all(|options| {
        for factor in [1.0, 20.0] {
            let case = changed(sizes, options, |inputs| {
                inputs.insert("lengths".to_owned(), Tensor::i64([2], vec![240, 163]));
                allow_ring_only(inputs, 6);
                forbid_short_segments(inputs, 6, 20);
                scale_scores(inputs, factor);
            });
            conforms_in_both_forms(place, &case, sizes, options);
        }
    });
}

#[test]
fn large_scores() {
    scores_times_20(Place::Cpu);
}

pub(super) fn scores_times_20(place: Place) {
    let sizes = [120, 12, 6, 2];
    for_all(|options| {
        let case = changed(sizes, options, |inputs| scale_scores(inputs, 20.0));
        conforms_in_both_forms(place, &case, sizes, options);
    });
}

#[test]
fn a_window_that_spans_hundreds_of_nats() {
    wide_window(Place::Cpu);
}

pub(super) fn wide_window(place: Place) {
    // The labels drift apart by 12 nats a position, and back.
    let sizes = [160, 16, 4, 2];
    for_all(|options| {
        let case = changed(sizes, options, |inputs| {
            change(inputs, "cum_scores", |at, score| {
                let (position, label) = (at / 4 % 161, at % 4);
                let drift = 12.0 * position.min(160 - position) as f32;
                score + drift * (label as f32 - 1.5)
            });
        });
        conforms_in_both_forms(place, &case, sizes, options);
    });
}

#[test]
fn long_sequences_keep_their_precision() {
    long_sequences(Place::Cpu);
}

pub(super) fn long_sequences(place: Place) {
    for semiring in ["log", "max", "entropy"] {
        let options = format!("potentials=decomposed semiring={semiring}");
        let sizes = [10_000, 100, 3, 1];
        case(sizes, &options).conforms_everywhere(place);
        let ring = changed(sizes, &options, |inputs| {
            allow_ring_only(inputs, 3);
            forbid_short_segments(inputs, 3, 20);
        });
        for backend in BACKENDS {
            ring.conforms(place, backend, Phase::Both, &CanonicalShape::default());
        }
    }
}

#[test]
fn long_materialized_sequences_keep_their_precision() {
    long_materialized_sequences(Place::Cpu);
}

pub(super) fn long_materialized_sequences(place: Place) {
    for semiring in ["log", "max", "entropy"] {
        let case = case([10_000, 20, 3, 1], &format!("semiring={semiring}"));
        for backend in BACKENDS {
            case.conforms(place, backend, Phase::Both, &CanonicalShape::default());
        }
    }
}
