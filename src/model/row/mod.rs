//! One row: a point and its result, as the journal keeps it; and the columns of `records.csv`.
//!
//! [`Row`] is a row of a journal, [`entry::Entry`] a row of a table. [`schema`] lists the columns.

pub mod entry;
pub mod hot_path;
pub mod lines;
pub mod measured;
pub mod metric;
pub mod named;
pub mod outcome;
pub mod schema;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use sweeper_program::{Dtype, Phase, Value};

use self::outcome::{FreshStart, Outcome, Starting, Status};
use crate::hardware::DeviceKind;
use crate::identity::{PointId, ProblemId, RunId};
use crate::stats::Summary;

/// Kernels of a row, and their use of the kernel cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileUse {
    /// Kernels that the program needs compiled.
    pub kernels: u32,
    /// The number of kernels that the cache held.
    pub hits: u32,
    /// How long compiling each kernel took, whenever that was, added up; in nanoseconds.
    pub compile_ns: u64,
    /// For how long at least one kernel was being compiled, in nanoseconds; absent where there are
    /// no kernels, and in rows of versions without this field.
    #[serde(default)]
    pub wall_ns: Option<u64>,
    /// How long reading all kernels from the cache takes, in nanoseconds; absent where one is in no
    /// cache.
    #[serde(default)]
    pub read_ns: Option<u64>,
}

/// A row. The point comes first: the journal finds it there.
///
/// Lines are read by [`Row::of_line`]: of what is flattened a derived reader makes a tree first,
/// which took half of its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Row {
    /// Identity of the row.
    pub point: PointId,
    /// Identity of the problem.
    pub problem: ProblemId,
    /// Name of the case in the manifest.
    pub case: String,
    /// Name of the workload.
    pub workload: String,
    /// The workload's parameters, defaults included.
    pub parameters: BTreeMap<String, Value>,
    /// Axes that are not parameters, and derived values.
    pub values: BTreeMap<String, Value>,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Name of the backend.
    pub backend: String,
    /// The phase.
    pub phase: Phase,
    /// The canonical shape that kernels were made for.
    pub canonical: BTreeMap<String, u64>,
    /// Kind of the device.
    pub device: DeviceKind,
    /// The product's name, and the unit where there are several.
    pub device_name: String,
    /// State of the second-level cache at the start of a sample: `cold`, `clean` or `hot`.
    #[serde(default)]
    pub l2: String,
    /// How the timed steps were given to the device: `launch` or `graph`.
    #[serde(default)]
    pub mode: String,
    /// CPU threads of a measured program.
    pub threads: u32,
    /// When the row was made, in seconds since 1970; zero on the null device.
    pub unix_time_s: f64,
    /// The program's use of the kernel cache.
    pub compile: CompileUse,
    /// The least time that the device's ceilings allow for its work, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roofline_ns: Option<f64>,
    /// The most operations of its arithmetic a second that were measured on the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceiling_flops_per_s: Option<f64>,
    /// Number of earlier rows of the point in this run: the last one counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier_rows: u32,
    /// The job that measured points again when it wrote this row; none where no points were to be
    /// measured again. Started again, it goes on with points whose rows are of other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_in: Option<String>,
    /// The earlier run that the result was taken from; none for one that was measured in this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reused_from: Option<RunId>,
    /// The result of the point.
    #[serde(flatten, skip_deserializing, default = "unread")]
    pub outcome: Outcome,
}

/// The place of an outcome that is read by itself.
fn unread() -> Outcome {
    Outcome::without_measurement(Status::Ok, "")
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Row::serialize(self, serializer)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Row {
    /// The row that a line of a journal holds.
    ///
    /// # Errors
    /// If it holds none.
    pub fn of_line(line: &[u8]) -> serde_json::Result<Self> {
        let row = Row::deserialize(&mut serde_json::Deserializer::from_slice(line))?;
        let outcome = serde_json::from_slice(line)?;
        Ok(Row { outcome, ..row })
    }

    /// Statistics of the samples, in nanoseconds; only rows that are right have them.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of(&self.outcome.measurement.as_ref()?.samples_ns)
    }

    /// The time within samples, in nanoseconds; only rows that are right have any.
    pub fn sampled_ns(&self) -> Option<f64> {
        let measured = self.outcome.measurement.as_ref()?;
        let samples = measured.samples_ns.iter().chain(&measured.again_samples_ns);
        let sum: f64 = samples.sum();
        (sum > 0.0).then_some(sum * f64::from(measured.iterations))
    }

    /// The costs of starting the program, where it was started in processes of its own.
    pub fn fresh_starting(&self) -> Option<Starting> {
        self.starting(&self.outcome.measurement.as_ref()?.fresh_starts)
    }

    /// The costs of starting a function in Python whose libraries have to compile, where it was
    /// started in processes of its own; with as many first iterations.
    pub fn cold_starting(&self) -> Option<Starting> {
        self.starting(&self.outcome.measurement.as_ref()?.cold_starts)
    }

    fn starting(&self, starts: &[FreshStart]) -> Option<Starting> {
        if starts.is_empty() {
            return None;
        }
        let found = self.outcome.measurement.as_ref()?;
        let all = found.fresh_starts.iter().chain(&found.cold_starts);
        let iterations = all.map(|start| start.first_runs.count).max()?;
        Starting::of(starts, iterations, self.summary()?.median)
    }

    /// A parameter, axis or derived value by name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.parameters.get(name).or_else(|| self.values.get(name))
    }

    /// The arithmetic of its operations: the parameter `precision` of a workload that has one, else
    /// the type of its elements.
    pub fn arithmetic(&self) -> &str {
        let precision = self.parameters.get("precision").and_then(Value::as_text);
        precision.unwrap_or_else(|| self.dtype.name())
    }

    /// A whole number by name.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.value(name)?.as_int()
    }

    /// A word by name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name)?.as_text()
    }
}

/// A row for tests; rows of different numbers differ in their points.
#[cfg(any(test, feature = "testing"))]
pub fn test_row(number: u8, outcome: Outcome) -> Row {
    use crate::identity::Digest;
    let int = |value| Value::Int(value);
    Row {
        point: PointId(Digest::from_bytes([number; 32])),
        problem: ProblemId(Digest::from_bytes([9; 32])),
        case: "semicrf".to_owned(),
        workload: "semicrf".to_owned(),
        parameters: [("T", 128), ("K", 4), ("C", 3), ("B", 4)]
            .map(|(name, value)| (name.to_owned(), int(value)))
            .into_iter()
            .chain([
                ("semiring".to_owned(), Value::from("log")),
                ("potentials".to_owned(), Value::from("materialized")),
            ])
            .collect(),
        values: [("KC".to_owned(), int(12))].into(),
        dtype: Dtype::F32,
        backend: "fused".to_owned(),
        phase: Phase::Forward,
        canonical: [("KC".to_owned(), 12), ("T".to_owned(), 128)].into(),
        device: DeviceKind::Null,
        device_name: "null".to_owned(),
        l2: "hot".to_owned(),
        mode: "launch".to_owned(),
        threads: 1,
        unix_time_s: 0.0,
        compile: CompileUse::default(),
        roofline_ns: None,
        ceiling_flops_per_s: None,
        earlier_rows: 0,
        retried_in: None,
        reused_from: None,
        outcome,
    }
}
