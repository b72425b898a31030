//! One row as `records.csv` has it, and as reports need it, wherever it was read from.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use sweeper_program::check::Check;
use sweeper_program::workload::Presentation;
use sweeper_program::{Dtype, Phase, Role, Value};
use sweeper_workloads::registry;

use super::measured::Measured;
use super::metric::MetricSummary;
use super::named::{Named, Recent};
use super::outcome::{KernelUse, Measurement, ON_SHOWING_INPUTS, Starting, Status};
use super::{CompileUse, Row};
use crate::hardware::DeviceKind;
use crate::identity::{PointId, ProblemId};
use crate::stats::Summary;

/// Statistics of the samples of one row, in nanoseconds of one iteration. Statistics that a file
/// lacks are `None`: the semi-CRF guide's files have the median and the quartiles only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Number of samples.
    pub n: Option<u32>,
    /// Median.
    pub median: f64,
    /// Lower end of the median's 95 % interval.
    pub ci_low: Option<f64>,
    /// Upper end of the median's interval.
    pub ci_high: Option<f64>,
    /// The probability that the interval covers the median: under 0.95 for fewer than six samples.
    pub coverage: Option<f64>,
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Standard deviation, with n - 1.
    pub std: Option<f64>,
    /// Least sample.
    pub min: Option<f64>,
    /// 5 % quantile.
    pub p5: Option<f64>,
    /// 25 % quantile.
    pub q1: Option<f64>,
    /// 75 % quantile.
    pub q3: Option<f64>,
    /// 95 % quantile.
    pub p95: Option<f64>,
    /// Greatest sample.
    pub max: Option<f64>,
    /// Median of the absolute deviations from the median.
    pub mad: Option<f64>,
}

impl Times {
    /// The interval that stands for the median's uncertainty: its 95 % interval where there is one,
    /// else the quartiles.
    pub fn interval(&self) -> Option<(f64, f64)> {
        self.ci_low
            .zip(self.ci_high)
            .or_else(|| self.q1.zip(self.q3))
    }
}

/// The second measurement of a configuration of a tuned backend that was the best, or could not be
/// told from it. It did not choose which configuration is looked at, so that it is not the luckiest
/// of many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Again {
    /// Number of samples.
    pub n: u32,
    /// Median of one iteration, in nanoseconds.
    pub median_ns: f64,
    /// Lower end of the median's 95 % interval.
    pub low_ns: f64,
    /// Upper end of it.
    pub high_ns: f64,
}

impl Again {
    /// That of these samples; none without any.
    pub fn of(samples_ns: &[f64]) -> Option<Self> {
        let summary = Summary::of(samples_ns)?;
        Some(Again {
            n: u32::try_from(summary.n).ok()?,
            median_ns: summary.median,
            low_ns: summary.interval.low,
            high_ns: summary.interval.high,
        })
    }

    /// The median's interval; none of a single sample.
    pub fn interval(&self) -> Option<(f64, f64)> {
        (self.n > 1).then_some((self.low_ns, self.high_ns))
    }
}

impl From<Summary> for Times {
    fn from(summary: Summary) -> Self {
        Times {
            n: u32::try_from(summary.n).ok(),
            median: summary.median,
            ci_low: Some(summary.interval.low),
            ci_high: Some(summary.interval.high),
            coverage: Some(summary.interval.coverage),
            mean: Some(summary.mean),
            std: Some(summary.std),
            min: Some(summary.min),
            p5: Some(summary.p5),
            q1: Some(summary.q1),
            q3: Some(summary.q3),
            p95: Some(summary.p95),
            max: Some(summary.max),
            mad: Some(summary.mad),
        }
    }
}

/// The output that was furthest from right, in units of its tolerance.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstOutput {
    /// Name of the tensor.
    pub tensor: Arc<str>,
    /// The distance; infinite where a value was NaN, missing or never written.
    pub error: f64,
    /// The greatest distance that is right.
    pub tolerance: f64,
    /// The distance in units of what rounding does in an honest program, where that is known.
    pub spreads: Option<f64>,
}

/// Memory of a row, in bytes. Amounts that a file lacks are absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The program's buffers by role.
    pub by_role: Named<Role, u64>,
    /// The most that was allocated for the program at one time.
    pub peak_allocated: Option<u64>,
    /// The most that the process or pool held from the system.
    pub peak_reserved: Option<u64>,
}

