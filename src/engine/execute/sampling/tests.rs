//! When samples are enough, and which are taken again.

use std::time::Duration;

use super::source::batch;
use super::*;
use crate::device::null::Null;
use crate::device::{Job, RunsPrograms, Script};
use sweeper_model::hardware::{DeviceIdentity, DeviceMemory};
use sweeper_model::mode::Launching;
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Program, Target, Tensors};

const EACH: Mode = Mode::Each(Launching::Launch);

fn samples(noise: f64, stop: Stopping) -> (usize, Vec<Flag>) {
    let taken = taken(noise, stop);
    (taken.samples_ns.len(), taken.flags)
}

fn taken(noise: f64, stop: Stopping) -> Taken {
    let mut device = Null::default();
    let script = Script {
        time_ns: 1e6,
        noise,
        seed: 1,
        memory_bytes: None,
    };
    let job = Job {
        program: Program::default(),
        artifacts: &[],
        script: Some(script),
    };
    let program = device.prepare(job).unwrap();
    let mut sampler = Sampler::start(
        &mut device,
        (program, EACH),
        Source::Device,
        Warmup::Auto,
        (1e6, false),
    )
    .unwrap();
    while !sampler.is_done(stop) {
        sampler.take(&mut device).unwrap();
    }
    sampler.finish(stop, device.clock_resolution_ns())
}

#[test]
fn steady_programs_stop_early_and_noisy_ones_are_flagged() {
    let stop = Stopping::Adaptive {
        min_samples: 8,
        max_samples: 200,
        max_rel_ci: 0.01,
        max_time: Duration::from_secs(1),
    };
    assert_eq!(samples(0.001, stop), (8, vec![]));
    let (count, flags) = samples(0.2, stop);
    assert_eq!((count, flags), (200, vec![Flag::WideInterval]));
    assert_eq!(samples(0.2, Stopping::Repeats(5)), (5, vec![]));
}

#[test]
fn time_ends_it_too() {
    let stop = Stopping::Adaptive {
        min_samples: 8,
        max_samples: 200,
        max_rel_ci: 1e-9,
        max_time: Duration::from_millis(20),
    };
    assert_eq!(samples(0.1, stop).1, vec![Flag::WideInterval]);
    assert!((18..=24).contains(&samples(0.1, stop).0));
}

#[test]
fn samples_are_taken_until_the_interval_is_as_narrow_as_was_asked_for() {
    for max_rel_ci in [0.05, 0.02, 0.01] {
        let stop = Stopping::Adaptive {
            min_samples: 8,
            max_samples: 100_000,
            max_rel_ci,
            max_time: Duration::from_secs(1000),
        };
        let taken = taken(0.2, stop);
        let relative = |count: usize| {
            let summary = Summary::of(&taken.samples_ns[..count]).unwrap();
            summary.relative_interval()
        };
        let count = taken.samples_ns.len();
        assert!(count > 8, "{count} samples for {max_rel_ci}");
        assert!(relative(count) <= max_rel_ci, "{}", relative(count));
        assert!(relative(count - 1) > max_rel_ci, "{}", relative(count - 1));
        assert_eq!(taken.flags, vec![]);
    }
}

/// The null device, held back by its power or by others in the first samples, whose times are ten
/// times as long.
struct Disturbed {
    null: Null,
    flag: Flag,
    left: usize,
    samples: usize,
}

impl Device for Disturbed {
    fn identity(&self) -> &DeviceIdentity {
        self.null.identity()
    }

    fn target(&self) -> Target {
        self.null.target()
    }

    fn computes(&self) -> bool {
        false
    }

    fn clock_resolution_ns(&self) -> f64 {
        0.0
    }

    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError> {
        self.null.bind(inputs)
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        self.null.prepare(job)
    }
}

impl RunsPrograms for Disturbed {
    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.null.poison(program)
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let sample = self.null.sample(program, iterations)?;
        self.samples += 1;
        let is_held_back = self.left > 0;
        self.left = self.left.saturating_sub(1);
        let times = if is_held_back { 10.0 } else { 1.0 };
        let is_throttled = is_held_back && self.flag == Flag::Throttled;
        let clocks = Clocks {
            reasons: if is_throttled { 0x04 } else { 0x01 },
            ..Clocks::default()
        };
        let elapsed_ns = sample.elapsed_ns * times;
        let is_kept_waiting = is_held_back && self.flag == Flag::Waited;
        let share = if is_kept_waiting { 0.9 } else { 0.005 };
        Ok(Sample {
            clocks: Some(clocks),
            waited_ns: Some(share * elapsed_ns),
            ..Sample::new(elapsed_ns, iterations)
        })
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        self.null.results(program, specs)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        self.null.memory(program)
    }
}

/// One sample of a program whose first `left` samples are disturbed, and how many were taken for
/// it.
fn sample_of_disturbed(flag: Flag, left: usize) -> (Taken, usize) {
    let mut device = Disturbed {
        null: Null::default(),
        flag,
        left: 0,
        samples: 0,
    };
    let job = Job {
        program: Program::default(),
        artifacts: &[],
        script: None,
    };
    let program = device.prepare(job).unwrap();
    let mut sampler = Sampler::start(
        &mut device,
        (program, EACH),
        Source::Device,
        Warmup::Auto,
        (1000.0, false),
    )
    .unwrap();
    (device.left, device.samples) = (left, 0);
    sampler.take(&mut device).unwrap();
    (sampler.finish(Stopping::Repeats(1), 0.0), device.samples)
}

#[test]
fn disturbed_samples_are_taken_again_a_few_times() {
    for flag in [Flag::Throttled, Flag::Waited] {
        for left in 0..=MAX_REPEATS {
            let (taken, samples) = sample_of_disturbed(flag, left);
            assert_eq!(samples, left + 1);
            assert_eq!(taken.samples_ns, [1000.0], "the one that was not");
            assert_eq!(taken.flags, vec![]);
            assert_eq!(taken.waited_share, Some(0.005));
        }
        let (taken, samples) = sample_of_disturbed(flag, 100);
        assert_eq!(samples, MAX_REPEATS + 1);
        assert_eq!(taken.samples_ns, [10_000.0]);
        assert_eq!(taken.flags, vec![flag]);
    }
}

#[test]
fn warm_after_time_and_without_a_trend() {
    for is_after_others in [false, true] {
        assert!(is_warm(&[], 25e6, is_after_others));
        assert!(!is_warm(&[], 10e6, is_after_others));
        assert!(!is_warm(&[9e6, 7e6], 30e6, is_after_others));
        assert!(is_warm(&[9e6, 7e6, 6.9e6], 30e6, is_after_others));
        assert!(is_warm(&[1e3; 6], 1e6, is_after_others));
        assert!(!is_warm(&[1e3; 5], 1e6, is_after_others));
        assert_eq!(is_warm(&[3e6, 3e6], 9e6, is_after_others), is_after_others);
    }
}

#[test]
fn a_batch_lasts_long_enough() {
    assert_eq!(batch(25_000.0, 100.0), 250);
    assert_eq!(batch(25_000.0, 1e9), 1);
}
