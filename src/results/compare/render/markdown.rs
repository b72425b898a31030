//! For pull requests: the verdicts first, everything else folded away.

use super::super::{Comparison, Point};
use super::{
    Failures, in_order, interval, method, objections, of_points, outputs, probability, ratio, side,
    tally, time,
};
use crate::compare::verdict::Verdict;

/// Points that are listed at most: a comment on a pull request has room for 65,536 characters.
const MOST_POINTS: usize = 200;

/// The comparison.
pub fn text(comparison: &Comparison, failures: &Failures<'_>) -> String {
    let mut lines = vec![
        format!("### Comparison: {}", tally(comparison)),
        String::new(),
    ];
    for objection in objections(failures) {
        lines.push(format!("**Fails on {}**", escaped(&objection)));
        lines.push(String::new());
    }
    lines.extend(changes(comparison));
    lines.extend(groups(comparison));
    let is_changed =
        |point: &&&Point| matches!(point.verdict, Some(Verdict::Slower | Verdict::Faster));
    let points = in_order(comparison);
    let changed: Vec<&Point> = points.iter().filter(is_changed).copied().collect();
    lines.extend(table(&changed));
    let others: Vec<&Point> = points
        .iter()
        .filter(|point| !is_changed(point))
        .copied()
        .collect();
    if !others.is_empty() {
        let title = format!("neither slower nor faster: {}", of_points(others.len()));
        lines.extend(folded(&title, table(&others)));
    }
    lines.extend(remarks(comparison));
    let mut how = vec![
        format!("* A: {}", escaped(&side(comparison, 0))),
        format!("* B: {}", escaped(&side(comparison, 1))),
    ];
    how.extend(
        method(comparison)
            .iter()
            .map(|line| format!("* {}", escaped(line))),
    );
    how.extend(
        comparison
            .warnings
            .iter()
            .map(|line| format!("* {}", escaped(line))),
    );
    how.push(String::new());
    lines.extend(folded("How this was compared", how));
    lines.join("\n")
}

/// Text that Markdown and HTML leave alone, inside of a table too.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '*' | '_' | '[' | ']' | '\\' | '#' | '~' => {
                escaped.push('\\');
                escaped.push(character);
            }
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\n' | '\r' => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn folded(title: &str, lines: Vec<String>) -> Vec<String> {
    let head = [
        "<details>".to_owned(),
        format!("<summary>{title}</summary>"),
        String::new(),
    ];
    let tail = ["</details>".to_owned(), String::new()];
    head.into_iter().chain(lines).chain(tail).collect()
}

fn changes(comparison: &Comparison) -> Vec<String> {
    if comparison.changes.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["| changed | A | B |".to_owned(), "|---|---|---|".to_owned()];
    let values = |values: &[String]| escaped(&values.join(", "));
    lines.extend(comparison.changes.iter().map(|change| {
        format!(
            "| {} | {} | {} |",
            escaped(&change.field),
            values(&change.a),
            values(&change.b)
        )
    }));
    lines.push(String::new());
    lines
}

fn groups(comparison: &Comparison) -> Vec<String> {
    if comparison.groups.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "| geometric mean | points | B / A | 95 % interval | p | |".to_owned(),
        "|---|--:|--:|--:|--:|---|".to_owned(),
    ];
    lines.extend(comparison.groups.iter().map(|group| {
        let name = match &group.axis {
            Some(axis) => format!("{axis}={}", group.value),
            None => group.value.clone(),
        };
        format!(
            "| {} | {} | {} | {} | {} | {} |",
            escaped(&name),
            group.points,
            ratio(group.estimate.log_ratio),
            interval(&group.estimate),
            probability(Some(group.p)).replace('<', "&lt;"),
            group.verdict
        )
    }));
    lines.push(String::new());
    lines
}

fn table(points: &[&Point]) -> Vec<String> {
    if points.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "| point | A | B | B / A | 95 % interval | p | |".to_owned(),
        "|---|--:|--:|--:|--:|--:|---|".to_owned(),
    ];
    for point in points.iter().take(MOST_POINTS) {
        let [a, b] = point.median_ns.map(time);
        if let (Some(estimate), Some(verdict)) = (&point.estimate, point.verdict) {
            lines.push(format!(
                "| {} | {a} | {b} | {} | {} | {} | {verdict} |",
                escaped(&point.label),
                ratio(estimate.log_ratio),
                interval(estimate),
                probability(point.p).replace('<', "&lt;"),
            ));
        }
    }
    if points.len() > MOST_POINTS {
        lines.push(String::new());
        lines.push(format!("and {} more", points.len() - MOST_POINTS));
    }
    lines.push(String::new());
    lines
}

fn remarks(comparison: &Comparison) -> Vec<String> {
    let mut lines = Vec::new();
    for (title, items) in super::remarks(comparison) {
        let more = items.len().saturating_sub(MOST_POINTS);
        let shown = items.iter().take(MOST_POINTS);
        let mut items: Vec<String> = shown.map(|item| format!("* {}", escaped(item))).collect();
        if more > 0 {
            items.push(format!("* and {more} more"));
        }
        items.push(String::new());
        lines.extend(folded(&title, items));
    }
    if let Some(outputs) = outputs(comparison) {
        lines.push(outputs);
        lines.push(String::new());
    }
    lines
}
