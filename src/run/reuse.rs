//! Results of earlier runs that this one can take: those of equal points, settings of measurement,
//! program and device.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::identity::{PointId, RunId};
use crate::record::environment::RunIdentity;
use crate::record::find;
use crate::record::recorded::Recorded;
use crate::row::Row;
use crate::row::outcome::Status;

/// Sections of a manifest that say how points are measured.
const MEASURING: [&str; 2] = ["measure", "null"];

/// Results of some points.
pub(super) type Results = HashMap<PointId, (RunId, Row)>;

/// The right results of `wanted` points in runs below `results`, newest run first.
pub(super) fn find(
    results: &Path,
    own: &RunIdentity,
    manifest: &str,
    wanted: &HashSet<PointId>,
) -> Results {
    let mut found = Results::new();
    let measuring = measuring(manifest);
    let runs = find::list(results).unwrap_or_default().runs;
    for run in runs.into_iter().filter_map(|found| found.run.ok()) {
        let is_alike = run.environment.identity.run != own.run
            && is_alike(own, &run)
            && run
                .manifest_text()
                .is_ok_and(|text| self::measuring(&text) == measuring);
        let Some(contents) = is_alike.then(|| run.contents().ok()).flatten() else {
            continue;
        };
        let rows = (0..contents.len()).filter(|&index| wanted.contains(&contents.point(index)));
        for row in rows.filter_map(|index| contents.row(index).ok()) {
            if row.outcome.status == Status::Ok && !found.contains_key(&row.point) {
                let from = row.reused_from.unwrap_or(run.environment.identity.run);
                found.insert(row.point, (from, row));
            }
        }
    }
    found
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