/// The least relative L2 error that a judgement notices in each output, on any inputs.
pub fn notices(check: &Check) -> Vec<(&str, f64)> {
    let mut least: Vec<(&str, f64)> = Vec::new();
    for one in &check.tensors {
        let name = one
            .tensor
            .strip_suffix(ON_SHOWING_INPUTS)
            .unwrap_or(&one.tensor);
        let Some(error) = one.notices else {
            continue;
        };
        match least.iter_mut().find(|(held, _)| *held == name) {
            Some((_, held)) => *held = held.min(error),
            None => least.push((name, error)),
        }
    }
    least
}

/// A row as `records.csv` has it, and as reports need it: a point and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Identity of the point, where the file has one.
    pub point: Option<PointId>,
    /// Identity of the problem, where the file has one.
    pub problem: Option<ProblemId>,
    /// Name of the case in the manifest; of other files, the workload.
    pub case: Arc<str>,
    /// Name of the workload.
    pub workload: Arc<str>,
    /// The workload's parameters, defaults included.
    pub parameters: Named<Arc<str>, Value>,
    /// Axes that are not parameters, and derived values.
    pub values: Named<Arc<str>, Value>,
    /// Type of the elements.
    pub dtype: Option<Dtype>,
    /// Name of the backend.
    pub backend: Arc<str>,
    /// The phase.
    pub phase: Phase,
    /// The canonical shape that kernels were made for.
    pub canonical: Named<Arc<str>, u64>,
    /// Kind of the device.
    pub device: Option<DeviceKind>,
    /// The product's name, and the unit where there are several.
    pub device_name: Option<Arc<str>>,
    /// State of the second-level cache at the start of a sample: `cold`, `clean` or `hot`.
    pub l2: Option<Arc<str>>,
    /// How the timed steps were given to the device: `launch` or `graph`.
    pub mode: Option<Arc<str>>,
    /// CPU threads of a measured program.
    pub threads: Option<u32>,
    /// The status of the point.
    pub status: Status,
    /// Why, where that is not `ok`.
    pub reason: Option<Arc<str>>,
    /// Statistics; none where nothing that is right was timed.
    pub times: Option<Times>,
    /// The samples in nanoseconds, in the order taken, where the source has them.
    pub samples_ns: Vec<f64>,
    /// The second measurement, of the best configurations of tuned backends.
    pub again: Option<Box<Again>>,
    /// Metrics that samples have beside their times, by name.
    pub metrics: Named<Arc<str>, MetricSummary>,
    /// Memory.
    pub memory: Memory,
    /// The measurement of rows of our own files that got so far, without its samples, fresh starts,
    /// check, metrics and memory: files may have these alone or summed up, so that `samples_ns`,
    /// `fresh_starting`, `cold_starting`, `worst`, `metrics` and `memory` hold them.
    pub measurement: Option<Box<Measured>>,
    /// The costs of starting the program, where it was started in processes of its own.
    pub fresh_starting: Option<Box<Starting>>,
    /// The costs of starting a function in Python whose libraries have to compile.
    pub cold_starting: Option<Box<Starting>>,
    /// The output that was furthest from right.
    pub worst: Option<WorstOutput>,
    /// The least relative error that would be noticed in each output, in words.
    pub notices: Option<Arc<str>>,
    /// The program's use of the kernel cache.
    pub compile: CompileUse,
    /// The least time that the device's ceilings allow, in nanoseconds.
    pub roofline_ns: Option<f64>,
    /// The most operations of its arithmetic a second that were measured on the device.
    pub ceiling_flops_per_s: Option<f64>,
    /// When the row was made, in seconds since 1970; zero on the null device.
    pub unix_time_s: Option<f64>,
    /// The earlier run that the result was taken from.
    pub reused_from: Option<Arc<str>>,
}

impl Entry {
    /// A row with nothing but its point's names and its status.
    pub fn new(workload: Arc<str>, backend: Arc<str>, phase: Phase, status: Status) -> Self {
        Entry {
            point: None,
            problem: None,
            case: Arc::clone(&workload),
            workload,
            parameters: Named::default(),
            values: Named::default(),
            dtype: None,
            backend,
            phase,
            canonical: Named::default(),
            device: None,
            device_name: None,
            l2: None,
            mode: None,
            threads: None,
            status,
            reason: None,
            times: None,
            samples_ns: Vec::new(),
            again: None,
            metrics: Named::default(),
            memory: Memory::default(),
            measurement: None,
            fresh_starting: None,
            cold_starting: None,
            worst: None,
            notices: None,
            compile: CompileUse::default(),
            roofline_ns: None,
            ceiling_flops_per_s: None,
            unix_time_s: None,
            reused_from: None,
        }
    }

