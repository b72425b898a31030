//! A comparison as text: for the terminal, for pull requests, and for programs.

use std::collections::BTreeMap;

use super::estimate::{Design, Estimate, Method};
use super::fail_on::FailOn;
use super::pairing::PairedBy;
use super::spread::Origin;
use super::verdict::Verdict;
use super::{Comparison, Digests, Point};
use sweeper_model::quantity;
use sweeper_model::status::Status;

pub mod terminal;
pub mod markdown;
pub mod data;

/// The results of `--fail-on`: each condition, and how many points meet it.
pub type Failures<'f> = [(&'f FailOn, usize)];

/// More points than this are shown only if they are slower or faster, or if all are asked for.
const MOST_POINTS: usize = 40;

/// A ratio with as many digits as tell 0.1 %.
fn ratio(log_ratio: f64) -> String {
    let ratio = log_ratio.exp();
    match ratio {
        0.0..100.0 => format!("{ratio:.3}"),
        _ => format!("{ratio:.1}"),
    }
}

/// An interval of ratios.
fn interval(estimate: &Estimate) -> String {
    format!("{} to {}", ratio(estimate.low), ratio(estimate.high))
}

/// A probability: small ones need no digits.
fn probability(p: Option<f64>) -> String {
    match p {
        None => String::new(),
        Some(p) if p < 0.001 => "< 0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

fn time(median_ns: Option<f64>) -> String {
    median_ns.map_or_else(String::new, quantity::time_ns)
}

/// `ok`, or `ok x 3, oom x 1` where runs of a side do not agree.
fn statuses(counts: &BTreeMap<Status, usize>) -> String {
    match counts.len() {
        1 => counts.keys().map(ToString::to_string).collect(),
        _ => {
            let words = counts
                .iter()
                .map(|(status, count)| format!("{status} x {count}"));
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Points in the order of reports: by verdict, then the largest differences first.
fn in_order(comparison: &Comparison) -> Vec<&Point> {
    let mut points: Vec<&Point> = comparison
        .points
        .iter()
        .filter(|point| point.verdict.is_some())
        .collect();
    let size = |point: &Point| {
        point
            .estimate
            .map_or(0.0, |estimate| estimate.log_ratio.abs())
    };
    points.sort_by(|one, other| {
        let verdicts = one.verdict.cmp(&other.verdict);
        verdicts.then(size(other).total_cmp(&size(one)))
    });
    points
}

/// The points that are shown, and how many are not.
fn shown(comparison: &Comparison, all: bool) -> (Vec<&Point>, usize) {
    let mut points = in_order(comparison);
    let count = points.len();
    if !all && count > MOST_POINTS {
        points.retain(|point| matches!(point.verdict, Some(Verdict::Slower | Verdict::Faster)));
    }
    let hidden = count - points.len();
    (points, hidden)
}

/// How many points have each verdict, without verdicts that no point has.
fn tally(comparison: &Comparison) -> String {
    let words = Verdict::ALL.into_iter().filter_map(|verdict| {
        let count = comparison.count(verdict);
        (count > 0).then(|| format!("{count} {verdict}"))
    });
    let mut words: Vec<String> = words.collect();
    let others = comparison.points.iter();
    let others = others.filter(|point| point.inputs.differ()).count();
    words.extend((others > 0).then(|| format!("{others} not compared, of other inputs")));
    match words.is_empty() {
        true => "no point has a time on both sides".to_owned(),
        false => words.join(", "),
    }
}

/// How runs were made and rows paired, and the basis of errors.
fn method(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(match &comparison.paired_by {
        PairedBy::Point => "points are paired by their identity".to_owned(),
        PairedBy::Axes { names, reason } => {
            format!(
                "points are paired by {}, because {reason}",
                names.join(", ")
            )
        }
    });
    let runs = [0, 1].map(|side| comparison.sides[side].origins.len());
    lines.push(match &comparison.design {
        Design::Pairs(pairs) => {
            format!("{} pairs of runs made in turns: what changes slowly cancels", pairs.len())
        }
        Design::Apart => format!(
            "{} runs of A and {} of B, not made in turns: what changed meanwhile is part of the ratio",
            runs[0], runs[1]
        ),
        Design::Single => "one run a side: nothing in them shows how much runs differ".to_owned(),
    });
    lines.extend(spread(comparison));
    let margin = quantity::percent(comparison.rule.margin);
    lines.push(format!("differences of up to {margin} do not count"));
    lines
}

/// The assumed spread between runs, where any interval rests on it.
fn spread(comparison: &Comparison) -> Option<String> {
    let rests = |method: Method| matches!(method, Method::Spread | Method::Welch);
    let estimates = comparison.points.iter().filter_map(|point| point.estimate);
    let runs = estimates
        .filter(|estimate| rests(estimate.method))
        .map(|estimate| {
            let [a, b] = estimate.runs;
            a.min(b)
        });
    let level = comparison.spread.level(runs.max()?);
    if level.scale == 0.0 {
        return Some(
            "runs of one program are taken to be the same but for their samples".to_owned(),
        );
    }
    let size = quantity::percent(level.reach());
    let source = match comparison.spread.origin {
        Origin::Measured => "by `sweeper doctor --aa`",
        Origin::Given => "by --spread",
        Origin::Assumed => {
            return Some(format!(
                "nobody measured how much runs differ there: up to {size} is assumed{}; `sweeper doctor \
                 --aa` measures it, and runs made in turns need neither",
                match comparison.spread.tells_single_runs() {
                    true => "",
                    false => ", which tells no two single runs apart",
                }
            ));
        }
    };
    let sides = match level.runs {
        1 => "two runs".to_owned(),
        runs => format!("{runs} runs and {runs} later ones"),
    };
    Some(format!(
        "{sides} of one program differ by up to {size} there, {source}"
    ))
}

/// The conditions of `--fail-on` that are met.
fn objections(failures: &Failures<'_>) -> Vec<String> {
    let met = failures.iter().filter(|(_, count)| *count > 0);
    met.map(|(condition, count)| format!("{}: {}", condition.text, of_points(*count)))
        .collect()
}

/// `1 point`, `2 points`.
fn of_points(count: usize) -> String {
    match count {
        1 => "1 point".to_owned(),
        _ => format!("{count} points"),
    }
}

/// What there is to know beside times, each kind under its title: points that are not compared, or
/// have no other side.
fn remarks(comparison: &Comparison) -> Vec<(String, Vec<String>)> {
    let points = || comparison.points.iter();
    let inputs = points().filter(|point| point.inputs.differ());
    let choices = points().filter(|point| point.has_other_choices());
    let choices = choices.map(|point| {
        let [a, b] = point
            .autotuned
            .each_ref()
            .map(|texts| match texts.is_empty() {
                true => "none noted".to_owned(),
                false => texts.join("; "),
            });
        format!("{}: {a} -> {b}", point.label)
    });
    let metrics = points().flat_map(|point| {
        let metrics = point.metrics.iter().filter(|metric| metric.differs());
        metrics.map(|metric| format!("{}: {}", point.label, metric.text()))
    });
    let others = points().filter(|point| point.has_other_status());
    let others = others.map(|point| {
        let [a, b] = [0, 1].map(|side| statuses(&point.statuses[side]));
        let reason = point.reasons[1].as_ref().or(point.reasons[0].as_ref());
        let reason = reason.map(|reason| format!(" ({reason})"));
        format!("{}: {a} -> {b}{}", point.label, reason.unwrap_or_default())
    });
    let kinds = [
        (
            "measured on other inputs, so that neither times nor outputs are compared",
            inputs.map(|point| point.label.clone()).collect(),
        ),
        (
            "autotuners chose otherwise, a reason for another time or other bits",
            choices.collect(),
        ),
        ("metrics that differ", metrics.collect()),
        ("ended otherwise", others.collect()),
        ("in A only", comparison.only[0].clone()),
        ("in B only", comparison.only[1].clone()),
    ];
    let some = kinds
        .into_iter()
        .filter(|(_, items): &(_, Vec<String>)| !items.is_empty());
    let titled = |(title, items): (&str, Vec<String>)| {
        let count = match title {
            "metrics that differ" => items.len().to_string(),
            _ => of_points(items.len()),
        };
        (format!("{title}: {count}"), items)
    };
    some.map(titled).collect()
}

/// How many points' outputs are identical, changed, or vary.
fn outputs(comparison: &Comparison) -> Option<String> {
    let count = |kind: Digests| {
        let points = comparison.points.iter();
        points.filter(|point| point.digests == kind).count()
    };
    let words: Vec<String> = [
        (Digests::Identical, "bit-identical"),
        (Digests::Changed, "changed"),
        (Digests::Vary, "vary from run to run"),
    ]
    .into_iter()
    .filter_map(|(kind, word)| Some((count(kind), word)).filter(|(count, _)| *count > 0))
    .map(|(count, word)| format!("{count} {word}"))
    .collect();
    (!words.is_empty()).then(|| format!("outputs: {}", words.join(", ")))
}

/// One side in one line: how many runs, their ids, and their place.
fn side(comparison: &Comparison, side: usize) -> String {
    let side = &comparison.sides[side];
    let runs = match (side.origins.len(), side.runs.is_empty()) {
        (1, true) => String::new(),
        (1, false) => format!("run {}, ", side.runs.join(", ")),
        (count, true) => format!("{count} files, "),
        (count, false) => format!("{count} runs of {}, ", side.runs.join(", ")),
    };
    let places = match &side.origins[..] {
        [one] => one.clone(),
        [first, .., last] => format!("{first} to {last}"),
        [] => String::new(),
    };
    let machines = side.machines.join(", ");
    match machines.is_empty() {
        true => format!("{runs}{places}"),
        false => format!("{runs}{machines}: {places}"),
    }
}
