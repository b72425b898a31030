//! For people at a terminal.

use std::fmt::Write;

use super::super::estimate::Estimate;
use super::super::groups::Group;
use super::super::verdict::Verdict;
use super::super::{Comparison, Point};
use super::{
    Failures, interval, method, objections, of_points, outputs, probability, ratio, shown, side,
    tally, time,
};

/// Paints text in a colour by its ANSI code, or leaves it.
pub type Paint<'p> = &'p dyn Fn(&str, &str) -> String;

/// The comparison; every point with a verdict if `all`.
pub fn text(
    comparison: &Comparison,
    failures: &Failures<'_>,
    all: bool,
    paint: Paint<'_>,
) -> String {
    let mut lines = vec![
        format!("A  {}", side(comparison, 0)),
        format!("B  {}", side(comparison, 1)),
        String::new(),
    ];
    lines.extend(changes(comparison));
    lines.extend(method(comparison));
    lines.push(String::new());
    let (points, hidden) = shown(comparison, all);
    let rows = points.iter().map(|point| row(point)).collect();
    lines.extend(table(rows, paint));
    if hidden > 0 {
        lines.push(format!(
            "neither slower nor faster: {}; --all shows them",
            of_points(hidden)
        ));
    }
    let groups: Vec<Cells> = comparison.groups.iter().map(group).collect();
    if !groups.is_empty() {
        lines.push(String::new());
        lines.push("geometric means".to_owned());
        lines.extend(table(groups, paint));
    }
    lines.extend(remarks(comparison));
    lines.push(String::new());
    lines.push(tally(comparison));
    for objection in objections(failures) {
        lines.push(format!("{} {objection}", paint("31;1", "fails on")));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn changes(comparison: &Comparison) -> Vec<String> {
    if comparison.changes.is_empty() {
        return vec!["nothing that was written down of the surroundings changed".to_owned()];
    }
    let mut lines = vec!["changed".to_owned()];
    let width = comparison
        .changes
        .iter()
        .map(|change| change.field.chars().count())
        .max();
    let width = width.unwrap_or(0);
    let values = |values: &[String]| match values.is_empty() {
        true => "not said".to_owned(),
        false => values.join(", "),
    };
    lines.extend(comparison.changes.iter().map(|change| {
        format!(
            "  {:width$}  {} -> {}",
            change.field,
            values(&change.a),
            values(&change.b)
        )
    }));
    lines
}

/// One line of a table: verdict, name, A, B, ratio, interval, probability.
struct Cells {
    verdict: Option<Verdict>,
    cells: [String; 6],
}

fn cells(
    verdict: Option<Verdict>,
    name: String,
    times: [String; 2],
    found: Option<&Estimate>,
    p: Option<f64>,
) -> Cells {
    let [a, b] = times;
    let estimate = |text: fn(&Estimate) -> String| found.map(text).unwrap_or_default();
    let cells = [
        name,
        a,
        b,
        estimate(|found| ratio(found.log_ratio)),
        estimate(interval),
        probability(p),
    ];
    Cells { verdict, cells }
}

fn row(point: &Point) -> Cells {
    let times = point.median_ns.map(time);
    cells(
        point.verdict,
        point.label.clone(),
        times,
        point.estimate.as_ref(),
        point.p,
    )
}

fn group(group: &Group) -> Cells {
    let name = match &group.axis {
        Some(axis) => format!("{axis}={} ({})", group.value, of_points(group.points)),
        None => format!("all ({})", of_points(group.points)),
    };
    let times = [String::new(), String::new()];
    cells(
        Some(group.verdict),
        name,
        times,
        Some(&group.estimate),
        Some(group.p),
    )
}

fn table(rows: Vec<Cells>, paint: Paint<'_>) -> Vec<String> {
    const HEAD: [&str; 6] = ["", "A", "B", "B / A", "95 % interval", "p"];
    if rows.is_empty() {
        return Vec::new();
    }
    let head = Cells {
        verdict: None,
        cells: HEAD.map(str::to_owned),
    };
    let rows: Vec<Cells> = [head].into_iter().chain(rows).collect();
    let is_used = |column: usize| rows[1..].iter().any(|row| !row.cells[column].is_empty());
    let columns: Vec<usize> = (0..HEAD.len()).filter(|&column| is_used(column)).collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row.cells[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().map(|&column| width(column)).collect();
    let line = |row: &Cells| {
        let word = row.verdict.map_or("", Verdict::name);
        let word = format!("{word:12}");
        let mut line = match row.verdict {
            Some(Verdict::Slower) => paint("31;1", &word),
            Some(Verdict::Faster) => paint("32;1", &word),
            Some(Verdict::Same) | Some(Verdict::Inconclusive) | None => word,
        };
        for (&column, &width) in columns.iter().zip(&widths) {
            let cell = &row.cells[column];
            // Names are read from the left, numbers from the right. Writing to a string can't fail.
            let _ = match column {
                0 => write!(line, "  {cell:width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Remarks that are not about times: statuses, points of one side, outputs, warnings.
fn remarks(comparison: &Comparison) -> Vec<String> {
    const MOST: usize = 10;
    let mut lines = Vec::new();
    let mut all = super::remarks(comparison);
    if !comparison.warnings.is_empty() {
        all.push(("to know".to_owned(), comparison.warnings.clone()));
    }
    for (title, items) in all {
        lines.push(String::new());
        lines.push(title);
        let more = items.len().saturating_sub(MOST);
        lines.extend(items.into_iter().take(MOST).map(|item| format!("  {item}")));
        if more > 0 {
            lines.push(format!("  and {more} more; --json has all"));
        }
    }
    if let Some(outputs) = outputs(comparison) {
        lines.push(String::new());
        lines.push(outputs);
    }
    lines
}
