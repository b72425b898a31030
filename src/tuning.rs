//! Tuned backends: which configuration is the fastest for a problem, and which can't be told from
//! it.
//!
//! The configurations of a backend have its name and their tuned values in braces,
//! `add{block_size=256}`.

use std::collections::BTreeMap;

use sweeper_program::Value;

use crate::interval::LogInterval;
use crate::row::entry::Entry;

/// The name that all configurations of a backend share: that before its tuned values.
pub fn family_of(backend: &str) -> &str {
    backend
        .split_once('{')
        .map_or(backend, |(family, _)| family)
}

/// The tuned values of a configuration, by name, in the order of the manifest; none for a backend
/// that is not tuned.
pub fn configuration_of(backend: &str) -> Vec<(&str, Value)> {
    let inside = backend.split_once('{');
    let inside = inside.and_then(|(_, rest)| rest.strip_suffix('}'));
    let pairs = inside.into_iter().flat_map(|inside| inside.split(','));
    pairs
        .filter_map(|pair| {
            let (name, text) = pair.split_once('=')?;
            let whole = text.parse().map(Value::Int);
            let value = whole.or_else(|_| text.parse().map(Value::Float));
            let value = value.or_else(|_| text.parse().map(Value::Bool));
            Some((name, value.unwrap_or_else(|_| Value::from(text))))
        })
        .collect()
}

/// The configurations of one backend for one problem, ranked.
#[derive(Clone, Debug)]
pub struct Choice<'e> {
    /// The backend's name without tuned values.
    pub family: &'e str,
    /// The fastest.
    pub best: &'e Entry,
    /// Its time.
    pub best_time: LogInterval,
    /// Others whose times can't be told from that of the fastest: the interval of the ratio has 1
    /// in it.
    pub alike: Vec<&'e Entry>,
    /// The first configuration of the manifest over the fastest; none where it failed.
    pub first_over_best: Option<LogInterval>,
    /// The slowest over the fastest.
    pub worst_over_best: LogInterval,
    /// Configurations with right results.
    pub measured: usize,
    /// Configurations without: they were left out, did not compile, or were wrong.
    pub failed: usize,
}

/// The choice of each tuned backend among rows of one problem and phase, which are in the order of
/// the manifest.
pub fn choices<'e>(rows: &[&'e Entry]) -> Vec<Choice<'e>> {
    let mut families: BTreeMap<&str, Vec<&'e Entry>> = BTreeMap::new();
    for &row in rows {
        families
            .entry(family_of(&row.backend))
            .or_default()
            .push(row);
    }
    let tuned = families.into_iter().filter(|(_, rows)| rows.len() > 1);
    tuned
        .filter_map(|(family, rows)| choice(family, &rows))
        .collect()
}

fn choice<'e>(family: &'e str, rows: &[&'e Entry]) -> Option<Choice<'e>> {
    let timed = |row: &&'e Entry| Some((*row, LogInterval::of(row)?));
    let mut measured: Vec<(&Entry, LogInterval)> = rows.iter().filter_map(timed).collect();
    let first = rows.first().and_then(timed);
    measured.sort_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
    let &(best, best_time) = measured.first()?;
    let is_alike = |time: &LogInterval| {
        let ratio = time.over(best_time);
        // Without intervals, which are NaN then, nothing can be told apart.
        let is_apart = ratio.value - ratio.below > 0.0;
        !is_apart
    };
    let others = measured.iter().skip(1);
    Some(Choice {
        family,
        best,
        best_time,
        alike: others
            .filter(|(_, time)| is_alike(time))
            .map(|(row, _)| *row)
            .collect(),
        first_over_best: first.map(|(_, time)| time.over(best_time)),
        worst_over_best: measured.last()?.1.over(best_time),
        measured: measured.len(),
        failed: rows.len() - measured.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::entry::Times;
    use crate::status::Status;
    use sweeper_program::Phase;

    fn row(backend: &str, median: Option<f64>) -> Entry {
        let status = if median.is_some() {
            Status::Ok
        } else {
            Status::Wrong
        };
        let mut entry = Entry::new("w".into(), backend.into(), Phase::Forward, status);
        entry.times = median.map(|median| Times {
            n: Some(20),
            median,
            ci_low: Some(median * 0.99),
            ci_high: Some(median * 1.01),
            ..Times::default()
        });
        entry
    }

    #[test]
    fn names_have_their_values() {
        assert_eq!(family_of("add{a=1,b=x}"), "add");
        assert_eq!(
            configuration_of("add{a=1,b=x,c=2.5}"),
            [
                ("a", Value::Int(1)),
                ("b", Value::from("x")),
                ("c", Value::Float(2.5))
            ]
        );
        assert_eq!(configuration_of("add"), []);
    }

    #[test]
    fn the_fastest_is_chosen_and_those_like_it_are_named() {
        let rows = [
            row("add{a=1}", Some(200.0)),
            row("add{a=2}", Some(101.0)),
            row("add{a=3}", Some(100.0)),
            row("add{a=4}", None),
            row("other", Some(1.0)),
            row("sub{a=1}", None),
            row("sub{a=2}", None),
        ];
        let rows: Vec<&Entry> = rows.iter().collect();
        let found = choices(&rows);
        assert_eq!(found.len(), 1);
        let choice = &found[0];
        assert_eq!((choice.family, &*choice.best.backend), ("add", "add{a=3}"));
        let alike: Vec<&str> = choice.alike.iter().map(|row| &*row.backend).collect();
        assert_eq!(alike, ["add{a=2}"]);
        assert_eq!((choice.measured, choice.failed), (3, 1));
        let gain = choice.first_over_best.map(LogInterval::number);
        assert!(gain.is_some_and(|gain| (gain - 2.0).abs() < 1e-9));
        assert!((choice.worst_over_best.number() - 2.0).abs() < 1e-9);
    }
}
