//! Whether a point was measured before, or how the nearest run that has it differs.

use std::fmt;

use serde::Serialize;

use crate::cli::place;
use crate::cli::target::Target;
use crate::run;
use crate::run::reuse::{Earlier, Reuse};
use sweeper_manifest::difference::{self, Change};
use sweeper_manifest::plan::{Plan, Planned};
use sweeper_model::identity::RunId;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_results::record::environment::RunIdentity;
use sweeper_results::record::find;
use sweeper_results::record::recorded::Recorded;

/// The record of a point in earlier runs.
#[derive(Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(super) enum Before {
    /// The run that `sweeper run` would go on with has it.
    Measured { run: RunId, status: Status },
    /// Another run has it, from which `sweeper run` takes it: these keys of other backends changed.
    Taken { run: RunId, changes: Vec<Change> },
    /// Another run has it, which differs in these fields: from its values to those of now.
    Elsewhere { run: RunId, changes: Vec<Change> },
    /// No run has it.
    Never { folder: String },
}

/// What earlier runs have of a plan's points, where declared backends were edited since.
pub fn earlier(plan: &Plan<'_>, target: &Target) -> Earlier {
    let manifest = plan.manifest();
    let mut cases = manifest.cases.iter();
    if !cases.any(|case| case.workload.declared.is_some()) {
        return Earlier::default();
    }
    let wanted = plan.points.iter().map(|point| point.id).collect();
    let (identity, resolved) = (identity(plan, target), manifest.resolved_toml());
    Earlier::find(Reuse::Unedited, &identity, manifest, &resolved, &wanted)
}

/// The identity of the run that would start now.
fn identity(plan: &Plan<'_>, target: &Target) -> RunIdentity {
    let manifest = plan.manifest();
    let (dir, _) = place::cache_dir(Some(manifest));
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let kind = plan.device.kind;
    RunIdentity::new(
        manifest.hash(),
        target.devices.clone(),
        run::toolchain_for(kind, &toolchain).identity(kind),
        // What can't be asked differs from all that was.
        run::interpreters(manifest).unwrap_or_else(|error| error.to_string()),
    )
}

/// True if a row is about the point, or was before its backend or its problem was edited.
fn is_about(row: &Row, plan: &Plan<'_>, point: &Planned) -> bool {
    let is_it = |number: &u32| plan.points[*number as usize].id == point.id;
    let block = plan
        .blocks
        .iter()
        .find(|block| block.points.iter().any(is_it));
    let case = plan.grid.case(point.point);
    let is_alike = || {
        let parameters = plan.grid.parameters(point.point);
        let mut all = parameters.iter();
        (case.workload.name, case.dtype) == (&*row.workload, row.dtype)
            && parameters.iter().count() == row.parameters.len()
            && all.all(|(name, value)| row.parameters.get(&**name) == Some(value))
    };
    let is_its_problem = block.is_some_and(|block| block.problem == row.problem) || is_alike();
    let is_its_backend = row.backend == plan.grid.backend(point.point).name;
    let is_its_kind = row.phase == point.point.phase && row.mode == point.mode.to_string();
    row.point == point.id || (is_its_problem && is_its_backend && is_its_kind)
}

pub(super) fn of(plan: &Plan<'_>, point: &Planned, target: &Target) -> Before {
    let manifest = plan.manifest();
    let identity = identity(plan, target);
    let found = find::list(&manifest.output.dir).unwrap_or_default().runs;
    let runs = found.into_iter().filter_map(|found| found.run.ok());
    let has_it = runs.filter_map(|run| {
        let rows = run.rows().unwrap_or_default();
        let row = rows.into_iter().find(|row| is_about(row, plan, point))?;
        Some((run, row.outcome.status))
    });
    let has_it: Vec<(Recorded, Status)> = has_it.collect();
    let of_run = |run: &Recorded| run.environment.identity.run;
    if let Some((run, status)) = has_it.iter().find(|(run, _)| of_run(run) == identity.run) {
        return Before::Measured {
            run: of_run(run),
            status: *status,
        };
    }
    let changes = |run: &Recorded| changes(run, &identity, &manifest.resolved_toml());
    // Not the newest run that was edited: where an edit was undone, the one before it measured.
    let earlier = earlier(plan, target);
    if let Some(run) = earlier.source(point.id) {
        let source = has_it.iter().find(|(held, _)| of_run(held) == run);
        let edited = || earlier.edited.map(|(_, changes)| changes);
        let changes = source.map(|(held, _)| changes(held)).or_else(edited);
        return Before::Taken {
            run,
            changes: changes.unwrap_or_default(),
        };
    }
    let nearest = has_it.iter().map(|(run, _)| (of_run(run), changes(run)));
    match nearest.min_by_key(|(_, changes)| changes.len()) {
        Some((run, changes)) => Before::Elsewhere { run, changes },
        None => Before::Never {
            folder: manifest.output.dir.display().to_string(),
        },
    }
}

/// Differences between an earlier run and the one that would start now; differences of manifests
/// key by key, where both can be read.
fn changes(run: &Recorded, now: &RunIdentity, manifest: &str) -> Vec<Change> {
    let then = &run.environment.identity;
    let differences = then.differences(now).into_iter();
    differences
        .flat_map(|difference| {
            let keys = match difference.field {
                "manifest" => run.manifest_text().unwrap_or_default(),
                _ => String::new(),
            };
            let keys = match keys.is_empty() {
                true => Vec::new(),
                false => difference::changes(&keys, manifest),
            };
            if !keys.is_empty() {
                return keys;
            }
            vec![Change {
                key: difference.field.to_owned(),
                from: Some(difference.own),
                to: Some(difference.other),
            }]
        })
        .collect()
}

impl fmt::Display for Before {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Before::Measured { run, status } => write!(
                out,
                "measured: run {run} has it as {status}; --fresh measures it again"
            ),
            Before::Never { folder } => write!(out, "to be measured: no run in {folder} has it"),
            Before::Taken { run, changes } => {
                write!(
                    out,
                    "not to be measured: taken from run {run}; since then, of other backends"
                )?;
                list(out, changes)
            }
            Before::Elsewhere { run, changes } => {
                write!(out, "to be measured: run {run} has it, but since then")?;
                list(out, changes)
            }
        }
    }
}

fn list(out: &mut fmt::Formatter<'_>, changes: &[Change]) -> fmt::Result {
    let none = "(none)";
    for Change { key, from, to } in changes {
        let from = from.as_deref().unwrap_or(none);
        let to = to.as_deref().unwrap_or(none);
        write!(out, "\n  {key}: {from} -> {to}")?;
    }
    Ok(())
}
