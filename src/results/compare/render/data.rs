//! For programs: JSON with everything, CSV with one line a point.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::estimate::{Design, Estimate};
use super::super::groups::Group;
use super::super::{Comparison, Point};
use super::{Failures, in_order, statuses};

/// Everything as JSON; ratios are times of B over times of A.
pub fn json(comparison: &Comparison, failures: &Failures<'_>) -> Value {
    let counts = super::Verdict::ALL.map(|verdict| (verdict.name(), comparison.count(verdict)));
    json!({
        "a": comparison.sides[0],
        "b": comparison.sides[1],
        "design": match &comparison.design {
            Design::Pairs(_) => "pairs",
            Design::Apart => "apart",
            Design::Single => "single",
        },
        "pairs": match &comparison.design {
            Design::Pairs(pairs) => pairs.len(),
            Design::Apart | Design::Single => 0,
        },
        "paired_by": comparison.paired_by,
        "rule": comparison.rule,
        "spread": comparison.spread,
        "changes": comparison.changes,
        "warnings": comparison.warnings,
        "verdicts": counts.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "groups": comparison.groups.iter().map(group).collect::<Vec<_>>(),
        "points": comparison.points.iter().map(point).collect::<Vec<_>>(),
        "only_in_a": comparison.only[0],
        "only_in_b": comparison.only[1],
        "fail_on": failures
            .iter()
            .map(|(condition, count)| json!({ "condition": condition.text, "points": count }))
            .collect::<Vec<_>>(),
    })
}

fn estimate(estimate: &Estimate) -> Value {
    json!({
        "ratio": estimate.log_ratio.exp(),
        "low": estimate.low.exp(),
        "high": estimate.high.exp(),
        "p": estimate.p,
        "method": estimate.method,
        "runs_a": estimate.runs[0],
        "runs_b": estimate.runs[1],
    })
}

fn group(group: &Group) -> Value {
    json!({
        "axis": group.axis,
        "value": group.value,
        "points": group.points,
        "estimate": estimate(&group.estimate),
        "p_corrected": group.p,
        "verdict": group.verdict,
    })
}

fn point(point: &Point) -> Value {
    let side = |side: usize| {
        json!({
            "median_ns": point.median_ns[side],
            "statuses": point.statuses[side]
                .iter()
                .map(|(status, count)| (status.to_string(), *count))
                .collect::<std::collections::BTreeMap<_, _>>(),
            "reason": point.reasons[side].as_deref(),
        })
    };
    json!({
        "point": point.id,
        "label": point.label,
        "axes": point.axes,
        "a": side(0),
        "b": side(1),
        "estimate": point.estimate.as_ref().map(estimate),
        "p_corrected": point.p,
        "verdict": point.verdict,
        "outputs": point.digests,
        "inputs": point.inputs,
        "autotuned": { "a": point.autotuned[0], "b": point.autotuned[1] },
        "metrics": point.metrics,
    })
}

/// One line a point that both sides have, in the order of reports, those without times last.
///
/// # Errors
/// Those of writing to memory: none that happen.
pub fn csv(comparison: &Comparison) -> csv::Result<String> {
    const RESULT: [&str; 15] = [
        "verdict",
        "ratio",
        "ratio_low",
        "ratio_high",
        "p",
        "p_corrected",
        "method",
        "runs_a",
        "runs_b",
        "median_a_ns",
        "median_b_ns",
        "status_a",
        "status_b",
        "outputs",
        "inputs",
    ];
    let axes: BTreeSet<&str> = comparison
        .points
        .iter()
        .flat_map(|point| point.axes.keys().map(String::as_str))
        .collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = ["point"].into_iter().chain(axes.iter().copied());
    writer.write_record(head.chain(RESULT))?;
    let without = comparison
        .points
        .iter()
        .filter(|point| point.verdict.is_none());
    for point in in_order(comparison).into_iter().chain(without) {
        let mut record = vec![point.id.clone().unwrap_or_default()];
        let value = |axis: &&str| point.axes.get(*axis).cloned().unwrap_or_default();
        record.extend(axes.iter().map(value));
        record.extend(result(point));
        writer.write_record(&record)?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    String::from_utf8(bytes).map_err(|error| std::io::Error::other(error).into())
}

fn result(point: &Point) -> [String; 15] {
    let number = |number: Option<f64>| number.map(|number| number.to_string()).unwrap_or_default();
    let word = |value: Value| value.as_str().unwrap_or_default().to_owned();
    let of = |value: fn(&Estimate) -> f64| number(point.estimate.as_ref().map(value));
    let runs = |side: usize| {
        let runs = point
            .estimate
            .map(|estimate| estimate.runs[side].to_string());
        runs.unwrap_or_default()
    };
    [
        point
            .verdict
            .map_or_else(String::new, |verdict| verdict.to_string()),
        of(|estimate| estimate.log_ratio.exp()),
        of(|estimate| estimate.low.exp()),
        of(|estimate| estimate.high.exp()),
        of(|estimate| estimate.p),
        number(point.p),
        point
            .estimate
            .map_or_else(String::new, |estimate| word(json!(estimate.method))),
        runs(0),
        runs(1),
        number(point.median_ns[0]),
        number(point.median_ns[1]),
        statuses(&point.statuses[0]),
        statuses(&point.statuses[1]),
        word(json!(point.digests)),
        word(json!(point.inputs)),
    ]
}
