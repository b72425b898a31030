//! When to stop: batches, warm-up and the stopping rule of one program.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use super::audit::Calls;
use crate::auto::Auto;
use crate::device::{Device, DeviceError, Prepared, Sample};
use crate::hardware::clocks::{ClockSummary, Clocks};
use crate::manifest::settings::{Stopping, Warmup};
use crate::mode::Mode;
use crate::row::outcome::{FirstRuns, Flag, MetricValues};
use crate::stats::{Summary, is_steady};

/// A sample should last this many ticks of the clock, so that a tick is 0.1 % of it.
const TICKS_PER_SAMPLE: f64 = 1000.0;
/// First iterations of a short program that are timed one by one: the compilation guide has as
/// many.
const FIRST_RUNS: u32 = 5;
/// Samples that may be spent on finding how many iterations last that long.
const SIZING_SAMPLES: u32 = 4;
/// After so long at work clocks have risen and caches are in their final state; a program whose one
/// run lasts this long is warm after it.
const ENOUGH_WARMUP_NS: f64 = 20e6;
/// So long is enough for a program of a process that was at work until then: clocks have risen.
const ENOUGH_AFTER_OTHERS_NS: f64 = 5e6;
/// After that, two samples in a row that differ by less than this are steady.
const STEADY_RATIO: f64 = 1.05;
/// A sample that was throttled is taken again so often at most; then it is kept, and flagged.
const MAX_REPEATS: usize = 3;
/// Samples that show a trend for this long are accepted and flagged.
const MAX_WARMUP_NS: f64 = 200e6;
/// Calls that are more than this share of a time are told.
const LAUNCH_SHARE: f64 = 0.05;

/// Who takes the samples of a program.
pub enum Source {
    /// The device, on the problem's inputs.
    Device,
    /// A loop that decides itself whether to compile.
    Loop(Box<Auto>),
    /// The device, on inputs of which no two calls have the same.
    Calls(Rc<Calls>),
    /// Starts of a command, each a sample: the time that it tells may be that of one of its many
    /// operations.
    Starts,
}

/// The most calls on inputs of their own in a sample: each has to be made, and some are judged.
const MOST_CALLS: u32 = 64;

impl Source {
    /// The iterations of a sample that is to last so long.
    fn batch(&self, wanted_ns: f64, iteration_ns: f64) -> u32 {
        let count = batch(wanted_ns, iteration_ns);
        match self {
            Source::Calls(_) => count.min(MOST_CALLS),
            Source::Starts => 1,
            Source::Device | Source::Loop(_) => count,
        }
    }

    /// One sample of so many iterations of their own.
    fn sample(
        &self,
        device: &mut dyn Device,
        program: Prepared,
        iterations: u32,
    ) -> Result<Sample, DeviceError> {
        match self {
            Source::Calls(calls) => calls.sample(device, program, iterations),
            _ => device.sample(program, iterations),
        }
    }
}

/// The samples of one program.
pub struct Sampler {
    program: Prepared,
    source: Source,
    mode: Mode,
    iterations: u32,
    first_runs: FirstRuns,
    warmup_samples: u32,
    samples_ns: Vec<f64>,
    metrics: BTreeMap<String, MetricValues>,
    spent_ns: f64,
    is_ungated: bool,
    has_changed_modes: bool,
    launch_floor_ns: Option<f64>,
    readings: Vec<Clocks>,
    flags: Vec<Flag>,
}

