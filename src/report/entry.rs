//! One row as reports need it, wherever it was read from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sweeper_kernels::check::Metric;
use sweeper_kernels::program::Role;
use sweeper_kernels::{Dtype, Phase, Value};

use crate::device::DeviceKind;
use crate::device::clocks::ClockSummary;
use crate::execute::outcome::{Checked, FirstRuns, Flag, Starting, Status};
use crate::identity::{PointId, ProblemId};
use crate::record::row::CompileUse;
use crate::stats::Summary;

/// Statistics of the samples of one row, in nanoseconds of one iteration. What a file does not say is
/// `None`: guide 000's files have the median and the quartiles only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Number of samples.
    pub n: Option<u32>,
    /// Median.
    pub median: f64,
    /// Lower end of the median's 95 % interval.
    pub ci_low: Option<f64>,
    /// Upper end of it.
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

/// How far one output was from the oracle's.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorError {
    /// Name of the tensor.
    pub tensor: Arc<str>,
    /// How the error is measured, where the file says so.
    pub metric: Option<Metric>,
    /// The distance; infinite where a value was NaN, missing or never written.
    pub error: f64,
    /// The greatest distance that is right.
    pub tolerance: f64,
}

/// A kernel that the program launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Name of the entry point or builtin.
    pub name: Arc<str>,
    /// Kernel key in full; absent for builtins.
    pub key: Option<Arc<str>>,
}

/// What the program did, and how it was measured; only of rows of our own files that got so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// How often the timed steps ran in a sample.
    pub iterations: u32,
    /// Samples before the first that counts.
    pub warmup_samples: u32,
    /// The first iterations, where the file says.
    pub first_runs: Option<FirstRuns>,
    /// How long it took to make the program ready from compiled kernels, in nanoseconds, where the file
    /// says.
    pub prepare_ns: Option<u64>,
    /// What starting the program takes, where it was started in processes of its own.
    pub fresh_starting: Option<Starting>,
    /// Kernels launched in an iteration, copies and fills included.
    pub launches: u64,
    /// Of these, calls of libraries.
    pub calls: u64,
    /// Bytes that an iteration reads, of elements that are touched.
    pub read_bytes: u64,
    /// Bytes that an iteration writes.
    pub written_bytes: u64,
    /// Useful floating-point operations of an iteration.
    pub flops: f64,
    /// The least bytes that an iteration must move.
    pub compulsory_bytes: f64,
    /// The backend before it in the block whose program is the same.
    pub same_program_as: Option<Arc<str>>,
    /// Kernels in the order of the program; empty where the file is a `records.csv`.
    pub kernels: Vec<Kernel>,
    /// How thoroughly outputs were judged.
    pub checked: Checked,
    /// The judgement of each output; the worst one alone where the file is a `records.csv`.
    pub errors: Vec<TensorError>,
    /// SHA-256 of the outputs, in full.
    pub output_digest: Option<Arc<str>>,
    /// How the device was doing.
    pub clocks: Option<ClockSummary>,
    /// What else to know.
    pub flags: Vec<Flag>,
}

impl Program {
    /// The output that was furthest from right, in units of its tolerance.
    pub fn worst(&self) -> Option<&TensorError> {
        self.errors
            .iter()
            .max_by(|a, b| (a.error / a.tolerance).total_cmp(&(b.error / b.tolerance)))
    }
}

/// Memory of a row, in bytes. What a file does not say is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The program's buffers by what they are for.
    pub by_role: BTreeMap<Role, u64>,
    /// Gradients and what the forward pass kept for them, together.
    pub autograd: Option<u64>,
    /// The most that was allocated for the program at one time.
    pub peak_allocated: Option<u64>,
    /// The most that the process or pool held from the system.
    pub peak_reserved: Option<u64>,
}

