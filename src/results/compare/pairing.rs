//! Which rows of two sides are about one point, and which runs were made next to each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;

use super::estimate::Design;
use crate::report::source::Source;
use sweeper_model::row::entry::Entry;

/// Names that all rows have, and that always tell them apart.
const ALWAYS: [&str; 4] = ["workload", "backend", "phase", "dtype"];
/// How rows were measured: tells them apart only where one side has several.
const CONDITIONS: [&str; 3] = ["l2", "mode", "threads"];

/// How rows were paired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PairedBy {
    /// The point's identity.
    Point,
    /// The values of these axes, and why not the identity.
    Axes {
        /// Names of the axes.
        names: Vec<String>,
        /// Why identities would not do.
        reason: &'static str,
    },
}

/// Rows of one point: for each side, one for each run that has it.
pub(super) struct Rows<'s> {
    pub(super) sides: [Vec<Option<&'s Entry>>; 2],
}

impl<'s> Rows<'s> {
    /// Any of the rows, of the first side where it has some.
    pub(super) fn any(&self) -> Option<&'s Entry> {
        self.sides.iter().flatten().flatten().next().copied()
    }

    /// True if any run of that side has it.
    pub(super) fn has(&self, side: usize) -> bool {
        self.sides[side].iter().any(Option::is_some)
    }
}

/// Rows of both sides by point, in the order of the first run that has each.
pub(super) fn pair<'s>(sides: [&'s [Source]; 2]) -> Result<(PairedBy, Vec<Rows<'s>>), String> {
    let by = choose(sides);
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut all: Vec<Rows<'s>> = Vec::new();
    for (side, sources) in sides.iter().enumerate() {
        for (run, source) in sources.iter().enumerate() {
            for entry in &source.entries {
                let place = *places.entry(key(entry, &by)).or_insert_with(|| {
                    all.push(Rows {
                        sides: [vec![None; sides[0].len()], vec![None; sides[1].len()]],
                    });
                    all.len() - 1
                });
                let held = &mut all[place].sides[side];
                // Two rows of one run say themselves that they are two.
                let mut others = held.iter().enumerate();
                let other = others.find_map(|(at, other)| {
                    other.filter(|other| at != run && is_other(other, entry))
                });
                if let Some(other) = other {
                    return Err(pooled(sources, held, other, entry, source));
                }
                if held[run].replace(entry).is_some() {
                    return Err(ambiguous(source, entry, &by));
                }
            }
        }
    }
    Ok((by, all))
}

/// True if two rows are of different problems, as far as their files say.
fn is_other(one: &Entry, other: &Entry) -> bool {
    let ids = one.problem.zip(other.problem);
    differing(one, other).is_some() || ids.is_some_and(|(one, other)| one != other)
}

/// A parameter that both rows have, with other values.
fn differing<'e>(one: &'e Entry, other: &Entry) -> Option<&'e str> {
    let mut names = one.parameters.iter();
    let found = names.find(|(name, value)| {
        let theirs = other.parameters.get(*name);
        theirs.is_some_and(|theirs| theirs != *value)
    });
    found.map(|(name, _)| &**name)
}

/// Two runs of one side that would count as repeats of each other, and are of different problems.
fn pooled(
    sources: &[Source],
    held: &[Option<&Entry>],
    other: &Entry,
    entry: &Entry,
    source: &Source,
) -> String {
    let is_it = |held: &Option<&Entry>| held.is_some_and(|held| std::ptr::eq(held, other));
    let first = held.iter().position(is_it);
    let first = first.map_or_else(String::new, |run| sources[run].origin.display().to_string());
    let second = source.origin.display();
    let why = match differing(other, entry) {
        Some(name) => {
            let value = |entry: &Entry| {
                entry
                    .axis(name)
                    .map_or_else(String::new, |it| it.to_string())
            };
            format!("{name} is {} and {}", value(other), value(entry))
        }
        None => "their inputs differ".to_owned(),
    };
    format!(
        "{first} and {second} are on one side and of different problems ({why}), which the other side does \
         not tell apart: give each a comparison of its own"
    )
}

