//! A session whose time is limited: no point is begun that can't end in time, by its prediction.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Event;
use super::RunError;
use super::anchors::ANCHOR;
use super::dispatch::Dispatch;
use super::reuse::Earlier;
use super::session::Session;
use super::time::{self, Over};
use sweeper_manifest::plan::PlannedBlock;
use sweeper_model::row::outcome::{Cause, Outcome, Status};
use sweeper_results::record::environment::RunIdentity;
use sweeper_results::record::folder::FolderError;

impl<'a> Session<'a> {
    /// Ends the measuring when the time is over: a prediction may have been wrong.
    pub(super) fn heed_time(&mut self) {
        let left = self.request.allowed.left(Instant::now());
        if left.is_some_and(|left| left.is_zero()) {
            self.over = self.over.or(self.request.allowed.first());
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// The time that a worker has left beside its blocks, in nanoseconds.
    pub(super) fn left_ns(&self, worker: usize, dispatch: &Dispatch<'a>) -> f64 {
        let Some(left) = self.request.allowed.left(Instant::now()) else {
            return f64::INFINITY;
        };
        let held = dispatch.hands[worker]
            .iter()
            .filter(|&&block| block != ANCHOR);
        let held_ns: f64 = held
            .map(|&block| self.rest_ns(dispatch.blocks[block]))
            .sum();
        left.as_secs_f64() * 1e9 - held_ns
    }

    /// Predicted time of a block's points without rows.
    fn rest_ns(&self, block: &PlannedBlock) -> f64 {
        let points = block.points.iter();
        let left = points.filter(|&&number| !self.is_finished(number));
        left.map(|&number| self.remaining.point_ns(number)).sum()
    }

    fn is_finished(&self, number: u32) -> bool {
        let id = &self.plan.points[number as usize].id;
        self.finished.contains(id)
    }

    /// True if a block ends in time.
    pub(super) fn fits(&self, block: &PlannedBlock, left_ns: f64) -> bool {
        left_ns.is_infinite() || self.rest_ns(block) <= left_ns
    }

    /// The points of a block without rows, the first that end in time.
    pub(super) fn within(&self, block: &PlannedBlock, left_ns: f64) -> Vec<u32> {
        let mut left_ns = left_ns;
        let mut points = Vec::new();
        for &number in &block.points {
            if self.is_finished(number) {
                continue;
            }
            if left_ns.is_finite() {
                let predicted_ns = self.remaining.point_ns(number);
                if predicted_ns > left_ns {
                    continue;
                }
                left_ns -= predicted_ns;
            }
            points.push(number);
        }
        points
    }

    /// Gives a worker that has nothing to do a part of a block, since no whole one ends in time; if
    /// no point does, the time is over.
    pub(super) fn give_part(
        &mut self,
        worker: usize,
        dispatch: &mut Dispatch<'a>,
    ) -> Result<(), RunError> {
        let left_ns = self.left_ns(worker, dispatch);
        if left_ns.is_infinite() || !dispatch.hands[worker].is_empty() {
            return Ok(());
        }
        let (blocks, of_case) = (&dispatch.blocks, &dispatch.of_case);
        let is_ready = |block: usize| self.is_ready(blocks[block], of_case);
        let has_some = |block: usize| !self.within(blocks[block], left_ns).is_empty();
        let part = |block: usize| is_ready(block) && has_some(block);
        let Some(block) = dispatch.schedule.next(worker, part) else {
            // Others may be waited for: kernels that are compiled, or cases.
            let waits = dispatch.schedule.order().into_iter();
            let waits = waits.filter(|&block| !is_ready(block)).count();
            if waits == 0 && !dispatch.schedule.is_empty() {
                self.over = self.over.or(self.request.allowed.first());
            }
            return Ok(());
        };
        match self.task(dispatch.blocks[block], worker, left_ns)? {
            None => self.done(block, dispatch),
            Some(task) => dispatch.give(worker, block, task),
        }
        Ok(())
    }

    /// Writes rows that say that there was no time, where people gave one.
    pub(super) fn declare_unmeasured(&mut self) -> Result<(), RunError> {
        let Some(Over::Given(longest)) = self.over else {
            return Ok(());
        };
        let reason = format!(
            "not measured: --max-time {} was over",
            time::in_words(longest)
        );
        let blocks = self.plan.blocks.iter();
        let points = blocks.flat_map(|block| block.points.iter().copied());
        let left: Vec<u32> = points.filter(|&number| !self.is_finished(number)).collect();
        for number in left {
            let outcome = Outcome::without_measurement(Status::Skipped, &*reason);
            self.finish(number, outcome.because_of(Cause::Time), 0)?;
            self.unmeasured += 1;
        }
        Ok(())
    }

    /// Takes results of earlier runs that are those of this one.
    pub(super) fn reuse(&mut self, own: &RunIdentity) -> Result<(), RunError> {
        let plan = self.plan;
        let blocks = plan.blocks.iter();
        let numbers = blocks.flat_map(|block| block.points.iter().copied());
        let left: Vec<u32> = numbers
            .filter(|&number| !self.is_finished(number))
            .collect();
        let ids = left.iter().map(|&number| plan.points[number as usize].id);
        let (how, resolved) = (self.request.reuse, &self.request.resolved);
        let mut found = Earlier::find(how, own, self.manifest, resolved, &ids.collect());
        if let Some(text) = found.in_words(left.len()) {
            self.progress.event(&Event::Edited(&text));
        }
        for number in left {
            let point = &plan.points[number as usize];
            let Some((run, earlier)) = found.results.remove(&point.id) else {
                continue;
            };
            let mut row = self.maker.describe(point);
            row.device_name = earlier.device_name;
            row.unix_time_s = earlier.unix_time_s;
            row.compile = earlier.compile;
            row.roofline_ns = earlier.roofline_ns;
            row.ceiling_flops_per_s = earlier.ceiling_flops_per_s;
            row.outcome = earlier.outcome;
            row.reused_from = Some(run);
            self.count_try(&mut row);
            self.journal.write(&row).map_err(FolderError::from)?;
            self.pruner.learn(&row);
            self.contests.learn(&row);
            self.finished.insert(row.point);
            self.taken += 1;
            self.written += 1;
            let label = plan.label(point);
            self.keeper.row(&row, &label, None, self.journal.bytes());
        }
        Ok(())
    }
}
