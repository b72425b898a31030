//! Tuned backends: which configuration is the fastest for a problem, and which can't be told from
//! it.
//!
//! The configurations of a backend have its name and their tuned values in braces,
//! `add{block_size=256}`.

pub mod race;

use std::collections::BTreeMap;

use sweeper_program::Value;

use crate::interval::LogInterval;
use crate::row::entry::Entry;
use crate::row::outcome::Flag;
use crate::stats::Interval;

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

/// How a configuration compares with the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The fastest.
    Best,
    /// Its time can't be told from that of the fastest.
    Alike,
    /// Slower than the fastest.
    Slower,
    /// So much slower that it took no more samples.
    Outraced,
}

/// A configuration with right results.
#[derive(Clone, Copy, Debug)]
pub struct Ranked<'e> {
    /// Its row.
    pub entry: &'e Entry,
    /// Its time: that of the second measurement where this decides.
    pub time: LogInterval,
    /// How it compares with the best.
    pub standing: Standing,
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
    /// True if the second measurement chose it and is its time.
    pub is_by_again: bool,
    /// Configurations with right results, the best first, then by time.
    pub ranked: Vec<Ranked<'e>>,
    /// The first configuration of the manifest over the fastest; none where it failed.
    pub first_over_best: Option<LogInterval>,
    /// Configurations without right results: they were left out, did not compile, or were wrong.
    pub failed: usize,
}

impl Choice<'_> {
    /// The median of the fastest in nanoseconds, of the measurement that chose it.
    pub fn best_ns(&self) -> Option<f64> {
        match self.best.again.as_ref().filter(|_| self.is_by_again) {
            Some(again) => Some(again.median_ns),
            None => self.best.median_ns(),
        }
    }

    /// The slowest over the fastest.
    pub fn worst_over_best(&self) -> Option<LogInterval> {
        let times = self.ranked.iter().map(|one| one.time);
        let worst = times.max_by(|one, other| one.value.total_cmp(&other.value))?;
        Some(worst.over(self.best_time))
    }
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
    let measured = rows
        .iter()
        .filter_map(|&row| Some((row, LogInterval::of_first(row)?)));
    let mut measured: Vec<(&Entry, LogInterval)> = measured.collect();
    // Where none is left, those that stopped the others have failed since.
    let all_stopped = measured.iter().all(|(row, _)| is_outraced(row));
    let is_out = |row: &Entry| is_outraced(row) && !all_stopped;
    let runners = measured.iter().filter(|(row, _)| !is_out(row));
    let runners: Vec<&Entry> = runners.map(|(row, _)| *row).collect();
    let end = race::best_end(runners.iter().filter_map(|row| interval(row)));
    let contends = |row: &Entry| !is_out(row) && !race::is_above(interval(row), end);
    let mut contenders = runners.iter().filter(|row| contends(row));
    let is_by_again = contenders.all(|row| LogInterval::of_second(row).is_some());
    if is_by_again {
        for (row, time) in measured.iter_mut().filter(|(row, _)| contends(row)) {
            *time = LogInterval::of_second(row).unwrap_or(*time);
        }
    }
    measured.sort_by(|(_, one), (_, other)| one.value.total_cmp(&other.value));
    let mut ahead = measured.iter().filter(|(row, _)| contends(row));
    let &(best, best_time) = ahead.next()?;
    let standing = |row: &Entry, time: LogInterval| {
        let ratio = time.over(best_time);
        // Without intervals, which are NaN then, nothing can be told apart.
        let is_apart = ratio.value - ratio.below > 0.0;
        match () {
            () if std::ptr::eq(row, best) => Standing::Best,
            () if is_outraced(row) => Standing::Outraced,
            () if is_apart || is_by_again && !contends(row) => Standing::Slower,
            () => Standing::Alike,
        }
    };
    let ranked = measured.iter().map(|&(entry, time)| Ranked {
        entry,
        time,
        standing: standing(entry, time),
    });
    let mut ranked: Vec<Ranked<'_>> = ranked.collect();
    ranked.sort_by_key(|one| one.standing != Standing::Best);
    let alike = ranked.iter().filter(|one| one.standing == Standing::Alike);
    let first = ranked.iter().find(|one| std::ptr::eq(one.entry, rows[0]));
    Some(Choice {
        family,
        best,
        best_time,
        alike: alike.map(|one| one.entry).collect(),
        is_by_again,
        first_over_best: first.map(|one| one.time.over(best_time)),
        failed: rows.len() - ranked.len(),
        ranked,
    })
}

