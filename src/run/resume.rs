//! The folder of a run as an earlier, interrupted attempt left it.

use std::collections::HashSet;

use super::tables::{self, Tally};
use super::{Ended, Event, LeftOut, Progress, Request, RunError, open_folder, standings};
use crate::guides::About;
use crate::hardware::DeviceIdentity;
use crate::identity::{PointId, RunId};
use crate::manifest::Manifest;
use crate::plan::Outline;
use crate::record::folder::RunFolder;
use crate::record::journal::{Contents, Journal, Standing};

/// The folder of a run, its journal, and the points that have results.
pub(super) struct Resumed {
    pub(super) run: RunId,
    pub(super) folder: RunFolder,
    pub(super) journal: Journal,
    pub(super) contents: Contents,
    /// Points with results that are not tried again.
    pub(super) finished: HashSet<PointId>,
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
        points: Vec<PointId>,
        progress: &dyn Progress,
    ) -> Result<Self, RunError> {
        let folder = open_folder(manifest, run, request.fresh, &points)?;
        let (journal, contents) = folder.journal(run)?;
        if contents.torn_bytes > 0 {
            let torn = format!(
                "the journal's last line was torn; {} bytes dropped",
                contents.torn_bytes
            );
            progress.event(&Event::Warning(&torn));
        }
        let standings = standings(&contents, &folder)?;
        let finished = standings
            .iter()
            .filter(|row| !request.retry.covers(row))
            .map(|row| row.point)
            .collect();
        Ok(Resumed {
            run,
            folder,
            journal,
            contents,
            finished,
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
        outline: &Outline<'_>,
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
            left_out: LeftOut::of(outline),
            device: &name,
        });
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
        tables::write(&self.folder, &self.contents, &self.points, &about, exports)?;
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
