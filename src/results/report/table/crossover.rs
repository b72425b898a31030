//! `crossover_points.csv`: from which size on one backend stays ahead of another.

use std::collections::{BTreeMap, BTreeSet};

use super::means::LogInterval;
use super::ratios::sort;
use super::{Cell, Request, Table, Unit, size};
use crate::report::frame::{Key, number_of};

/// Times of two backends at the same shapes, by the size of the leading axis.
type Shapes = BTreeMap<u64, Vec<(LogInterval, LogInterval)>>;

/// Backend a crosses b at the least size of the leading axis from which on it is faster at every
/// shape that both were measured at. Shapes are compared whole: equal factors, not equal products.
pub(super) fn crossover_points(request: &Request<'_>) -> Option<Table> {
    let shown = request.layout.presentation?;
    let compared = shown.compared?.name;
    let (leading, second) = (shown.leading_axis, shown.second_axis);
    let frame = request.frame;
    // The formula of the leading axis.
    let (about, axis) = match shown.derived(leading) {
        Some(derived) => (derived.about, derived.factors.join(" ")),
        None => ("Least", leading.to_owned()),
    };
    let mut table = Table::new(
        "crossover_points",
        format!("{about} {axis} from which on backend a stays faster than backend b"),
    );
    table
        .plain([compared, "phase", second])
        .plain([format!("crossover_{leading}")])
        .plain(["backend_a", "backend_b"])
        .column("time_a_ms", Unit::Ms)
        .column("time_b_ms", Unit::Ms)
        .column("speedup", Unit::Ratio);
    let more = &request.layout.sizes[shown.sizes.len()..];
    table.plain(more);
    table.notes.push(format!(
        "a is faster at every shape with {axis} of crossover_{leading} and more, beyond the \
         intervals where there are any; the least {axis} measured means that it is ahead \
         everywhere. Times are geometric means over the shapes with that {axis}"
    ));
    let mut series: Vec<String> = request.rows.iter().map(|&row| frame.series(row)).collect();
    series.sort();
    series.dedup();
    let mut fixed = vec![compared, "phase", second];
    fixed.extend(more.iter().map(String::as_str));
    for rows in frame.groups(request.rows, &fixed).into_values() {
        for (a, b, place, times) in crossings(request, &rows, &series, leading) {
            let first = rows[0];
            let mut line = vec![
                request.layout.word(frame, first, compared),
                Cell::word(frame.entries[first].phase.name()),
                size(frame, first, second),
                Cell::Count(place as i64),
                Cell::word(a),
                Cell::word(b),
            ];
            let [a, b] = times;
            line.extend([a, b, b / a].map(Cell::Number));
            line.extend(more.iter().map(|name| size(frame, first, name)));
            table.rows.push(line);
        }
    }
    sort(&mut table);
    if table.rows.is_empty() {
        let reason = "empty: no backend stays ahead of another, or no two share a shape";
        table.notes.push(reason.to_owned());
    }
    Some(table)
}

/// Ordered pairs of backends that cross: the backends, the size, and their times there in ms.
fn crossings<'n>(
    request: &Request<'_>,
    rows: &[usize],
    series: &'n [String],
    leading: &str,
) -> Vec<(&'n str, &'n str, u64, [f64; 2])> {
    let frame = request.frame;
    let mut shapes: BTreeMap<Key, BTreeMap<&str, usize>> = BTreeMap::new();
    for (key, rows) in frame.joined(rows, &["backend", "machine"]) {
        for row in rows {
            let name = frame.series(row);
            if let Ok(index) = series.binary_search(&name) {
                shapes
                    .entry(key.clone())
                    .or_default()
                    .insert(&series[index], row);
            }
        }
    }
    let present: BTreeSet<&str> = shapes
        .values()
        .flat_map(|held| held.keys().copied())
        .collect();
    let mut found = Vec::new();
    for &a in &present {
        for &b in present.iter().filter(|&&b| b != a) {
            let mut by_size: Shapes = BTreeMap::new();
            for held in shapes.values() {
                let Some((&row_a, &row_b)) = held.get(a).zip(held.get(b)) else {
                    continue;
                };
                let (entry_a, entry_b) = (frame.entries[row_a], frame.entries[row_b]);
                let place = number_of(entry_a, leading).unwrap_or(0.0) as u64;
                let both = LogInterval::of(entry_a).zip(LogInterval::of(entry_b));
                by_size.entry(place).or_default().extend(both);
            }
            if let Some((place, times)) = crossing(&by_size) {
                found.push((a, b, place, times));
            }
        }
    }
    found
}

/// Whether a time is less than another beyond their intervals; by itself where one has none, as
/// in files of others.
fn is_faster(a: LogInterval, b: LogInterval) -> bool {
    let ratio = a.over(b);
    // NaN is passed over.
    ratio.value + ratio.above.max(0.0) < 0.0
}

/// The least size from which on a is faster at every shape, and mean times there in ms.
fn crossing(shapes: &Shapes) -> Option<(u64, [f64; 2])> {
    let is_ahead = |pairs: &[(LogInterval, LogInterval)]| {
        !pairs.is_empty() && pairs.iter().all(|&(a, b)| is_faster(a, b))
    };
    let (&place, pairs) = shapes
        .iter()
        .rev()
        .take_while(|(_, pairs)| is_ahead(pairs))
        .last()?;
    let (a, b): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let ms = |all: &[LogInterval]| Some(LogInterval::mean(all)?.number() / 1e6);
    Some((place, [ms(&a)?, ms(&b)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(rows: &[(u64, f64, f64)]) -> Shapes {
        let mut shapes = Shapes::new();
        let exact = |time_ms: f64| LogInterval::exact(time_ms * 1e6).unwrap();
        for &(place, a, b) in rows {
            shapes.entry(place).or_default().push((exact(a), exact(b)));
        }
        shapes
    }

    fn found(rows: &[(u64, f64, f64)]) -> Option<u64> {
        crossing(&shapes(rows)).map(|(place, _)| place)
    }

    #[test]
    fn who_is_overtaken_again_has_not_crossed() {
        let behind_again = [(12, 1.0, 2.0), (24, 3.0, 2.0), (48, 4.0, 5.0)];
        assert_eq!(found(&behind_again), Some(48));
        assert_eq!(found(&[(12, 1.0, 2.0), (24, 3.0, 2.0)]), None);
    }

    #[test]
    fn intervals_that_overlap_decide_nothing() {
        let of = |ms: f64, within: f64| {
            LogInterval::new(ms, Some((ms * (1.0 - within), ms * (1.0 + within))))
        };
        assert!(is_faster(of(1.0, 0.02), of(1.05, 0.02)));
        assert!(!is_faster(of(1.0, 0.04), of(1.05, 0.04)));
        assert!(is_faster(LogInterval::new(1.0, None), of(1.05, 0.2)));
        assert!(!is_faster(of(1.0, 0.0), of(1.0, 0.0)));
    }

    #[test]
    fn every_shape_of_a_product_counts() {
        let rows = [
            (12, 3.0, 1.0),
            (24, 1.0, 2.0),
            (24, 5.0, 4.0),
            (48, 1.0, 2.0),
        ];
        assert_eq!(found(&rows), Some(48));
        assert_eq!(found(&[(12, 1.0, 2.0), (24, 1.0, 2.0)]), Some(12));
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn times_are_those_at_the_crossing() {
        let (_, [a, b]) = crossing(&shapes(&[(8, 2.0, 4.0), (8, 8.0, 16.0)])).unwrap();
        assert!((a - 4.0).abs() < 1e-9 && (b - 8.0).abs() < 1e-9, "{a} {b}");
    }
}