impl Sampler {
    /// Chooses how many iterations make a sample and warms up. `first_ns` is how long an iteration
    /// took before; `is_after_others` says that the process which runs it was at work until now.
    ///
    /// # Errors
    /// Those of [`RunsPrograms::sample`](crate::device::RunsPrograms::sample).
    pub fn start(
        device: &mut dyn Device,
        (program, mode): (Prepared, Mode),
        source: Source,
        warmup: Warmup,
        (first_ns, is_after_others): (f64, bool),
    ) -> Result<Self, DeviceError> {
        let wanted_ns = TICKS_PER_SAMPLE * device.clock_resolution_ns();
        // The first run pays for cold caches: more of them tell how long a warm one takes.
        let mut iteration_ns = first_ns;
        let mut first_runs = FirstRuns {
            count: 1,
            elapsed_ns: first_ns,
        };
        let is_sized = mode.iterations().is_none() && !matches!(source, Source::Starts);
        if first_ns < 100.0 * wanted_ns && is_sized {
            while first_runs.count < FIRST_RUNS {
                first_runs.elapsed_ns += source.sample(device, program, 1)?.elapsed_ns;
                first_runs.count += 1;
            }
            for _ in 0..SIZING_SAMPLES {
                let iterations = source.batch(wanted_ns, iteration_ns);
                let sample = source.sample(device, program, iterations)?;
                iteration_ns = sample.per_iteration_ns();
                if sample.elapsed_ns >= 0.8 * wanted_ns {
                    break;
                }
            }
        }
        let mut sampler = Sampler {
            program,
            mode,
            iterations: mode
                .iterations()
                .unwrap_or_else(|| source.batch(wanted_ns, iteration_ns)),
            source,
            first_runs,
            warmup_samples: 1,
            samples_ns: Vec::new(),
            metrics: BTreeMap::new(),
            spent_ns: 0.0,
            is_ungated: false,
            has_changed_modes: false,
            launch_floor_ns: None,
            readings: Vec::new(),
            flags: Vec::new(),
        };
        sampler.warm_up(device, warmup, (first_ns, is_after_others))?;
        if mode.iterations().is_none() {
            sampler.launch_floor_ns = device.launch_floor_ns(program, sampler.iterations);
        }
        Ok(sampler)
    }

    fn warm_up(
        &mut self,
        device: &mut dyn Device,
        warmup: Warmup,
        (first_ns, is_after_others): (f64, bool),
    ) -> Result<(), DeviceError> {
        match warmup {
            Warmup::Runs(count) => {
                for _ in 0..count {
                    self.run(device)?;
                }
                self.warmup_samples += count;
            }
            Warmup::Auto if !device.computes() => {}
            Warmup::Auto => {
                let mut spent_ns = first_ns;
                let mut samples_ns = Vec::new();
                while !is_warm(&samples_ns, spent_ns, is_after_others) {
                    if spent_ns > MAX_WARMUP_NS {
                        self.flags.push(Flag::Unsteady);
                        break;
                    }
                    let (sample, sample_spent_ns) = self.sample(device)?;
                    spent_ns += sample_spent_ns;
                    samples_ns.push(sample.per_iteration_ns());
                }
                self.warmup_samples += samples_ns.len() as u32;
            }
        }
        Ok(())
    }

    /// Takes one sample; again a few times if the device held its clocks back meanwhile.
    ///
    /// # Errors
    /// Those of [`RunsPrograms::sample`](crate::device::RunsPrograms::sample).
    pub fn take(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        if let (Source::Calls(calls), true) = (&self.source, self.samples_ns.is_empty()) {
            calls.forget();
        }
        let (mut sample, mut spent_ns) = self.sample(device)?;
        for _ in 0..MAX_REPEATS {
            if !sample.is_throttled() {
                break;
            }
            let (again, again_ns) = self.sample(device)?;
            sample = again;
            spent_ns += again_ns;
        }
        self.spent_ns += spent_ns;
        self.is_ungated |= sample.is_ungated;
        self.has_changed_modes |= sample.has_changed_modes;
        self.readings.extend(sample.clocks);
        self.samples_ns.push(sample.per_iteration_ns());
        for (name, metric) in sample.metrics {
            self.metrics.entry(name).or_default().push(metric);
        }
        Ok(())
    }

    /// A sample, and its cost: prologues and flushed caches count towards the time limit.
    fn sample(&mut self, device: &mut dyn Device) -> Result<(Sample, f64), DeviceError> {
        let start = Instant::now();
        let sample = self.run(device)?;
        let spent_ns = match device.computes() {
            true => start.elapsed().as_nanos() as f64,
            false => sample.elapsed_ns,
        };
        Ok((sample, spent_ns))
    }

