//! Comparing two recorded sides, point by point: the changes around them, which points are slower,
//! faster or equal, and whether that is shown.
//!
//! [`pairing`] finds rows of one point, [`median`] says where one run's samples lie, [`spread`]
//! how far apart runs of one program are on a machine, [`estimate`] infers a ratio from them,
//! [`groups`] one for several points together, [`verdict`] judges it, [`changes`] lists other
//! differences, [`inputs`] finds points that were measured on other inputs, [`autotuned`] those for
//! which autotuners chose otherwise, [`metrics`] compares values beside times, [`fail_on`] has the
//! conditions of an exit code; [`render`] makes text of the comparison. [`aa`] tries the method on
//! runs of one program.
//!
//! Architecture invariant: like [`crate::report`], this module reads files alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::report::source::Source;
use sweeper_model::row::entry::Entry;
use sweeper_model::status::Status;

pub mod verdict;
pub mod estimate;
pub mod spread;
pub mod pairing;
pub mod groups;
pub mod changes;
mod inputs;
mod autotuned;
pub mod metrics;
pub mod fail_on;
pub mod render;
pub mod aa;
mod median;
#[cfg(test)]
mod testing;

use changes::Change;
use estimate::{Design, Estimate, Method};
use groups::Group;
use median::Centre;
use metrics::Metric;
use pairing::{PairedBy, Pairs, Rows};
use spread::Spread;
use verdict::{Rule, Verdict};

/// How to compare.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When a difference counts.
    pub rule: Rule,
    /// Whether runs count as made in pairs.
    pub pairs: Pairs,
    /// How far apart runs of one program lie on these machines.
    pub spread: Spread,
    /// Axes to make groups by, each in turn: `backend`, `T`.
    pub by: Vec<String>,
}

impl Settings {
    /// What an estimate shows, with its corrected probability: a guess about the machine tells no
    /// two single runs apart.
    fn verdict(&self, estimate: &Estimate, p: f64) -> Verdict {
        let is_guess = estimate.method == Method::Spread && !self.spread.tells_single_runs();
        match self.rule.verdict(estimate, p) {
            Verdict::Faster | Verdict::Slower if is_guess => Verdict::Inconclusive,
            verdict => verdict,
        }
    }
}

/// How digests of a point's outputs, or of its inputs, compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Digests {
    /// Equal bits in all runs that have a digest.
    Identical,
    /// Other bits in B than in A.
    Changed,
    /// Several digests in the runs of one side, some of them on both.
    Vary,
    /// One side does not say.
    Unknown,
}

impl Digests {
    fn of([a, b]: [BTreeSet<&str>; 2]) -> Self {
        match () {
            () if a.is_empty() || b.is_empty() => Digests::Unknown,
            () if a.is_disjoint(&b) => Digests::Changed,
            () if a.len() == 1 && b.len() == 1 => Digests::Identical,
            () => Digests::Vary,
        }
    }

    /// True if some runs are known to differ.
    pub fn differ(self) -> bool {
        matches!(self, Digests::Changed | Digests::Vary)
    }
}

/// One point on both sides.
#[derive(Clone, Debug)]
pub struct Point {
    /// The point's identity in full, where rows have one.
    pub id: Option<String>,
    /// The values that tell the point from others, in words.
    pub label: String,
    /// All its axes.
    pub axes: BTreeMap<String, String>,
    /// Geometric mean of the runs' medians in nanoseconds, for A and B.
    pub median_ns: [Option<f64>; 2],
    /// How many runs of A and B ended in each status.
    pub statuses: [BTreeMap<Status, usize>; 2],
    /// Why the first run that failed did, for A and B.
    pub reasons: [Option<Arc<str>>; 2],
    /// The ratio of B to A, where both were measured, and not on other inputs.
    pub estimate: Option<Estimate>,
    /// The estimate's probability, corrected for all comparisons of this kind.
    pub p: Option<f64>,
    /// The verdict on the ratio.
    pub verdict: Option<Verdict>,
    /// How the point's outputs compare; unknown where its inputs differ.
    pub digests: Digests,
    /// How its inputs compare, where a function makes them (`inputs_from`).
    pub inputs: Digests,
    /// Configurations that autotuners chose on one side alone, for A and B: a reason for another
    /// time or other bits, and no refusal.
    pub autotuned: [Vec<String>; 2],
    /// The metrics that both sides have; none where its inputs differ.
    pub metrics: Vec<Metric>,
}

impl Point {
    /// True if one side has a status that the other lacks.
    pub fn has_other_status(&self) -> bool {
        let kinds = |side: &BTreeMap<Status, usize>| side.keys().copied().collect::<Vec<_>>();
        kinds(&self.statuses[0]) != kinds(&self.statuses[1])
    }

    /// True if autotuners chose otherwise, or one side does not say.
    pub fn has_other_choices(&self) -> bool {
        self.autotuned.iter().any(|side| !side.is_empty())
    }