fn is_outraced(entry: &Entry) -> bool {
    let measurement = entry.measurement.as_ref();
    measurement.is_some_and(|found| found.flags.contains(&Flag::Outraced))
}

/// The interval of the first measurement's median.
fn interval(entry: &Entry) -> Option<Interval> {
    let times = entry.times.filter(|times| times.n != Some(1))?;
    let (low, high) = times.interval()?;
    Some(Interval {
        low,
        high,
        coverage: times.coverage.unwrap_or(f64::NAN),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::entry::{Again, Times};
    use crate::row::measured::Measured;
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
        assert_eq!((choice.ranked.len(), choice.failed), (3, 1));
        assert!(!choice.is_by_again);
        let gain = choice.first_over_best.map(LogInterval::number);
        assert!(gain.is_some_and(|gain| (gain - 2.0).abs() < 1e-9));
        let worst = choice.worst_over_best().map(LogInterval::number);
        assert!(worst.is_some_and(|worst| (worst - 2.0).abs() < 1e-9));
    }

    /// A row that was measured again, with an interval of one per cent.
    fn again(row: Entry, median_ns: f64) -> Entry {
        Entry {
            again: Some(Box::new(Again {
                n: 20,
                median_ns,
                low_ns: median_ns * 0.99,
                high_ns: median_ns * 1.01,
            })),
            ..row
        }
    }

    fn outraced(row: Entry) -> Entry {
        let measurement = Measured {
            flags: vec![Flag::Outraced],
            ..Measured::default()
        };
        Entry {
            measurement: Some(Box::new(measurement)),
            ..row
        }
    }

    fn standings(rows: &[Entry]) -> Vec<(String, Standing)> {
        let rows: Vec<&Entry> = rows.iter().collect();
        let found = choices(&rows);
        let ranked = found[0].ranked.iter();
        ranked
            .map(|one| (one.entry.backend.to_string(), one.standing))
            .collect()
    }

    #[test]
    fn the_luckiest_of_many_is_held_against_others_by_its_second_measurement() {
        let first = row("f{a=1}", Some(90.0));
        let value = |time: Option<LogInterval>| time.map(|time| time.value.exp().round());
        assert_eq!(value(LogInterval::of(&first)), Some(90.0));
        let both = again(first, 100.0);
        assert_eq!(value(LogInterval::of(&both)), Some(100.0));
        assert_eq!(value(LogInterval::of_first(&both)), Some(90.0));
        assert!(LogInterval::of(&row("f{a=2}", None)).is_none());
    }

    #[test]
    fn the_second_measurement_chooses() {
        use Standing::{Alike, Best, Outraced, Slower};
        let rows = [
            again(row("f{a=1}", Some(100.0)), 105.0),
            again(row("f{a=2}", Some(101.0)), 101.0),
            again(row("f{a=3}", Some(101.5)), 101.5),
            // Slower than the luckiest at first, so that it was not measured again.
            row("f{a=4}", Some(104.0)),
            outraced(row("f{a=5}", Some(150.0))),
        ];
        let expected = [
            ("f{a=2}", Best),
            ("f{a=3}", Alike),
            ("f{a=4}", Slower),
            ("f{a=1}", Slower),
            ("f{a=5}", Outraced),
        ];
        let expected = expected.map(|(name, standing)| (name.to_owned(), standing));
        assert_eq!(standings(&rows), expected);
        let entries: Vec<&Entry> = rows.iter().collect();
        let choice = &choices(&entries)[0];
        assert!(choice.is_by_again);
        assert!((choice.best_time.number() - 101.0).abs() < 1e-9);
        // Where a contender has no second measurement, the first ones are compared.
        let rows = [
            row("f{a=1}", Some(100.0)),
            again(row("f{a=2}", Some(101.0)), 90.0),
        ];
        let expected = [("f{a=1}", Best), ("f{a=2}", Alike)];
        let expected = expected.map(|(name, standing)| (name.to_owned(), standing));
        assert_eq!(standings(&rows), expected);
    }

    #[test]
    fn one_that_was_stopped_is_not_the_best() {
        use Standing::{Best, Outraced};
        let stopped = || outraced(row("f{a=1}", Some(99.0)));
        let rows = [stopped(), row("f{a=2}", Some(100.0))];
        let found = standings(&rows);
        assert_eq!(found[0], ("f{a=2}".to_owned(), Best));
        assert_eq!(found[1], ("f{a=1}".to_owned(), Outraced));
        let rows = [stopped(), row("f{a=2}", None)];
        assert_eq!(standings(&rows), [("f{a=1}".to_owned(), Best)]);
    }
}
