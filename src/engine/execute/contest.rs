//! The configurations of tuned backends in a block, held against each other as samples come in:
//! which is outraced, and which are measured once more at the end.

use super::protocol::{Block, BlockPoint, Rival};
use sweeper_model::mode::Mode;
use sweeper_model::stats::Interval;
use sweeper_model::tuning::family_of;
use sweeper_model::tuning::race::{self, LEAST_SAMPLES};
use sweeper_program::Phase;

/// Configurations that are held against each other: those of one backend, for one phase and mode.
/// A block has one problem and one type, and a worker one device and one state of its cache.
type Group<'b> = (&'b str, Phase, Mode);

/// A configuration.
struct Entrant<'b> {
    group: Group<'b>,
    is_raced: bool,
    /// The best of all is known at the end of the block.
    is_whole: bool,
    samples: usize,
    interval: Option<Interval>,
    place: Place,
}

/// How far a configuration is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// More samples may come.
    Running,
    /// It has all samples of the first measurement.
    Complete,
    /// It was outraced, or has no right result.
    Out,
}

/// The configurations of a block, by the place of their points.
pub(super) struct Contest<'b> {
    entrants: Vec<Option<Entrant<'b>>>,
    rivals: &'b [Rival],
}

impl<'b> Contest<'b> {
    /// Before the first sample of `points`.
    pub(super) fn new(block: &'b Block, points: impl Iterator<Item = &'b BlockPoint>) -> Self {
        let entrant = |point: &'b BlockPoint| {
            point.tuned.map(|tuned| Entrant {
                group: (family_of(&point.backend), point.phase, point.mode),
                is_raced: tuned.is_raced,
                is_whole: tuned.is_whole,
                samples: 0,
                interval: None,
                place: Place::Running,
            })
        };
        Contest {
            entrants: points.map(entrant).collect(),
            rivals: &block.rivals,
        }
    }

    /// Takes note of the samples that a configuration has so far.
    pub(super) fn note(&mut self, at: usize, samples_ns: &[f64]) {
        if let Some(entrant) = &mut self.entrants[at] {
            entrant.samples = samples_ns.len();
            entrant.interval = race::interval_of(samples_ns);
        }
    }

    /// A configuration has all samples of the first measurement.
    pub(super) fn complete(&mut self, at: usize) {
        self.put(at, Place::Complete);
    }

    /// A configuration is no longer held against others.
    pub(super) fn leave(&mut self, at: usize) {
        self.put(at, Place::Out);
    }

    fn put(&mut self, at: usize, place: Place) {
        if let Some(entrant) = &mut self.entrants[at] {
            entrant.place = place;
        }
    }

    /// True for a raced configuration whose interval lies above the best's so far, once both have
    /// [`LEAST_SAMPLES`].
    pub(super) fn is_outraced(&self, at: usize) -> bool {
        let Some(entrant) = &self.entrants[at] else {
            return false;
        };
        let is_judged = entrant.is_raced && entrant.samples >= LEAST_SAMPLES;
        is_judged && race::is_above(entrant.interval, self.end(entrant.group, true))
    }

    /// True if a complete configuration may be measured again: no complete one is certainly faster.
    /// Once this is false it stays false, since intervals of complete ones do not change.
    pub(super) fn may_be_best(&self, at: usize) -> bool {
        let Some(entrant) = &self.entrants[at] else {
            return false;
        };
        let end = self.end(entrant.group, false);
        let is_ahead = |interval| !race::is_above(interval, end);
        // A contender of an earlier block that can't be measured beside this one.
        let mut rivals = self.rivals_in(entrant.group);
        let is_left = rivals.any(|rival| !rival.has_again && is_ahead(rival.interval));
        entrant.is_whole
            && entrant.place == Place::Complete
            && is_ahead(entrant.interval)
            && !is_left
    }

    /// The end of the best's interval in a group: of those that are running too, with enough
    /// samples each, or of complete ones alone.
    fn end(&self, group: Group<'b>, with_running: bool) -> f64 {
        let own = self.entrants.iter().flatten();
        let own = own.filter(|one| {
            let counts = match one.place {
                Place::Running => with_running,
                Place::Complete => true,
                Place::Out => false,
            };
            counts && one.group == group
        });
        let own = own.map(|one| (one.samples, one.interval));
        let rivals = self.rivals_in(group);
        let rivals = rivals.map(|rival| (rival.samples, rival.interval));
        let all = own.chain(rivals);
        let all = all.filter(|(samples, _)| !with_running || *samples >= LEAST_SAMPLES);
        race::best_end(all.filter_map(|(_, interval)| interval))
    }

    fn rivals_in(&self, (family, phase, mode): Group<'b>) -> impl Iterator<Item = &'b Rival> {
        let rivals = self.rivals.iter();
        rivals.filter(move |rival| {
            rival.family == family && rival.phase == phase && rival.mode == mode
        })
    }
}
