//! Is a gradient the indicator of a best segmentation?
//!
//! Equals are common (a sequence has many segmentations), so the answer is not compared with the
//! oracle's: it must be legal, and its score as good. Scores are linear in the indicator, so the
//! score of a marked segmentation is the product of scores and gradient.

use std::borrow::Cow;

use rayon::prelude::*;

use super::tolerance_of_scores;
use crate::semicrf::sizes::Sizes;
use sweeper_program::check::{as_f64, elements};
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::TensorSpec;

/// The greatest difference of the marked segmentations' scores from the best ones, infinite if the
/// marks are not a segmentation, and the greatest that is right; both relative to the greatest of
/// the best scores' sizes, and of 1.
pub(super) fn error(
    sizes: &Sizes,
    inputs: &Tensors,
    outputs: &Tensors,
    expected: &Tensors,
) -> (f64, f64) {
    let tolerance = tolerance_of_scores(sizes, expected);
    let ends: Vec<usize> = elements(&inputs["lengths"])
        .map(|length| sizes.end(length as usize))
        .collect();
    fn read<'t>(tensors: &'t Tensors, specs: &[TensorSpec]) -> Vec<Cow<'t, [f64]>> {
        let tensors = specs.iter().map(|spec| as_f64(&tensors[&spec.name]));
        tensors.collect()
    }
    let scores = read(inputs, &sizes.score_specs(""));
    let specs = sizes.score_specs("grad_");
    let (found, best) = (read(outputs, &specs), read(expected, &specs));
    if let ([edge], [found], [best]) = (&scores[..], &found[..], &best[..]) {
        if !marks_materialized(sizes, found, &ends) {
            return (f64::INFINITY, tolerance);
        }
        let row = edge.len() / sizes.b;
        let parts = edge.par_chunks(row).zip(found.par_chunks(row));
        let scores = parts.zip(best.par_chunks(row));
        let scores = scores.map(|((edge, found), best)| {
            let best = product(edge, best);
            ((product(edge, found) - best).abs(), best.abs())
        });
        let greatest = |(a, b): (f64, f64), (c, d): (f64, f64)| (a.max(c), b.max(d));
        let (error, scale) = scores.reduce(|| (0.0, 1.0), greatest);
        (error / scale, tolerance / scale)
    } else {
        if !marks_decomposed(sizes, &found, &ends) {
            return (f64::INFINITY, tolerance);
        }
        let total = |gradients: &[Cow<'_, [f64]>]| -> f64 {
            let pairs = scores.iter().zip(gradients);
            pairs
                .map(|(scores, gradient)| product(scores, gradient))
                .sum()
        };
        // Sequences share the sums, in which their errors may add up.
        let (found, best) = (total(&found), total(&best));
        let scale = best.abs().max(1.0);
        (
            (found - best).abs() / scale,
            tolerance * sizes.b as f64 / scale,
        )
    }
}

fn product(scores: &[f64], gradient: &[f64]) -> f64 {
    scores.iter().zip(gradient).map(|(s, g)| s * g).sum()
}

/// True if in each sequence the marked edges are ones, and follow one another from 0 to the end.
fn marks_materialized(sizes: &Sizes, gradient: &[f64], ends: &[usize]) -> bool {
    let Sizes { k, c, .. } = *sizes;
    let row = gradient.len() / sizes.b;
    gradient.par_chunks(row).zip(ends).all(|(gradient, &end)| {
        let (mut at, mut label) = (0, None);
        for (edge, &mark) in gradient.iter().enumerate() {
            if mark == 0.0 {
                continue;
            }
            let (src, dst) = (edge % c, edge / c % c);
            let (index, from) = (edge / (c * c) % k, edge / (c * c * k));
            let Some(duration) = duration(sizes, index) else {
                return false;
            };
            if mark != 1.0 || from != at || label.is_some_and(|label| label != src) {
                return false;
            }
            (at, label) = (from + duration, Some(dst));
        }
        at == end
    })
}

/// The duration that lies at `index` of the duration axis, if one does.
fn duration(sizes: &Sizes, index: usize) -> Option<usize> {
    let duration = (index + 1).checked_sub(sizes.first_duration_index())?;
    (1..=sizes.longest())
        .contains(&duration)
        .then_some(duration)
}

/// The runs of labels that the gradient of cumulative scores shows. Boundaries between segments of
/// one label cancel in it, so only runs of a label are visible.
struct Runs {
    /// Boundaries covered by each label.
    covered: Vec<f64>,
    /// Sequences that begin with each label.
    first: Vec<f64>,
    /// Runs of each label.
    count: Vec<f64>,
    /// Changes of label, (source, destination).
    changes: Vec<f64>,
}