    fn run(&mut self, device: &mut dyn Device) -> Result<Sample, DeviceError> {
        match (&mut self.source, self.mode) {
            (Source::Loop(auto), _) => auto.sample(device),
            (_, Mode::Loop(iterations)) => device.run_loop(self.program, iterations),
            (source, Mode::Each(_)) => source.sample(device, self.program, self.iterations),
        }
    }

    /// A second measurement of the program, which is warm, with samples of its own.
    pub fn again(&self) -> Self {
        Sampler {
            program: self.program,
            source: match &self.source {
                Source::Calls(calls) => Source::Calls(Rc::clone(calls)),
                Source::Starts => Source::Starts,
                // Configurations of kernels have no loop that decides.
                Source::Device | Source::Loop(_) => Source::Device,
            },
            mode: self.mode,
            iterations: self.iterations,
            first_runs: self.first_runs,
            warmup_samples: 0,
            samples_ns: Vec::new(),
            metrics: BTreeMap::new(),
            spent_ns: 0.0,
            is_ungated: false,
            has_changed_modes: false,
            launch_floor_ns: self.launch_floor_ns,
            readings: Vec::new(),
            flags: Vec::new(),
        }
    }

    /// True if no more samples are needed.
    pub fn is_done(&self, stop: Stopping) -> bool {
        let taken = self.samples_ns.len();
        match stop {
            Stopping::Repeats(repeats) => taken >= repeats as usize,
            Stopping::Adaptive {
                min_samples,
                max_samples,
                max_time,
                ..
            } => {
                taken >= max_samples as usize
                    || self.spent_ns > max_time.as_nanos() as f64
                    || taken >= min_samples as usize && self.is_narrow(stop)
            }
        }
    }

    fn is_narrow(&self, stop: Stopping) -> bool {
        match (stop, Summary::of(&self.samples_ns)) {
            (Stopping::Adaptive { max_rel_ci, .. }, Some(summary)) => {
                summary.interval.coverage >= 0.95 && summary.relative_interval() <= max_rel_ci
            }
            _ => true,
        }
    }

    /// The loop, if it decides itself whether to compile.
    pub fn auto(&mut self) -> Option<&mut Auto> {
        match &mut self.source {
            Source::Loop(auto) => Some(auto),
            Source::Device | Source::Calls(_) | Source::Starts => None,
        }
    }

    /// The samples so far, in nanoseconds of one iteration, in the order taken.
    pub fn samples_ns(&self) -> &[f64] {
        &self.samples_ns
    }

    /// Takes no more samples, since others are clearly faster.
    pub fn stop_outraced(&mut self) {
        self.flags.push(Flag::Outraced);
    }

    /// Whether others were clearly faster.
    pub fn is_outraced(&self) -> bool {
        self.flags.contains(&Flag::Outraced)
    }

    /// The program.
    pub fn program(&self) -> Prepared {
        self.program
    }

    /// The samples in the order taken, with flags.
    pub fn finish(mut self, stop: Stopping, clock_resolution_ns: f64) -> Taken {
        if !self.is_outraced() && !self.is_narrow(stop) {
            self.flags.push(Flag::WideInterval);
        }
        let shortest = self
            .samples_ns
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        let wanted_ns = TICKS_PER_SAMPLE * clock_resolution_ns;
        let is_short = shortest * f64::from(self.iterations) < 0.5 * wanted_ns;
        if is_short && !matches!(self.source, Source::Starts) {
            self.flags.push(Flag::CoarseClock);
        }
        if self.is_ungated {
            self.flags.push(Flag::Ungated);
        }
        let median = Summary::of(&self.samples_ns).map(|summary| summary.median);
        if let (Some(floor), Some(median)) = (self.launch_floor_ns, median)
            && floor > LAUNCH_SHARE * median
        {
            self.flags.push(Flag::LaunchFloor);
        }
        if self.has_changed_modes {
            self.flags.push(Flag::FloatModes);
        }
        if self.readings.iter().any(|reading| reading.is_throttled()) {
            self.flags.push(Flag::Throttled);
        }
        if self.readings.iter().any(|reading| reading.is_shared) {
            self.flags.push(Flag::SharedGpu);
        }
        Taken {
            clocks: ClockSummary::of(&self.readings),
            samples_ns: self.samples_ns,
            metrics: self.metrics,
            iterations: self.iterations,
            first_runs: self.first_runs,
            warmup_samples: self.warmup_samples,
            launch_floor_ns: self.launch_floor_ns,
            flags: self.flags,
        }
    }
}