fn ambiguous(source: &Source, entry: &Entry, by: &PairedBy) -> String {
    let values = match by {
        PairedBy::Point => String::new(),
        PairedBy::Axes { names, .. } => {
            let value = |name: &String| Some(format!("{name}={}", entry.axis(name)?));
            names.iter().filter_map(value).collect::<Vec<_>>().join(" ")
        }
    };
    format!(
        "{}: several rows are about {values}, and the other side lacks the axes that tell them apart; \
         compare files with the same columns, or a part of this one",
        source.origin.display()
    )
}

/// By identity where all rows have one and most points of the smaller side are on the other, too.
fn choose(sides: [&[Source]; 2]) -> PairedBy {
    let by_axes = |reason| PairedBy::Axes {
        names: shared_axes(sides),
        reason,
    };
    let ids = sides.map(|sources| {
        let entries = sources.iter().flat_map(|source| &source.entries);
        let id = |entry: &Entry| Some(identity(entry).unwrap_or(entry.point?.0.hex()));
        entries.map(id).collect::<BTreeSet<_>>()
    });
    if ids.iter().any(|ids| ids.contains(&None)) {
        return by_axes("some rows have no identity");
    }
    let devices = sides.map(|sources| {
        let entries = sources.iter().flat_map(|source| &source.entries);
        entries.map(|entry| entry.device).collect::<BTreeSet<_>>()
    });
    if devices[0] != devices[1] {
        return by_axes("the devices are of different kinds");
    }
    let common = ids[0].intersection(&ids[1]).count();
    if 2 * common < ids[0].len().min(ids[1].len()) {
        return by_axes("few identities are on both sides");
    }
    PairedBy::Point
}

/// Names that tell rows apart and that both sides have.
fn shared_axes(sides: [&[Source]; 2]) -> Vec<String> {
    let named = sides.map(|sources| {
        let entries = sources.iter().flat_map(|source| &source.entries);
        entries
            .flat_map(|entry| entry.parameters.keys().chain(entry.values.keys()))
            .map(|name| name.to_string())
            .collect::<BTreeSet<String>>()
    });
    let has = |side: usize, name: &str| {
        let mut entries = sides[side].iter().flat_map(|source| &source.entries);
        entries.any(|entry| entry.axis(name).is_some())
    };
    // Of a side, not of each run: two runs of one side in different ways are not of one point.
    let varies = |name: &&str| {
        sides.iter().any(|sources| {
            let entries = sources.iter().flat_map(|source| &source.entries);
            let values = entries.filter_map(|entry| text(entry, name));
            values.collect::<BTreeSet<_>>().len() > 1
        })
    };
    let both = |name: &&str| has(0, name) && has(1, name);
    let dimensions = ALWAYS
        .into_iter()
        .chain(CONDITIONS.into_iter().filter(varies))
        .filter(both)
        .map(str::to_owned);
    let common = named[0].intersection(&named[1]).cloned();
    dimensions.chain(common).collect()
}

fn text(entry: &Entry, name: &str) -> Option<String> {
    entry.axis(name).map(|value| value.to_string())
}

/// The identity of an entry's point without that of its backend's source, so that a backend is
/// paired with its edited self; none where the file lacks a part of it.
fn identity(entry: &Entry) -> Option<String> {
    let (problem, threads) = (entry.problem?.0.hex(), entry.threads?);
    let (l2, mode) = (entry.l2.as_ref()?, entry.mode.as_ref()?);
    let (backend, phase, canonical) = (&entry.backend, entry.phase.name(), &entry.canonical);
    Some(format!(
        "{problem} {backend} {phase} {canonical:?} {l2} {mode} {threads}"
    ))
}

fn key(entry: &Entry, by: &PairedBy) -> String {
    match (by, entry.point) {
        (PairedBy::Point, Some(point)) => identity(entry).unwrap_or_else(|| point.0.hex()),
        (PairedBy::Point, None) => String::new(),
        (PairedBy::Axes { names, .. }, _) => {
            let mut key = String::new();
            for name in names {
                key.push_str(&text(entry, name).unwrap_or_default());
                key.push('\0');
            }
            key
        }
    }
}

/// For each workload, the axes that tell its points apart, in the order of labels.
pub(super) type TellingAxes = BTreeMap<Arc<str>, Vec<String>>;