    /// True if a larger part of B's runs failed than of A's, or a smaller part is `ok`.
    pub fn is_worse(&self) -> bool {
        let share = |side: &BTreeMap<Status, usize>, is: fn(Status) -> bool| {
            let all: usize = side.values().sum();
            let those = side.iter().filter(|(status, _)| is(**status));
            those.map(|(_, count)| *count).sum::<usize>() as f64 / all.max(1) as f64
        };
        let [a, b] = [&self.statuses[0], &self.statuses[1]];
        let failed = |status: Status| !status.is_fine();
        let ok = |status: Status| status == Status::Ok;
        share(b, failed) > share(a, failed) || share(b, ok) < share(a, ok)
    }
}

/// One side, in brief.
#[derive(Clone, Debug, Serialize)]
pub struct SideOutline {
    /// The runs' folders or files.
    pub origins: Vec<String>,
    /// Runs' identities, each once.
    pub runs: Vec<String>,
    /// The machines' names, each once.
    pub machines: Vec<String>,
}

/// Two sides held against each other: ratios are times of B over times of A.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// A and B.
    pub sides: [SideOutline; 2],
    /// How their runs were made.
    pub design: Design,
    /// How rows were paired.
    pub paired_by: PairedBy,
    /// When a difference counts.
    pub rule: Rule,
    /// The spread between runs that is assumed where runs do not show it.
    pub spread: Spread,
    /// Differences between the surroundings of the sides.
    pub changes: Vec<Change>,
    /// Warnings to read before the ratios.
    pub warnings: Vec<String>,
    /// Points that both sides have, in the order of A.
    pub points: Vec<Point>,
    /// Labels of points that only A or only B has.
    pub only: [Vec<String>; 2],
    /// All points together, then each axis that was asked for.
    pub groups: Vec<Group>,
}

impl Comparison {
    /// How many points have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let is_it = |point: &&Point| point.verdict == Some(verdict);
        self.points.iter().filter(is_it).count()
    }
}

/// Why two sides can't be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The sides can be compared, but not with these settings.
    #[error("{0}")]
    Settings(String),
    /// The rows of the sides have no point in common.
    #[error("{0}")]
    Rows(String),
}

/// Compares B with A.
///
/// # Errors
/// Rows that can't be paired, sides that share no point, or an axis that none has.
pub fn compare(sides: [&[Source]; 2], settings: &Settings) -> Result<Comparison, CompareError> {
    for (name, sources) in [("A", sides[0]), ("B", sides[1])] {
        if sources.iter().all(|source| source.entries.is_empty()) {
            let message = format!("{name} has no rows: there is nothing to compare");
            return Err(CompareError::Rows(message));
        }
    }
    let design = pairing::design(sides, settings.pairs).map_err(CompareError::Settings)?;
    let (paired_by, rows) = pairing::pair(sides).map_err(CompareError::Rows)?;
    let names = pairing::telling_axes(&rows);
    let label = |rows: &Rows<'_>| {
        let entry = rows.any();
        entry.map_or_else(String::new, |entry| label(entry, &names))
    };
    let only = [0, 1].map(|side| {
        let lonely = rows.iter().filter(|rows| !rows.has(1 - side));
        lonely.map(label).collect::<Vec<String>>()
    });
    let both: Vec<&Rows<'_>> = rows
        .iter()
        .filter(|rows| rows.has(0) && rows.has(1))
        .collect();
    if both.is_empty() {
        let message = "A and B have no point in common; `sweeper show` lists what a run has";
        return Err(CompareError::Rows(message.to_owned()));
    }
    let centres: Vec<[Vec<Option<Centre>>; 2]> = both.iter().map(|rows| centres(rows)).collect();
    let mut points: Vec<Point> = both
        .iter()
        .zip(&centres)
        .map(|(rows, centres)| point(rows, label(rows), centres, (&design, settings)))
        .collect();
    give_verdicts(&mut points, settings);
    let groups =
        groups::groups(&centres, &points, &design, settings).map_err(CompareError::Settings)?;
    let (around, mut warnings) = changes::changes(sides);
    let of_points = [inputs::change(&both), autotuned::change(&points)];
    let changes = of_points.into_iter().flatten().chain(around).collect();
    warnings.extend(warnings_about(sides, &design, &points, settings));
    Ok(Comparison {
        sides: sides.map(outline),
        design,
        paired_by,
        rule: settings.rule,
        spread: settings.spread.clone(),
        changes,
        warnings,
        points,
        only,
        groups,
    })
}

fn label(entry: &Entry, names: &pairing::TellingAxes) -> String {
    let word = |name: &String| {
        let value = entry.axis(name)?;
        Some(match name.as_str() {
            "workload" | "backend" | "phase" | "dtype" => value.to_string(),
            _ => format!("{name}={value}"),
        })
    };
    let names = names.get(&*entry.workload).into_iter().flatten();
    names.filter_map(word).collect::<Vec<_>>().join(" ")
}