/// True if a program that was at work for `spent_ns` and took these samples is warm: they show no
/// trend, or they did not long enough ago to count.
fn is_warm(samples_ns: &[f64], spent_ns: f64, is_after_others: bool) -> bool {
    let is_close = |before: f64, last: f64| before.max(last) <= STEADY_RATIO * before.min(last);
    let enough_ns = match *samples_ns {
        [.., before, last] if !is_close(before, last) => f64::INFINITY,
        [_] => f64::INFINITY,
        [_, .., _] if is_after_others => ENOUGH_AFTER_OTHERS_NS,
        _ => ENOUGH_WARMUP_NS,
    };
    is_steady(samples_ns) || spent_ns >= enough_ns
}

/// The result of a [`Sampler`].
pub struct Taken {
    /// Nanoseconds of one iteration, a sample each.
    pub samples_ns: Vec<f64>,
    /// Further values of each sample, by name.
    pub metrics: BTreeMap<String, MetricValues>,
    /// Iterations in a sample.
    pub iterations: u32,
    /// The first iterations.
    pub first_runs: FirstRuns,
    /// Samples before the first that counts.
    pub warmup_samples: u32,
    /// The time of an iteration's calls alone, in nanoseconds, where it is in times.
    pub launch_floor_ns: Option<f64>,
    /// How the device was doing, where it can be asked.
    pub clocks: Option<ClockSummary>,
    /// Flags.
    pub flags: Vec<Flag>,
}

/// How many iterations last `wanted_ns`.
fn batch(wanted_ns: f64, iteration_ns: f64) -> u32 {
    (wanted_ns / iteration_ns.max(1.0)).ceil().clamp(1.0, 1e6) as u32
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::null::Null;
    use crate::device::{Job, RunsPrograms, Script};
    use crate::hardware::{DeviceIdentity, DeviceMemory};
    use crate::mode::Launching;
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

    /// The null device, held back by its power in the first samples, whose times are ten times as
    /// long.
    struct Throttled {
        null: Null,
        left: usize,
        samples: usize,
    }

    impl Device for Throttled {
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

    impl RunsPrograms for Throttled {
        fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
            self.null.poison(program)
        }

        fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
            let sample = self.null.sample(program, iterations)?;
            self.samples += 1;
            let is_held_back = self.left > 0;
            self.left = self.left.saturating_sub(1);
            let times = if is_held_back { 10.0 } else { 1.0 };
            let clocks = Clocks {
                reasons: if is_held_back { 0x04 } else { 0x01 },
                ..Clocks::default()
            };
            Ok(Sample {
                clocks: Some(clocks),
                ..Sample::new(sample.elapsed_ns * times, iterations)
            })
        }

        fn results(
            &mut self,
            program: Prepared,
            specs: &[TensorSpec],
        ) -> Result<Tensors, DeviceError> {
            self.null.results(program, specs)
        }

        fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
            self.null.memory(program)
        }
    }

    /// One sample of a program whose first `left` samples are throttled, and how many were taken
    /// for it.
    fn sample_of_throttled(left: usize) -> (Taken, usize) {
        let mut device = Throttled {
            null: Null::default(),
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
    fn throttled_samples_are_taken_again_a_few_times() {
        for left in 0..=MAX_REPEATS {
            let (taken, samples) = sample_of_throttled(left);
            assert_eq!(samples, left + 1);
            assert_eq!(taken.samples_ns, [1000.0], "the one that was not");
            assert_eq!(taken.flags, vec![]);
        }
        let (taken, samples) = sample_of_throttled(100);
        assert_eq!(samples, MAX_REPEATS + 1);
        assert_eq!(taken.samples_ns, [10_000.0]);
        assert_eq!(taken.flags, vec![Flag::Throttled]);
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
}