    /// The row that a journal has as `row`.
    pub fn of(row: &Row, words: &mut Words) -> Self {
        Entry::from_row(row.clone(), row.summary().map(Times::from), words)
    }

    /// The row that a journal has as `row`; `times` are the statistics of its samples.
    pub fn from_row(row: Row, times: Option<Times>, words: &mut Words) -> Self {
        let (fresh_starting, cold_starting) = (row.fresh_starting(), row.cold_starting());
        let (case, workload) = (words.get(&row.case), words.get(&row.workload));
        let backend = words.get(&row.backend);
        let mut entry = Entry {
            point: Some(row.point),
            problem: Some(row.problem),
            case,
            parameters: words.values(&row.parameters),
            values: words.values(&row.values),
            dtype: Some(row.dtype),
            canonical: words.bounds(&row.canonical),
            device: Some(row.device),
            device_name: words.some(&row.device_name),
            l2: words.some(&row.l2),
            mode: words.some(&row.mode),
            threads: Some(row.threads),
            reason: (row.outcome.reason.as_deref()).and_then(|text| words.some(text)),
            times,
            fresh_starting: fresh_starting.map(Box::new),
            cold_starting: cold_starting.map(Box::new),
            compile: row.compile,
            roofline_ns: row.roofline_ns,
            ceiling_flops_per_s: row.ceiling_flops_per_s,
            unix_time_s: Some(row.unix_time_s),
            reused_from: row.reused_from.and_then(|run| words.some(&run.0.hex())),
            ..Entry::new(workload, backend, row.phase, row.outcome.status)
        };
        if let Some(measurement) = row.outcome.measurement {
            entry.add_measurement(*measurement, words);
        }
        entry
    }

    /// Adds a measurement; lists of it become their summaries.
    fn add_measurement(&mut self, mut measurement: Measurement, words: &mut Words) {
        self.samples_ns = mem::take(&mut measurement.samples_ns);
        self.again = Again::of(&mem::take(&mut measurement.again_samples_ns)).map(Box::new);
        let metrics = mem::take(&mut measurement.metrics).into_iter();
        self.metrics = metrics
            .filter_map(|(name, values)| Some((words.get(&name), MetricSummary::of(&values)?)))
            .collect();
        let device_memory = &measurement.device_memory;
        self.memory = Memory {
            by_role: words.amounts(mem::take(&mut measurement.memory_bytes)),
            peak_allocated: Some(device_memory.peak_allocated_bytes),
            peak_reserved: Some(device_memory.peak_reserved_bytes),
        };
        let check = measurement.check.take().unwrap_or_default();
        self.worst = check.worst().map(|worst| WorstOutput {
            tensor: words.get(&worst.tensor),
            error: worst.error,
            tolerance: worst.tolerance,
            spreads: worst.spreads,
        });
        let noticed = notices(&check).into_iter();
        let noticed = noticed.map(|(name, error)| format!("{name} {error:.1e}"));
        self.notices = words
            .some(&noticed.collect::<Vec<String>>().join("; "))
            .filter(|noticed| !noticed.is_empty());
        // Runs may have a million rows.
        self.samples_ns.shrink_to_fit();
        let mut measured = Measured::from(measurement);
        measured.kernels = words.kernels(&measured.kernels);
        measured.same_program_as = measured.same_program_as.and_then(|name| words.some(&name));
        self.measurement = Some(Box::new(measured));
    }

