//! Tables in Markdown, and how many digits numbers have in them.

/// Lines of a table.
pub(super) struct Table(Vec<String>);

impl Table {
    /// A table with these columns.
    pub(super) fn new(columns: &[&str]) -> Self {
        let head = format!("| {} |", columns.join(" | "));
        let rule = format!("|{}", "---|".repeat(columns.len()));
        Table(vec![head, rule])
    }

    /// One more line.
    pub(super) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        self.0.push(format!("| {} |", cells.join(" | ")));
    }

    /// The text, with the end of its last line.
    pub(super) fn text(self) -> String {
        self.0.join("\n") + "\n"
    }
}

/// Three significant digits at least: `0.0912`, `5.61`, `54.3`, `1121`.
pub(super) fn three(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// A ratio: two digits below ten, whole numbers above.
pub(super) fn ratio(value: f64) -> String {
    match value {
        value if value >= 10.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// The geometric mean.
pub(super) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value.ln();
        count += 1.0;
    }
    assert!(count > 0.0, "a mean of nothing");
    f64::exp(sum / count)
}

/// The middle one, or half of both middle ones.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}
