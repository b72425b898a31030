//! Tables for writing, in Markdown and LaTeX: a column has one unit, which its heading states, and
//! its cells are plain numbers.

use super::render::without;
use super::{Cell, Column, Table, Unit};
use sweeper_model::quantity;

/// The least value of a column is at least so much of the column's unit.
const LEAST: f64 = 0.1;

/// A unit of times, sizes or rates, with its size.
type Scale = (&'static str, f64);

/// Units of times, in nanoseconds.
const TIMES: [Scale; 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
/// Units of sizes, in bytes.
const SIZES: [Scale; 4] = [
    ("B", 1.0),
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
];
/// Prefixes of amounts a second.
const RATES: [Scale; 5] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)];

/// Every field, the headings first.
pub(super) fn texts(table: &Table) -> Vec<Vec<String>> {
    let columns = table.columns.iter().enumerate();
    let kinds: Vec<Kind> = columns
        .map(|(place, column)| Kind::of(column, table.rows.iter().map(|row| &row[place])))
        .collect();
    let mut lines = vec![kinds.iter().map(|kind| kind.heading.clone()).collect()];
    for row in &table.rows {
        let fields = row.iter().zip(&kinds);
        lines.push(fields.map(|(cell, kind)| kind.text(cell)).collect());
    }
    lines
}

/// The format of a column.
struct Kind {
    heading: String,
    /// The divisor of numbers; none for numbers in full and for words.
    divisor: Option<f64>,
    has_intervals: bool,
}

impl Kind {
    fn of<'c>(column: &Column, cells: impl Iterator<Item = &'c Cell>) -> Self {
        let least = cells.filter_map(number).fold(f64::INFINITY, f64::min);
        let name = &column.name;
        let scaled = |bare: String, scales: &[Scale], size: f64, rest: &str| {
            let (unit, divisor) = scale(scales, least * size);
            let unit = match (unit, rest) {
                ("", rest) if rest.starts_with('/') => format!("1{rest}"),
                (unit, rest) => format!("{unit}{rest}"),
            };
            Kind {
                heading: format!("{bare} ({unit})"),
                divisor: Some(divisor / size),
                has_intervals: true,
            }
        };
        let plain = |divisor, has_intervals| Kind {
            heading: name.clone(),
            divisor,
            has_intervals,
        };
        match column.unit {
            Unit::Ns => scaled(without(name, &["ns"]), &TIMES, 1.0, ""),
            Unit::Ms => scaled(without(name, &["ms"]), &TIMES, 1e6, ""),
            Unit::Gb => scaled(without(name, &["gb"]), &SIZES, 1073741824.0, ""),
            Unit::PerSecond => {
                let rest = if name.starts_with("bytes") {
                    "B/s"
                } else {
                    "/s"
                };
                scaled(name.clone(), &RATES, 1.0, rest)
            }
            Unit::Ratio => plain(Some(1.0), true),
            Unit::Speedup => plain(Some(1.0), false),
            Unit::Plain => plain(None, true),
        }
    }

    fn text(&self, cell: &Cell) -> String {
        match cell {
            Cell::Empty => "–".to_owned(),
            Cell::Word(word) => word.to_string(),
            Cell::Count(count) => count.to_string(),
            Cell::Number(value) | Cell::Interval { value, .. } if !value.is_finite() => {
                match value.is_nan() {
                    true => "–".to_owned(),
                    false => value.to_string(),
                }
            }
            Cell::Number(value) => match self.divisor {
                Some(divisor) => fixed(value / divisor, digits(value / divisor)),
                None => quantity::significant(*value),
            },
            Cell::Interval { value, low, high } => {
                let divisor = self.divisor.unwrap_or(1.0);
                let half = (high - value).max(value - low) / divisor;
                let value = value / divisor;
                // No interval, or an interval without a meaning: the baseline over itself.
                if !self.has_intervals || !half.is_finite() || half == 0.0 {
                    return fixed(value, digits(value));
                }
                // Up to two digits more than the value alone would have, for narrow intervals.
                let of_half = (-half.log10().floor()).max(0.0) as usize;
                let digits = digits(value).max(of_half.min(digits(value) + 2));
                format!("{} ± {}", fixed(value, digits), fixed(half, digits))
            }
        }
    }
}

/// The number of a cell that decides about its column's unit.
fn number(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value) | Cell::Interval { value, .. } => Some(value.abs()),
        _ => None,
    }
    .filter(|value| value.is_finite() && *value > 0.0)
}

/// The largest unit of which the least value is at least a tenth.
fn scale(scales: &[Scale], least: f64) -> Scale {
    let suits = |(_, size): &&Scale| least.is_finite() && least >= LEAST * size;
    *scales.iter().rev().find(suits).unwrap_or(&scales[0])
}

/// Digits after the point, so that three are significant.
fn digits(value: f64) -> usize {
    match value.abs() {
        0.0 => 0,
        size => (2.0 - size.log10().floor()).clamp(0.0, 9.0) as usize,
    }
}

fn fixed(value: f64, digits: usize) -> String {
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, unit: Unit, cells: Vec<Cell>) -> Vec<String> {
        let mut table = Table::new("t", "T");
        table.column(name, unit);
        table.rows = cells.into_iter().map(|cell| vec![cell]).collect();
        texts(&table).into_iter().flatten().collect()
    }

    #[test]
    fn a_column_has_one_unit_and_plain_numbers() {
        let numbers = |values: &[f64]| values.iter().map(|value| Cell::Number(*value)).collect();
        assert_eq!(
            table("time_ms_median_mean", Unit::Ms, numbers(&[0.0829, 12.5])),
            ["time_median_mean (us)", "82.9", "12500"]
        );
        assert_eq!(
            table("peak_gb", Unit::Gb, numbers(&[759.0 / 1048576.0, f64::NAN])),
            ["peak (MiB)", "0.741", "–"]
        );
        assert_eq!(
            table("bytes_per_s", Unit::PerSecond, numbers(&[2e9, 3.5e11])),
            ["bytes_per_s (GB/s)", "2.00", "350"]
        );
        assert_eq!(
            table("calls_per_s", Unit::PerSecond, numbers(&[50.0])),
            ["calls_per_s (1/s)", "50.0"]
        );
        assert_eq!(
            table("fused_speedup", Unit::Ratio, numbers(&[12.345, 0.5])),
            ["fused_speedup", "12.3", "0.500"]
        );
    }

    #[test]
    fn intervals_are_in_the_units_of_their_values() {
        let interval = |value, low, high| Cell::Interval { value, low, high };
        assert_eq!(
            table("time_ns", Unit::Ns, vec![interval(2000.0, 1900.0, 2040.0)]),
            ["time (us)", "2.00 ± 0.10"]
        );
        assert_eq!(
            table(
                "time_ns",
                Unit::Ns,
                vec![interval(293_000.0, 292_600.0, 293_400.0)]
            ),
            ["time (ms)", "0.2930 ± 0.0004"]
        );
        let nan = f64::NAN;
        assert_eq!(
            table("ratio", Unit::Ratio, vec![interval(1.0, nan, nan)]),
            ["ratio", "1.00"]
        );
    }
}
