//! When to stop: batches, warm-up and the stopping rule of one program.

mod source;
mod waits;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use crate::auto::Auto;
use crate::device::{Device, DeviceError, Prepared, Sample};
pub use source::Source;
use sweeper_manifest::settings::{Stopping, Warmup};
use sweeper_model::hardware::clocks::{ClockSummary, Clocks};
use sweeper_model::mode::Mode;
use sweeper_model::row::outcome::{FirstRuns, Flag, MetricValues};
use sweeper_model::stats::{Summary, is_steady};
use waits::Waits;

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
/// A sample that was throttled, or waited for a processor, is taken again so often at most; then it
/// is kept, and flagged.
const MAX_REPEATS: usize = 3;
/// Samples that show a trend for this long are accepted and flagged.
const MAX_WARMUP_NS: f64 = 200e6;
/// Calls that are more than this share of a time are told.
const LAUNCH_SHARE: f64 = 0.05;

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
    waits: Waits,
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
        let ticks_ns = TICKS_PER_SAMPLE * device.clock_resolution_ns();
        let wanted_ns = ticks_ns.max(device.least_sample_ns(program));
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
            waits: Waits::default(),
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

    /// Takes one sample; again a few times if the device held its clocks back meanwhile, or the
    /// program waited for a processor.
    ///
    /// # Errors
    /// Those of [`RunsPrograms::sample`](crate::device::RunsPrograms::sample).
    pub fn take(&mut self, device: &mut dyn Device) -> Result<(), DeviceError> {
        if let (Source::Calls(calls), true) = (&self.source, self.samples_ns.is_empty()) {
            calls.forget();
        }
        let (mut sample, mut spent_ns) = self.sample(device)?;
        for _ in 0..MAX_REPEATS {
            if !sample.is_throttled() && !sample.has_waited() {
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
        self.waits.add(&sample);
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
            waits: Waits::default(),
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
        if self.waits.has_waited {
            self.flags.push(Flag::Waited);
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
            waited_share: self.waits.share(),
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
    /// The part of their time that samples waited for processors, where the system says so.
    pub waited_share: Option<f64>,
    /// How the device was doing, where it can be asked.
    pub clocks: Option<ClockSummary>,
    /// Flags.
    pub flags: Vec<Flag>,
}

#[cfg(test)]
mod tests;