/// A row: a point and what became of it.
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
    /// Its parameters, defaults included.
    pub parameters: BTreeMap<Arc<str>, Value>,
    /// Axes that are not parameters, and derived values.
    pub values: BTreeMap<Arc<str>, Value>,
    /// Type of the elements.
    pub dtype: Option<Dtype>,
    /// Name of the backend.
    pub backend: Arc<str>,
    /// The phase.
    pub phase: Phase,
    /// The canonical shape that kernels were made for.
    pub canonical: BTreeMap<Arc<str>, u64>,
    /// Kind of the device.
    pub device: Option<DeviceKind>,
    /// The product's name, and the unit where there are several.
    pub device_name: Option<Arc<str>>,
    /// State of the second-level cache at the start of a sample: `cold`, `clean` or `hot`.
    pub l2: Option<Arc<str>>,
    /// How the device was told what to do: `launch` or `graph`.
    pub mode: Option<Arc<str>>,
    /// CPU threads of a measured program.
    pub threads: Option<u32>,
    /// What became of it.
    pub status: Status,
    /// Why, where that is not `ok`.
    pub reason: Option<Arc<str>>,
    /// Statistics; none where nothing that is right was timed.
    pub times: Option<Times>,
    /// The samples in nanoseconds, in the order taken, where the source has them.
    pub samples_ns: Vec<f64>,
    /// Memory.
    pub memory: Memory,
    /// What the program did.
    pub program: Option<Box<Program>>,
    /// What the kernel cache did.
    pub compile: CompileUse,
    /// The least time that the device's ceilings allow, in nanoseconds.
    pub roofline_ns: Option<f64>,
    /// When the row was made, in seconds since 1970; zero on the null device.
    pub unix_time_s: Option<f64>,
}

impl Entry {
    /// A row that says no more than what was to be measured and what became of it.
    pub fn new(workload: Arc<str>, backend: Arc<str>, phase: Phase, status: Status) -> Self {
        Entry {
            point: None,
            problem: None,
            case: Arc::clone(&workload),
            workload,
            parameters: BTreeMap::new(),
            values: BTreeMap::new(),
            dtype: None,
            backend,
            phase,
            canonical: BTreeMap::new(),
            device: None,
            device_name: None,
            l2: None,
            mode: None,
            threads: None,
            status,
            reason: None,
            times: None,
            samples_ns: Vec::new(),
            memory: Memory::default(),
            program: None,
            compile: CompileUse::default(),
            roofline_ns: None,
            unix_time_s: None,
        }
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

    /// What distinguishes rows, by name: a parameter, axis or derived value, or one of
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

    /// In what its operations are computed, as in [`Ceilings::flops_per_s`](crate::device::ceilings::Ceilings):
    /// the parameter `precision` of a workload that has one, else the type of its elements, if the file says.
    pub fn arithmetic(&self) -> Option<&str> {
        let precision = self.parameters.get("precision").and_then(Value::as_text);
        precision.or_else(|| Some(self.dtype?.name()))
    }

    /// Attained part of the roofline: the least possible time over the median.
    pub fn efficiency(&self) -> Option<f64> {
        Some(self.roofline_ns? / self.median_ns()?)
    }

    /// Useful floating-point operations a second.
    pub fn flops_per_s(&self) -> Option<f64> {
        Some(self.program.as_ref()?.flops / self.median_ns()? * 1e9)
    }

    /// Compulsory bytes a second.
    pub fn bytes_per_s(&self) -> Option<f64> {
        Some(self.program.as_ref()?.compulsory_bytes / self.median_ns()? * 1e9)
    }
}

/// What distinguishes rows beside parameters, axes and derived values, in the order listed.
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

/// Keeps one copy of each word: rows repeat theirs thousands of times.
#[derive(Debug, Default)]
pub(super) struct Words(BTreeSet<Arc<str>>);

impl Words {
    /// The one copy.
    pub(super) fn get(&mut self, word: &str) -> Arc<str> {
        if let Some(held) = self.0.get(word) {
            return Arc::clone(held);
        }
        let word: Arc<str> = word.into();
        self.0.insert(Arc::clone(&word));
        word
    }

    /// The one copy, unless the word is empty.
    pub(super) fn some(&mut self, word: &str) -> Option<Arc<str>> {
        (!word.is_empty()).then(|| self.get(word))
    }

    /// A value whose text is the one copy.
    pub(super) fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::Text(text) => Value::Text(self.get(text)),
            other => other.clone(),
        }
    }
}
