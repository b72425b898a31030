//! The folder of a run as an earlier, interrupted attempt left it.

use std::collections::{HashMap, HashSet};

use super::shards;
use super::tables::{self, Tally};
use super::work::Work;
use super::{Ended, Event, LeftOut, Progress, Request, RunError, open_folder, standings};
use sweeper_manifest::Manifest;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::{PointId, RunId};
use sweeper_model::shard::Part;
use sweeper_results::guides::About;
use sweeper_results::record::contents::{Contents, Standing};
use sweeper_results::record::folder::RunFolder;
use sweeper_results::record::journal::Journal;
use sweeper_results::record::state::State;

/// The folder of a run, its journal, and the points that have results.
pub(super) struct Resumed {
    pub(super) run: RunId,
    pub(super) folder: RunFolder,
    pub(super) journal: Journal,
    pub(super) contents: Contents,
    /// Points with results that are not tried again.
    pub(super) finished: HashSet<PointId>,
    /// Numbers of earlier rows of points that are tried again.
    pub(super) tries: HashMap<PointId, u32>,
    standings: Vec<Standing>,
    points: Vec<PointId>,
}

impl Resumed {
    /// Opens the folder of a run, and reads its journal.
    ///
    /// # Errors
    /// A folder or a journal that can't be read, or belongs to another run.
    pub(super) fn open(
        run: RunId,
        manifest: &Manifest,
        request: &Request,
        work: &Work<'_>,
        progress: &dyn Progress,
    ) -> Result<Self, RunError> {
        let points = work.points.clone();
        let folder = open_folder(manifest, run, request, &points, progress)?;
        if let Some(plan) = work.digest() {
            folder.check_plan(plan, work.run_points)?;
        }
        let (journal, contents) = folder.journal(run, work.digest())?;
        if contents.torn_bytes > 0 {
            let torn = format!(
                "the journal's last line was torn; {} bytes dropped",
                contents.torn_bytes
            );
            progress.event(&Event::Warning(&torn));
        }
        let mut standings = standings(&contents, &folder)?;
        if let Part::Shard(_) = folder.part() {
            let own: HashSet<PointId> = points.iter().copied().collect();
            standings.retain(|row| own.contains(&row.point));
        }
        let (again, finished): (Vec<&Standing>, Vec<&Standing>) =
            standings.iter().partition(|row| request.retry.covers(row));
        let finished = finished.into_iter().map(|row| row.point).collect();
        let again = again.into_iter();
        let tries = again.map(|row| (row.point, row.earlier_rows + 1)).collect();
        Ok(Resumed {
            run,
            folder,
            journal,
            contents,
            finished,
            tries,
            standings,
            points,
        })
    }

    /// Number of points that need no measurement.
    pub(super) fn reused(&self) -> usize {
        let points = self.points.iter();
        points.filter(|id| self.finished.contains(id)).count()
    }

    /// Announces the run and the points that are left.
    pub(super) fn announce(
        &self,
        left_out: LeftOut,
        devices: &[DeviceIdentity],
        progress: &dyn Progress,
    ) {
        let name = match devices.len() {
            1 => devices[0].name.clone(),
            count => format!("{count} x {}", devices[0].name),
        };
        progress.event(&Event::Started {
            run: self.run,
            folder: self.folder.path(),
            points: self.points.len(),
            finished: self.reused(),
            left_out,
            device: &name,
        });
    }

    /// How far the part is.
    pub(super) fn state(&self, work: &Work<'_>) -> State {
        let finished = self.standings.iter();
        let finished = finished.filter(|row| self.finished.contains(&row.point));
        let tally = Tally::of(finished.cloned());
        let failures = tally.failed();
        State {
            plan: work.digest(),
            run_points: work.run_points,
            done: self.reused(),
            statuses: tally.statuses,
            failures,
            journal_bytes: self.journal.bytes(),
            ..State::new(self.folder.hold().holder().clone(), self.points.len())
        }
    }

    /// True if all points have results, and the folder has its description.
    pub(super) fn is_complete(&self) -> bool {
        self.reused() == self.points.len() && self.folder.is_described()
    }

    /// Ends a complete run: writes tables and exports that do not match the journal.
    ///
    /// # Errors
    /// A file that can't be written.
    pub(super) fn end(
        self,
        manifest: &Manifest,
        devices: &[DeviceIdentity],
    ) -> Result<Ended, RunError> {
        let about = About::new(self.run, manifest, devices);
        let exports = &manifest.output.exports;
        match self.folder.part() {
            Part::Whole => {
                let order = tables::order(self.points.iter().copied());
                tables::write(&self.folder, &self.contents, &order, &about, exports)?;
            }
            Part::Shard(shard) => shards::finish(&self.folder, shard, &about, exports)?,
        }
        let reused = self.reused();
        let tally = Tally::of(self.standings);
        Ok(Ended::with_nothing_to_do(
            self.run,
            &self.folder,
            tally,
            reused,
        ))
    }
}