/// Names that tell points apart: parameters that vary within a workload, then how they were
/// measured.
pub(super) fn telling_axes(rows: &[Rows<'_>]) -> TellingAxes {
    let mut by_workload: BTreeMap<Arc<str>, Vec<&Entry>> = BTreeMap::new();
    for entry in rows.iter().filter_map(Rows::any) {
        let held = by_workload.entry(Arc::clone(&entry.workload)).or_default();
        held.push(entry);
    }
    let has_several = by_workload.len() > 1;
    let axes = |entries: &[&Entry]| {
        let parameters: BTreeSet<&str> = entries
            .iter()
            .flat_map(|entry| entry.parameters.keys().map(|name| &**name))
            .collect();
        let varies = |name: &str| {
            let values = entries.iter().map(|entry| text(entry, name));
            values.collect::<BTreeSet<_>>().len() > 1
        };
        let always = |name: &str| name == "backend" || name == "workload" && has_several;
        let order = ["workload"].into_iter().chain(parameters);
        let order = order.chain(["backend", "phase", "dtype"]).chain(CONDITIONS);
        order
            .filter(|name| always(name) || varies(name))
            .map(str::to_owned)
            .collect()
    };
    by_workload
        .into_iter()
        .map(|(workload, entries)| (workload, axes(&entries)))
        .collect()
}

/// Whether runs count as made in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pairs {
    /// If runs of A and of B were made in turns, by their times
    Auto,
    /// The first run of A with the first of B, and so on
    Yes,
    /// Never
    No,
}

/// How the runs of two sides were made.
///
/// # Errors
/// If pairs are asked for where sides have different numbers of runs.
pub(super) fn design(sides: [&[Source]; 2], pairs: Pairs) -> Result<Design, String> {
    let runs = sides.map(<[Source]>::len);
    if pairs == Pairs::Yes && runs[0] != runs[1] {
        return Err(format!(
            "--pairs yes needs as many runs of A as of B, and these are {} and {}",
            runs[0], runs[1]
        ));
    }
    if runs == [1, 1] {
        return Ok(Design::Single);
    }
    let turns = match pairs {
        Pairs::Yes => Some((0..runs[0]).map(|run| [run, run]).collect()),
        Pairs::Auto => turns(sides),
        Pairs::No => None,
    };
    Ok(match turns {
        Some(turns) => Design::Pairs(turns),
        None if runs.contains(&1) => Design::Single,
        None => Design::Apart,
    })
}

/// Runs that were made in turns: in the order of time, each two are one of A and one of B. A last
/// one may be alone, where a series was broken off.
fn turns(sides: [&[Source]; 2]) -> Option<Vec<[usize; 2]>> {
    let mut runs = Vec::new();
    for (side, sources) in sides.iter().enumerate() {
        for (run, source) in sources.iter().enumerate() {
            runs.push((start_s(source)?, side, run));
        }
    }
    runs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let pairs = runs.chunks_exact(2).map(|two| match (two[0].1, two[1].1) {
        (0, 1) => Some([two[0].2, two[1].2]),
        (1, 0) => Some([two[1].2, two[0].2]),
        _ => None,
    });
    let pairs: Vec<[usize; 2]> = pairs.collect::<Option<_>>()?;
    (pairs.len() >= 2).then_some(pairs)
}

/// When a run began, in seconds since 1970, where it says so.
fn start_s(source: &Source) -> Option<f64> {
    let begun = source.environment.as_ref().map(|held| held.started_unix_s);
    let first = || {
        let times = source.entries.iter().filter_map(|entry| entry.unix_time_s);
        times.filter(|time| *time > 0.0).min_by(f64::total_cmp)
    };
    begun.filter(|time| *time > 0.0).or_else(first)
}

#[cfg(test)]
mod tests {
    use super::super::testing::source;
    use super::*;

    fn starting(times: &[f64]) -> Vec<Source> {
        let at = |time: &f64| {
            let mut source = source(&[("fused", 8, 100.0)]);
            source.entries[0].unix_time_s = Some(*time);
            source
        };
        times.iter().map(at).collect()
    }