fn centres(rows: &Rows<'_>) -> [Vec<Option<Centre>>; 2] {
    let centre = |entry: &Option<&Entry>| {
        let entry = entry.filter(|entry| entry.is_ok())?;
        Centre::of(entry.times.as_ref()?, &entry.samples_ns)
    };
    [0, 1].map(|side| rows.sides[side].iter().map(centre).collect())
}

fn point(
    rows: &Rows<'_>,
    label: String,
    centres: &[Vec<Option<Centre>>; 2],
    (design, settings): (&Design, &Settings),
) -> Point {
    let entry = rows.any();
    let axes = entry.map_or_else(BTreeMap::new, all_axes);
    let median_ns = [0, 1].map(|side| {
        let logs: Vec<f64> = centres[side]
            .iter()
            .flatten()
            .map(|centre| centre.log)
            .collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (!logs.is_empty()).then(|| mean.exp())
    });
    let present = |side: usize| rows.sides[side].iter().flatten();
    let statuses = [0, 1].map(|side| {
        let mut counts = BTreeMap::new();
        present(side).for_each(|entry| *counts.entry(entry.status).or_insert(0) += 1);
        counts
    });
    let reasons = [0, 1].map(|side| {
        let mut failed = present(side).filter(|entry| entry.status != Status::Ok);
        failed.next().and_then(|entry| entry.reason.clone())
    });
    let inputs = inputs::of(rows);
    // Neither times nor results on other inputs can be compared.
    let (estimate, digests, metrics) = match inputs.differ() {
        true => (None, Digests::Unknown, Vec::new()),
        false => (
            Estimate::of(design, [&centres[0], &centres[1]], &settings.spread),
            digests(rows),
            metrics::of(rows, settings),
        ),
    };
    Point {
        id: entry
            .and_then(|entry| entry.point)
            .map(|point| point.0.hex()),
        label,
        axes,
        median_ns,
        statuses,
        reasons,
        estimate,
        p: None,
        verdict: None,
        digests,
        inputs,
        autotuned: autotuned::of(rows),
        metrics,
    }
}

fn all_axes(entry: &Entry) -> BTreeMap<String, String> {
    let named = entry.parameters.keys().chain(entry.values.keys());
    let names = named
        .map(|name| &**name)
        .chain(sweeper_model::row::entry::DIMENSIONS);
    names
        .filter(|name| *name != "device_name")
        .filter_map(|name| Some((name.to_owned(), entry.axis(name)?.to_string())))
        .collect()
}

fn digests(rows: &Rows<'_>) -> Digests {
    let of = |side: usize| -> BTreeSet<&str> {
        let entries = rows.sides[side].iter().flatten();
        entries
            .filter(|entry| entry.is_ok())
            .filter_map(|entry| entry.measurement.as_ref()?.output_digest.as_deref())
            .collect()
    };
    Digests::of([of(0), of(1)])
}

fn give_verdicts(points: &mut [Point], settings: &Settings) {
    let estimates = points.iter().filter_map(|point| point.estimate);
    let p: Vec<f64> = estimates.map(|estimate| estimate.p).collect();
    let mut adjusted = settings.rule.correction.adjust(&p).into_iter();
    for point in points {
        if let Some(estimate) = &point.estimate {
            point.p = adjusted.next();
            point.verdict = point.p.map(|p| settings.verdict(estimate, p));
        }
    }
}

fn outline(sources: &[Source]) -> SideOutline {
    let once = |values: BTreeSet<String>| values.into_iter().collect();
    let identities = sources
        .iter()
        .filter_map(|source| source.environment.as_ref());
    SideOutline {
        origins: sources
            .iter()
            .map(|source| source.origin.display().to_string())
            .collect(),
        runs: once(
            identities
                .map(|held| held.identity.run.to_string())
                .collect(),
        ),
        machines: once(
            sources
                .iter()
                .map(Source::machine)
                .filter(|name| !name.is_empty())
                .collect(),
        ),
    }
}

/// Warnings about the sides and about how their runs were made.
fn warnings_about(
    sides: [&[Source]; 2],
    design: &Design,
    points: &[Point],
    settings: &Settings,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for source in sides.iter().copied().flatten() {
        let origin = source.origin.display();
        warnings.extend(
            source
                .warnings
                .iter()
                .map(|warning| format!("{origin}: {warning}")),
        );
    }
    let own: BTreeSet<&std::path::Path> = sides[0].iter().map(|source| &*source.origin).collect();
    for source in sides[1] {
        if own.contains(&*source.origin) {
            let origin = source.origin.display();
            warnings.push(format!("{origin} is on both sides"));
        }
    }
    let compared = points
        .iter()
        .filter(|point| point.estimate.is_some())
        .count();
    if let Design::Pairs(pairs) = design
        && (estimate::LEAST_SIGNED..).contains(&pairs.len())
    {
        let needed = estimate::pairs_needed(compared, settings.rule.correction);
        if pairs.len() < needed {
            warnings.push(format!(
                "{} pairs of runs cannot show a difference at one of {compared} points; {needed} can",
                pairs.len()
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests;