/// True if the gradients are counts that fit together: runs from 0 to the end in each sequence,
/// durations that add up to the length that each label covers, a transition for each segment, among
/// them the visible ones. If the score equals the best score, only best segmentations satisfy this.
fn marks_decomposed(sizes: &Sizes, gradients: &[Cow<'_, [f64]>], ends: &[usize]) -> bool {
    let [cum_scores, transition, bias] = gradients else {
        return false;
    };
    let counts = |values: &[f64]| values.iter().all(|&n| n >= 0.0 && n.fract() == 0.0);
    let Some(runs) = runs(sizes, cum_scores, ends) else {
        return false;
    };
    counts(transition)
        && counts(bias)
        && durations_fit(sizes, bias, &runs)
        && transitions_fit(sizes, transition, bias, &runs)
}

fn runs(sizes: &Sizes, gradient: &[f64], ends: &[usize]) -> Option<Runs> {
    let c = sizes.c;
    let mut runs = Runs {
        covered: vec![0.0; c],
        first: vec![0.0; c],
        count: vec![0.0; c],
        changes: vec![0.0; c * c],
    };
    let row = (sizes.t + 1) * c;
    for (gradient, &end) in gradient.chunks(row).zip(ends) {
        let mut label = None;
        for (at, marks) in gradient.chunks(c).enumerate() {
            let (closed, opened) = ends_of_runs(marks)?;
            if closed
                != if opened.is_some() || at == end {
                    label
                } else {
                    None
                }
            {
                return None;
            }
            match (label, opened) {
                (None, Some(opened)) if at == 0 => runs.first[opened] += 1.0,
                (Some(label), Some(opened)) if at < end => runs.changes[label * c + opened] += 1.0,
                (Some(_), None) if at > 0 => {}
                (None, None) if at > end => {}
                _ => return None,
            }
            if let Some(opened) = opened {
                runs.count[opened] += 1.0;
                label = Some(opened);
            }
            match label {
                Some(label) if at < end => runs.covered[label] += 1.0,
                _ => label = None,
            }
        }
    }
    Some(runs)
}

/// The label whose run closes (+1) at a boundary and the one whose run opens (-1); nothing if there
/// are other marks or several.
fn ends_of_runs(marks: &[f64]) -> Option<(Option<usize>, Option<usize>)> {
    let (mut closed, mut opened) = (None, None);
    for (label, &mark) in marks.iter().enumerate() {
        if mark == 1.0 && closed.is_none() {
            closed = Some(label);
        } else if mark == -1.0 && opened.is_none() {
            opened = Some(label);
        } else if mark != 0.0 {
            return None;
        }
    }
    Some((closed, opened))
}

fn durations_fit(sizes: &Sizes, bias: &[f64], runs: &Runs) -> bool {
    (0..sizes.c).all(|label| {
        let (mut covered, mut segments) = (0.0, 0.0);
        for index in 0..sizes.k {
            let count = bias[index * sizes.c + label];
            match duration(sizes, index) {
                Some(duration) => covered += count * duration as f64,
                None if count != 0.0 => return false,
                None => {}
            }
            segments += count;
        }
        covered == runs.covered[label] && segments >= runs.count[label]
    })
}

fn transitions_fit(sizes: &Sizes, transition: &[f64], bias: &[f64], runs: &Runs) -> bool {
    let c = sizes.c;
    let into = |table: &[f64], dst: usize| (0..c).map(|src| table[src * c + dst]).sum::<f64>();
    if sizes.transition_per_duration {
        let tables = transition.chunks(c * c).zip(bias.chunks(c));
        for (table, bias) in tables {
            if (0..c).any(|dst| into(table, dst) != bias[dst]) {
                return false;
            }
        }
    }
    let all = |src: usize, dst: usize| -> f64 {
        (transition.chunks(c * c))
            .map(|table| table[src * c + dst])
            .sum()
    };
    (0..c).all(|dst| {
        let segments: f64 = bias.chunks(c).map(|bias| bias[dst]).sum();
        let mut taken = 0.0;
        let mut unseen_from_others = 0.0;
        for src in 0..c {
            let hidden = all(src, dst) - runs.changes[src * c + dst];
            if hidden < 0.0 {
                return false;
            }
            if src != dst {
                unseen_from_others += hidden;
            }
            taken += all(src, dst);
        }
        // The start label is free, and shows in the first segment's transition alone.
        taken == segments && unseen_from_others <= runs.first[dst]
    })
}