    #[test]
    fn turns_are_found_by_time() {
        let of = |a: &[f64], b: &[f64], pairs| design([&starting(a), &starting(b)], pairs);
        let pairs = |pairs: &[[usize; 2]]| Ok(Design::Pairs(pairs.to_vec()));
        assert_eq!(
            of(&[1.0, 3.0], &[2.0, 4.0], Pairs::Auto),
            pairs(&[[0, 0], [1, 1]])
        );
        // The order of the list does not matter, nor which comes first.
        assert_eq!(
            of(&[4.0, 1.0], &[2.0, 3.0], Pairs::Auto),
            pairs(&[[1, 0], [0, 1]])
        );
        assert_eq!(
            of(&[1.0, 3.0, 5.0], &[2.0, 4.0], Pairs::Auto),
            pairs(&[[0, 0], [1, 1]])
        );
        assert_eq!(of(&[1.0, 2.0], &[3.0, 4.0], Pairs::Auto), Ok(Design::Apart));
        assert_eq!(of(&[1.0, 3.0], &[2.0, 4.0], Pairs::No), Ok(Design::Apart));
        assert_eq!(
            of(&[1.0, 2.0], &[3.0, 4.0], Pairs::Yes),
            pairs(&[[0, 0], [1, 1]])
        );
        assert_eq!(of(&[0.0, 0.0], &[0.0, 0.0], Pairs::Auto), Ok(Design::Apart));
        assert_eq!(of(&[1.0], &[2.0], Pairs::Auto), Ok(Design::Single));
        assert_eq!(of(&[1.0], &[2.0, 3.0], Pairs::Auto), Ok(Design::Single));
        assert!(
            of(&[1.0], &[2.0, 3.0], Pairs::Yes)
                .unwrap_err()
                .contains("1 and 2")
        );
    }

    #[test]
    fn runs_of_one_side_in_different_states_of_the_cache_are_not_of_one_point() {
        let run = |l2: &str| {
            let mut source = source(&[("fused", 8, 1.0)]);
            source.entries[0].l2 = Some(l2.into());
            source
        };
        let names = |a: &[Source], b: &[Source]| match pair([a, b]).unwrap() {
            (PairedBy::Axes { names, .. }, rows) => (names.contains(&"l2".to_owned()), rows.len()),
            (by, _) => panic!("{by:?}"),
        };
        let [hot, cold, clean] = ["hot", "cold", "clean"].map(run);
        // A state that differs between the sides is the question itself, and one of the changes.
        let (a, b) = ([cold.clone()], [clean.clone()]);
        assert_eq!(names(&a, &b), (false, 1));
        let (changes, _) = super::super::changes::changes([&a, &b]);
        let state = changes.iter().find(|held| held.field.contains("cache"));
        let state = state.map(|held| (held.a.join(""), held.b.join("")));
        assert_eq!(state, Some(("cold".to_owned(), "clean".to_owned())));
        assert_eq!(names(&[cold.clone(), clean.clone()], &[hot]), (true, 3));
        assert_eq!(names(&[cold.clone(), clean], &[cold]), (true, 2));
    }

    #[test]
    fn rows_without_identities_are_paired_by_axes() {
        let one = [source(&[("fused", 8, 1.0), ("eager", 8, 2.0)])];
        let mut other = [source(&[("eager", 8, 2.0), ("fused", 9, 3.0)])];
        // An axis that only one side has tells nothing.
        for entry in &mut other[0].entries {
            entry.parameters.insert("extra".into(), 1i64.into());
        }
        let (by, rows) = pair([&one, &other]).unwrap();
        let PairedBy::Axes { names, .. } = by else {
            panic!("{by:?}")
        };
        assert_eq!(names, ["workload", "backend", "phase", "T"]);
        let both: Vec<[bool; 2]> = rows.iter().map(|row| [row.has(0), row.has(1)]).collect();
        assert_eq!(both, [[true, false], [true, true], [false, true]]);
        assert_eq!(telling_axes(&rows)["semicrf"], ["T", "extra", "backend"]);
        other[0].entries[1] = other[0].entries[0].clone();
        other[0].entries[1]
            .parameters
            .insert("extra".into(), 2i64.into());
        let error = pair([&one, &other]).err().unwrap();
        assert!(
            error.contains("several rows are about") && error.contains("T=8"),
            "{error}"
        );
    }
}
