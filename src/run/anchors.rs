//! Anchor points: one point of each device is measured again at intervals, so that a machine that
//! changes while it measures shows. The findings are reported with the run, and change no row.

use std::time::{Duration, Instant};

use sweeper_model::identity::PointId;
use sweeper_model::row::outcome::{Outcome, Status};
use sweeper_model::stats::Summary;
use sweeper_results::record::usage::AnchorReading;

/// The number of an anchor's block among the blocks that a worker is given.
pub(super) const ANCHOR: usize = usize::MAX;

/// A point is an anchor only if all of its samples took less than this: measuring it again should
/// take only a small part of an interval.
const LONGEST_NS: f64 = 1e9;

/// Position of an anchor in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Position of the anchor's block in the plan.
    pub(super) block: usize,
    /// Number of the point.
    pub(super) number: u32,
    pub(super) point: PointId,
}

struct Anchor {
    place: Place,
    median_ns: f64,
    first: Instant,
    last: Instant,
}

/// The anchors of all devices.
pub(super) struct Anchors {
    every: Duration,
    of_device: Vec<Option<Anchor>>,
    readings: Vec<AnchorReading>,
}

impl Anchors {
    /// No anchors yet.
    pub(super) fn new(every: Duration, devices: usize) -> Self {
        Anchors {
            every,
            of_device: (0..devices).map(|_| None).collect(),
            readings: Vec::new(),
        }
    }

    /// Makes the first point of a device that fits its anchor.
    pub(super) fn offer(&mut self, device: usize, place: Place, outcome: &Outcome) {
        let anchor = &mut self.of_device[device];
        if anchor.is_some() {
            return;
        }
        let Some(median_ns) = median_ns(outcome) else {
            return;
        };
        let now = Instant::now();
        *anchor = Some(Anchor {
            place,
            median_ns,
            first: now,
            last: now,
        });
    }

    /// The device's anchor, if it is time to measure it again.
    pub(super) fn due(&mut self, device: usize) -> Option<Place> {
        let anchor = self.of_device[device].as_mut()?;
        if anchor.last.elapsed() < self.every {
            return None;
        }
        anchor.last = Instant::now();
        Some(anchor.place)
    }

    /// Records a repeated measurement of an anchor.
    pub(super) fn read(&mut self, device: usize, outcome: &Outcome) {
        let (Some(anchor), Some(median_ns)) = (&self.of_device[device], median_ns(outcome)) else {
            return;
        };
        self.readings.push(AnchorReading {
            device,
            point: anchor.place.point,
            after_s: (anchor.first.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            median_ns,
            ratio: median_ns / anchor.median_ns,
        });
    }

    /// All that was measured again.
    pub(super) fn take_readings(&mut self) -> Vec<AnchorReading> {
        std::mem::take(&mut self.readings)
    }

    /// True if a device has an anchor.
    pub(super) fn has(&self, device: usize) -> bool {
        self.of_device[device].is_some()
    }
}

/// The median of an outcome that is right and took little time.
fn median_ns(outcome: &Outcome) -> Option<f64> {
    let measured = outcome.measurement.as_ref()?;
    let iterations = f64::from(measured.iterations.max(1));
    let all_ns = measured.samples_ns.iter().sum::<f64>() * iterations;
    let fits = outcome.status == Status::Ok && all_ns < LONGEST_NS;
    let summary = Summary::of(&measured.samples_ns).filter(|_| fits)?;
    (summary.median > 0.0).then_some(summary.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::identity::Digest;
    use sweeper_model::row::outcome::Measurement;

    fn outcome(median_ns: f64) -> Outcome {
        Outcome::measured(Measurement {
            samples_ns: vec![median_ns; 3],
            iterations: 1,
            ..Measurement::default()
        })
    }

    fn place(number: u32) -> Place {
        Place {
            block: 0,
            number,
            point: PointId(Digest::from_bytes([number as u8; 32])),
        }
    }

    #[test]
    fn the_first_point_that_is_right_and_short_is_measured_again() {
        let mut anchors = Anchors::new(Duration::ZERO, 2);
        assert_eq!(anchors.due(0), None);
        anchors.offer(0, place(1), &Outcome::without_measurement(Status::Oom, ""));
        anchors.offer(0, place(2), &outcome(1e9));
        anchors.offer(0, place(3), &outcome(100.0));
        anchors.offer(0, place(4), &outcome(50.0));
        assert_eq!(anchors.due(0), Some(place(3)));
        assert_eq!(anchors.due(1), None, "another device has its own");
        anchors.read(0, &outcome(103.0));
        anchors.read(0, &Outcome::without_measurement(Status::Crashed, ""));
        let readings = anchors.take_readings();
        assert_eq!(readings.len(), 1);
        assert_eq!(readings[0].point, place(3).point);
        assert!((readings[0].ratio - 1.03).abs() < 1e-12);
    }

    #[test]
    fn an_anchor_waits_for_its_interval() {
        let mut anchors = Anchors::new(Duration::from_secs(3600), 1);
        anchors.offer(0, place(3), &outcome(100.0));
        assert_eq!(anchors.due(0), None);
    }
}
