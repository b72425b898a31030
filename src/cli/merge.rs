//! `sweeper merge`: one journal of a run that several processes measured.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::runs;
use super::screen::Screen;
use crate::run::{RunError, shards};
use sweeper_manifest::diagnostics::Diagnostics;
use sweeper_manifest::render::{Colour, render};
use sweeper_manifest::{Manifest, Overrides, Sources, registry};
use sweeper_results::guides::About;
use sweeper_results::record::find;
use sweeper_results::record::folder::RunFolder;
use sweeper_results::record::merge::{self, Merged};
use sweeper_results::record::parts;
use sweeper_results::record::recorded::Recorded;

/// Arguments of `merge`.
#[derive(Args)]
pub struct MergeArgs {
    /// First digits of the run's id, or its folder
    run: String,
    /// Copies of the folder, with other shards of the run
    folders: Vec<PathBuf>,
    #[command(flatten)]
    place: runs::Place,
}

/// Joins journals.
pub fn merge(args: &MergeArgs, screen: &Screen) -> Exit {
    let failed = |reason: &dyn std::fmt::Display| {
        screen.error(&reason.to_string());
        Exit::Files
    };
    let run = match find::find(&args.run, &args.place.output_dir) {
        Ok(run) => run,
        Err(message) => return failed(&message),
    };
    let waits = |holder: &sweeper_results::record::hold::Holder, patience: std::time::Duration| {
        let seconds = patience.as_secs();
        screen.note(&format!(
            "waiting {seconds} s for a sign of life of {holder}"
        ));
    };
    let folder = match RunFolder::open_part(&run.path, sweeper_model::shard::Part::Whole, &waits) {
        Ok(folder) => folder,
        Err(error) => return failed(&error),
    };
    let usage = shards::usage(&run.path);
    let merged = match merge::merge(&folder, &run, &args.folders) {
        Ok(merged) => merged,
        Err(error) => return failed(&error),
    };
    let written = shards::write_usage(&folder, usage.as_ref());
    drop(folder);
    let made = written.map_err(RunError::from).and_then(|()| tables(&run));
    if let Err(error) = made {
        return failed(&error);
    }
    tell(&merged, &run, screen);
    Exit::Fine
}

/// Says what became of the journals.
fn tell(merged: &Merged, run: &Recorded, screen: &Screen) {
    let missing = merged.planned.saturating_sub(merged.points);
    if merged.plans > 1 {
        screen.warning(&format!(
            "these shards measured shares of {} different plans (other `[limits]`?): points that none of them has \
             may be missing",
            merged.plans
        ));
    }
    if !merged.left.is_empty() {
        let left = merged.left.join("`, `");
        screen.note(&format!("left in shards/, as no files of shards: `{left}`"));
    }
    if screen.json {
        screen.json(&json!({
            "folder": run.path, "journals": merged.journals, "rows": merged.rows,
            "points": merged.planned, "missing": missing,
        }));
        return;
    }
    screen.line(&format!(
        "{} rows of {} journals, {}",
        merged.rows,
        merged.journals,
        match missing {
            _ if merged.planned == 0 =>
                "of how many points is not known: the folder has no plan.json".to_owned(),
            0 => format!("all {} points of the plan", merged.planned),
            _ => format!(
                "{} of {} points of the plan; `sweeper run` of the manifest measures the others",
                merged.points, merged.planned
            ),
        }
    ));
    screen.line(&format!("results: {}", run.path.display()));
}

/// Makes tables and exports of the rows that a run's journals hold now.
fn tables(run: &Recorded) -> Result<bool, RunError> {
    let path = run.path.join("manifest.toml");
    let unusable = |wrong: Diagnostics| {
        let reason = render(&wrong, Colour::Never);
        let reason = reason.lines().next().unwrap_or_default();
        RunError::Impossible(format!("tables and exports were not made: {reason}"))
    };
    let sources = Sources::read(&path).map_err(unusable)?;
    let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry());
    let manifest = manifest.map_err(unusable)?;
    let identity = &run.environment.identity;
    let about = About::new(identity.run, &manifest, &identity.devices);
    shards::make(&run.path, &about, &manifest.output.exports)
}

/// Makes the tables of a run that shards have measured, if `name` is one: no shard may have found
/// all others done.
pub(super) fn tables_on_demand(name: &str, dir: &Path, screen: &Screen) {
    let path = Path::new(name);
    let is_elsewhere = !path.is_dir() && name.contains(['/', '.']);
    let found = match is_elsewhere {
        true => None,
        false => find::find(name, dir).ok(),
    };
    let Some(run) = found else { return };
    if parts::shards(&run.path).is_ok_and(|shards| shards.is_empty()) {
        return;
    }
    if let Err(error) = tables(&run) {
        screen.warning(&error.to_string());
    }
}