    /// True if it was measured and is right.
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok && self.times.is_some()
    }

    /// The median in nanoseconds, of rows that are right.
    pub fn median_ns(&self) -> Option<f64> {
        self.times
            .filter(|_| self.status == Status::Ok)
            .map(|times| times.median)
    }

    /// How rows of its workload are shown, where that has names of its own.
    pub fn presentation(&self) -> Option<&'static Presentation> {
        registry::workload(&self.workload)?.info().presentation
    }

    /// A parameter, axis or derived value by name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.parameters.get(name).or_else(|| self.values.get(name))
    }

    /// A whole number by name.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.value(name)?.as_int()
    }

    /// A word by name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_text()
    }

    /// A value that distinguishes rows, by name: a parameter, axis or derived value, or one of
    /// [`DIMENSIONS`].
    pub fn axis(&self, name: &str) -> Option<Value> {
        let word = |word: &Arc<str>| Some(Value::Text(Arc::clone(word)));
        match name {
            "case" => word(&self.case),
            "workload" => word(&self.workload),
            "backend" => word(&self.backend),
            "phase" => Some(Value::from(self.phase.name())),
            "dtype" => self.dtype.map(|dtype| Value::from(dtype.name())),
            "device" => self.device.map(|device| Value::from(device.name())),
            "device_name" => self.device_name.as_ref().and_then(word),
            "l2" => self.l2.as_ref().and_then(word),
            "mode" => self.mode.as_ref().and_then(word),
            "threads" => self.threads.map(|count| Value::Int(i64::from(count))),
            _ => self.value(name).cloned(),
        }
    }

    /// The arithmetic of its operations, as in
    /// [`Ceilings::flops_per_s`](crate::hardware::ceilings::Ceilings): the parameter `precision` of
    /// a workload that has one, else the type of its elements, if the file says.
    pub fn arithmetic(&self) -> Option<&str> {
        let precision = self.parameters.get("precision").and_then(Value::as_text);
        precision.or_else(|| Some(self.dtype?.name()))
    }

    /// Attained part of the roofline: the least possible time over the median.
    pub fn efficiency(&self) -> Option<f64> {
        Some(self.roofline_ns.filter(|&least_ns| least_ns > 0.0)? / self.median_ns()?)
    }

    /// Model FLOPs utilisation: useful operations a second over the device's measured ceiling.
    pub fn flops_utilization(&self) -> Option<f64> {
        let useful = self.flops_per_s().filter(|&rate| rate > 0.0)?;
        Some(useful / self.ceiling_flops_per_s?)
    }

    /// Useful floating-point operations a second.
    pub fn flops_per_s(&self) -> Option<f64> {
        Some(self.measurement.as_ref()?.flops / self.median_ns()? * 1e9)
    }

    /// Compulsory bytes a second.
    pub fn bytes_per_s(&self) -> Option<f64> {
        Some(self.measurement.as_ref()?.compulsory_bytes / self.median_ns()? * 1e9)
    }
}

/// Names that distinguish rows beside parameters, axes and derived values, in the order listed.
pub const DIMENSIONS: [&str; 10] = [
    "case",
    "workload",
    "backend",
    "phase",
    "dtype",
    "device",
    "device_name",
    "l2",
    "mode",
    "threads",
];

/// Keeps one copy of each word, which rows repeat thousands of times, and of lists that rows of a
/// problem have in common.
#[derive(Debug, Default)]
pub struct Words {
    words: BTreeSet<Arc<str>>,
    values: Recent<Named<Arc<str>, Value>>,
    bounds: Recent<Named<Arc<str>, u64>>,
    amounts: Recent<Named<Role, u64>>,
    kernels: Recent<Arc<[KernelUse]>>,
}

impl Words {
    /// The one copy of a word.
    pub fn get(&mut self, word: &str) -> Arc<str> {
        if let Some(held) = self.words.get(word) {
            return Arc::clone(held);
        }
        let word: Arc<str> = word.into();
        self.words.insert(Arc::clone(&word));
        word
    }

    /// The one copy of a word, unless it is empty.
    pub fn some(&mut self, word: &str) -> Option<Arc<str>> {
        (!word.is_empty()).then(|| self.get(word))
    }

    /// Named values whose words are the one copy.
    fn values(&mut self, values: &BTreeMap<String, Value>) -> Named<Arc<str>, Value> {
        let named = values.iter();
        let named = named.map(|(name, value)| (self.get(name), self.value(value)));
        let named = named.collect();
        self.values.shared(named)
    }

    /// Named bounds.
    fn bounds(&mut self, bounds: &BTreeMap<String, u64>) -> Named<Arc<str>, u64> {
        let named = bounds.iter();
        let named = named
            .map(|(name, &bound)| (self.get(name), bound))
            .collect();
        self.bounds.shared(named)
    }

    /// Amounts of memory.
    fn amounts(&mut self, amounts: BTreeMap<Role, u64>) -> Named<Role, u64> {
        self.amounts.shared(amounts.into_iter().collect())
    }

    /// Kernels whose names and keys are the one copy.
    fn kernels(&mut self, kernels: &[KernelUse]) -> Arc<[KernelUse]> {
        let kernels = kernels.iter().map(|kernel| KernelUse {
            name: self.get(&kernel.name),
            key: kernel.key.as_deref().map(|key| self.get(key)),
        });
        let kernels = kernels.collect();
        self.kernels.shared(kernels)
    }

    /// A value whose text is the one copy.
    fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Text(text) => Value::Text(self.get(text)),
            other => other.clone(),
        }
    }
}
