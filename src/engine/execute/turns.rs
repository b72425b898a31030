//! Takes samples in turns: round after round until every program has enough, and a second
//! measurement of the best configurations of tuned backends.

use super::block::{Listener, fail};
use super::block_context::{BlockContext, VerifiedPoint};
use super::contest::Contest;
use super::protocol::{Block, Stage};
use super::rounds;
use super::sampling::Sampler;
use crate::device::{Device, DeviceError};
use sweeper_manifest::settings::Order;

/// A program at work.
struct Timed<'p> {
    one: VerifiedPoint<'p>,
    sampler: Sampler,
    /// The second measurement, once it has begun.
    again: Option<Sampler>,
}

/// The programs of a block.
struct Turns<'a, 'p> {
    context: &'a BlockContext<'p>,
    block: &'p Block,
    device: &'a mut dyn Device,
    listener: &'a mut dyn Listener,
    contest: Contest<'p>,
    running: Vec<Option<Timed<'p>>>,
    /// Programs that may be measured again, with their places in `running`.
    held: Vec<(usize, Timed<'p>)>,
    /// Rounds so far.
    round: u64,
}

/// Takes samples until every program has enough. A point is finished as soon as it has: a process
/// that is killed later does not cost its row. Configurations that may be the best of their backend
/// wait for the others, and for their second measurement.
///
/// # Errors
/// [`DeviceError::Lost`].
pub(super) fn sample<'p>(
    context: &BlockContext<'p>,
    block: &'p Block,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
    started: Vec<(VerifiedPoint<'p>, Sampler)>,
) -> Result<(), DeviceError> {
    let points = started.iter().map(|(one, _)| one.point);
    let contest = Contest::new(block, points);
    let running = started.into_iter().map(|(one, sampler)| {
        Some(Timed {
            one,
            sampler,
            again: None,
        })
    });
    let mut turns = Turns {
        context,
        block,
        device,
        listener,
        contest,
        running: running.collect(),
        held: Vec::new(),
        round: 0,
    };
    turns.rounds(block.settings.order)?;
    for (at, timed) in std::mem::take(&mut turns.held) {
        if turns.contest.may_be_best(at) {
            let again = Some(timed.sampler.again());
            turns.running[at] = Some(Timed { again, ..timed });
        } else {
            turns.finish(timed)?;
        }
    }
    turns.rounds(Order::Interleaved)
}

impl<'p> Turns<'_, 'p> {
    /// Takes samples of all running programs, until none is left.
    fn rounds(&mut self, order: Order) -> Result<(), DeviceError> {
        let is_sequential = !matches!(order, Order::Interleaved);
        let mut places: Vec<usize> = (0..self.running.len()).collect();
        if matches!(order, Order::Random) {
            rounds::shuffle(&mut places, &self.block.problem, 0);
        }
        while self.running.iter().any(Option::is_some) {
            if !is_sequential {
                rounds::shuffle(&mut places, &self.block.problem, self.round);
            }
            self.round += 1;
            for &at in &places {
                while let Some(timed) = self.running[at].take() {
                    self.running[at] = self.turn(at, timed)?;
                    if !is_sequential {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes one sample of a program; returns the program if it needs more.
    fn turn(&mut self, at: usize, mut timed: Timed<'p>) -> Result<Option<Timed<'p>>, DeviceError> {
        let number = timed.one.point.number;
        self.listener.working(number, Stage::Sample);
        let is_first = timed.again.is_none();
        let samples = timed.sampler.samples_ns().len();
        let surprised = self.context.surprise(&mut timed.one, samples, self.device);
        if let Err(error) = surprised {
            return self.fail(at, number, error);
        }
        let sampler = timed.again.as_mut().unwrap_or(&mut timed.sampler);
        if let Err(error) = sampler.take(self.device) {
            return self.fail(at, number, error);
        }
        if is_first {
            self.contest.note(at, sampler.samples_ns());
        }
        let is_done = sampler.is_done(self.block.settings.stop);
        let is_outraced = !is_done && is_first && self.contest.is_outraced(at);
        if !is_done && !is_outraced {
            return Ok(Some(timed));
        }
        // Results are those of the sample that was just taken.
        let read = self.context.read_last(&mut timed.one, sampler, self.device);
        if let Err(error) = read {
            return self.fail(at, number, error);
        }
        if is_outraced {
            sampler.stop_outraced();
        }
        if is_outraced || timed.one.complaint().is_some() {
            self.contest.leave(at);
        } else {
            self.contest.complete(at);
        }
        if is_first && self.contest.may_be_best(at) {
            self.held.push((at, timed));
        } else {
            self.finish(timed)?;
        }
        Ok(None)
    }

    fn fail<T>(
        &mut self,
        at: usize,
        number: u32,
        error: DeviceError,
    ) -> Result<Option<T>, DeviceError> {
        self.contest.leave(at);
        fail(self.listener, number, error)?;
        Ok(None)
    }

    fn finish(&mut self, mut timed: Timed<'_>) -> Result<(), DeviceError> {
        let noted = self.context.note_libraries(&mut timed.one, self.device);
        let number = timed.one.point.number;
        let samplers = (timed.sampler, timed.again);
        let resolution_ns = self.device.clock_resolution_ns();
        let outcome = self.context.finish(timed.one, samplers, resolution_ns);
        self.listener.finished(number, outcome);
        noted
    }
}
