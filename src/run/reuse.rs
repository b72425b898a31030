//! Results of earlier runs that this one can take: those of equal points, settings of measurement,
//! program and device. A point's identity has the digest of its backend's source, so that a point
//! of an edited one is another point, and never taken.

use std::collections::{HashMap, HashSet};

use sweeper_manifest::Manifest;
use sweeper_manifest::difference::{self, Change};
use sweeper_model::identity::{PointId, RunId};
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Cause, Status};
use sweeper_model::tuning::family_of;
use sweeper_results::record::environment::RunIdentity;
use sweeper_results::record::find;
use sweeper_results::record::recorded::Recorded;

/// Sections of a manifest that say how points are measured.
const MEASURING: [&str; 2] = ["measure", "null"];

/// Keys of the backends that a manifest declares.
const BACKENDS: &str = "backend.";

/// Keys of its workloads. Points of a changed one are others, as those of a changed backend are.
const WORKLOADS: &str = "workload.";

/// Whose results are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// None.
    Nothing,
    /// Those of runs from which this one differs in declared backends and workloads alone: their
    /// sources were edited, and the points of others need no measurement.
    Unedited,
    /// The right results of all earlier runs.
    All,
}

/// Results of some points.
pub(super) type Results = HashMap<PointId, (RunId, Row)>;

/// What earlier runs have of a run.
#[derive(Default)]
pub struct Earlier {
    /// The newest run that differs in declared backends and workloads alone, and in which keys.
    pub edited: Option<(RunId, Vec<Change>)>,
    pub(super) results: Results,
}

impl Earlier {
    /// The results of `wanted` points in earlier runs, newest run first.
    pub fn find(
        reuse: Reuse,
        own: &RunIdentity,
        manifest: &Manifest,
        resolved: &str,
        wanted: &HashSet<PointId>,
    ) -> Self {
        let mut earlier = Earlier::default();
        let mut cases = manifest.cases.iter();
        let is_declared = cases.any(|case| case.workload.declared.is_some());
        if reuse == Reuse::Nothing || (reuse == Reuse::Unedited && !is_declared) {
            return earlier;
        }
        let mut runs = runs(manifest, own, resolved);
        runs.sort_by(|(one, _), (other, _)| {
            let started = |run: &Recorded| run.environment.started_unix_s;
            started(other).total_cmp(&started(one))
        });
        for (run, changes) in runs {
            let is_of_parts = |key: &str| key.starts_with(BACKENDS) || key.starts_with(WORKLOADS);
            // Contents of a workload's files are in no key.
            let is_edited = run.environment.identity.run != own.run
                && changes.iter().all(|change| is_of_parts(&change.key));
            if is_edited || reuse == Reuse::All {
                earlier.take(&run, is_edited, &changes, wanted);
            }
            if is_edited && earlier.edited.is_none() {
                earlier.edited = Some((run.environment.identity.run, changes));
            }
        }
        earlier
    }

    /// Of edited runs the rows without a result, too: the next attempt of a run keeps them as well.
    fn take(
        &mut self,
        run: &Recorded,
        is_edited: bool,
        changes: &[Change],
        wanted: &HashSet<PointId>,
    ) {
        let Ok(contents) = run.contents() else {
            return;
        };
        let rows = (0..contents.len()).filter(|&index| wanted.contains(&contents.point(index)));
        for row in rows.filter_map(|index| contents.row(index).ok()) {
            if is_sampled_otherwise(&row, changes) {
                continue;
            }
            if row.outcome.status == Status::Ok || (is_edited && is_lasting(&row)) {
                let from = row.reused_from.unwrap_or(run.environment.identity.run);
                self.results.entry(row.point).or_insert((from, row));
            }
        }
    }

    /// The run that measured the result of a point.
    pub fn source(&self, point: PointId) -> Option<RunId> {
        self.results.get(&point).map(|(run, _)| *run)
    }

    /// How many points have results.
    pub fn len(&self) -> usize {
        self.results.len()
    }

    /// True if no point has a result.
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// The first file or key that was edited, and how many points are not measured again; none if
    /// nothing was edited.
    pub fn in_words(&self, points: usize) -> Option<String> {
        let (run, changes) = self.edited.as_ref()?;
        let key = changes.first().map_or("a file", |change| &change.key);
        let others = match changes.len().saturating_sub(1) {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        Some(format!(
            "{key}{others} changed since run {run}: {} of {points} points are to be measured, {} are taken from earlier runs",
            points - self.len(),
            self.len()
        ))
    }
}

/// Runs that differ in their manifests alone and measure alike, each with the keys that differ.
fn runs(manifest: &Manifest, own: &RunIdentity, resolved: &str) -> Vec<(Recorded, Vec<Change>)> {
    let wanted = measuring(resolved);
    let runs = find::list(&manifest.output.dir).unwrap_or_default().runs;
    let runs = runs.into_iter().filter_map(|found| found.run.ok());
    runs.filter_map(|run| {
        // A renamed manifest has the run's identity, and another folder.
        let is_itself =
            run.environment.identity.run == own.run && run.environment.name == manifest.name;
        if is_itself || !is_alike(own, &run) {
            return None;
        }
        let text = run.manifest_text().ok()?;
        let changes = difference::changes(&text, resolved);
        (measuring(&text) == wanted).then_some((run, changes))
    })
    .collect()
}

/// True if a row without a result tells of the program, not of the moment or of another point.
fn is_lasting(row: &Row) -> bool {
    let of_the_point = !matches!(row.outcome.status, Status::Pruned | Status::Skipped);
    let of_the_moment = [Cause::Surroundings, Cause::Time];
    of_the_point
        && !row
            .outcome
            .cause
            .is_some_and(|cause| of_the_moment.contains(&cause))
}

/// True if the configurations of a row's backend raced in one of the runs alone.
fn is_sampled_otherwise(row: &Row, changes: &[Change]) -> bool {
    let key = format!("{BACKENDS}{}.race", family_of(&row.backend));
    changes.iter().any(|change| change.key == key)
}

/// True if only the manifests differ.
fn is_alike(own: &RunIdentity, run: &Recorded) -> bool {
    let differences = own.differences(&run.environment.identity);
    differences.iter().all(|found| found.field == "manifest")
}

fn measuring(manifest: &str) -> Option<[Option<toml::Value>; 2]> {
    let table: toml::Table = manifest.parse().ok()?;
    Some(MEASURING.map(|section| table.get(section).cloned()))
}
