//! Writes `benchmark_full.csv`, `memory_breakdown.csv` and `heatmap_data.json`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use sweeper_program::Role;

use crate::guides::number;
use sweeper_manifest::settings::GB;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_model::word::capitalized;

/// The parameters that the files have columns for.
pub const COLUMNS: [&str; 6] = ["T", "K", "C", "B", "semiring", "phase"];

const BENCHMARK_FULL: [&str; 20] = [
    "T",
    "K",
    "C",
    "B",
    "KC",
    "backend",
    "semiring",
    "phase",
    "time_ms_median",
    "time_ms_iqr_low",
    "time_ms_iqr_high",
    "time_per_position_ms",
    "peak_allocated_gb",
    "peak_reserved_gb",
    "status",
    "error_msg",
    "memory_potentials_gb",
    "memory_dp_state_gb",
    "memory_workspace_gb",
    "memory_autograd_gb",
];

const MEMORY_BREAKDOWN: [&str; 14] = [
    "backend",
    "semiring",
    "phase",
    "T",
    "K",
    "C",
    "KC",
    "status",
    "peak_allocated_gb",
    "peak_reserved_gb",
    "est_potentials_gb",
    "est_dp_state_gb",
    "est_workspace_gb",
    "est_autograd_gb",
];

/// Writes `benchmark_full.csv`.
///
/// # Errors
/// Errors of the stream.
pub fn write_benchmark_full(rows: &[&Row], out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(BENCHMARK_FULL)?;
    for row in rows {
        let line = Line::of(row);
        let times = line.times_ms.unwrap_or([f64::NAN; 3]);
        let per_position_ms = times[0] / line.shape[0] as f64;
        let [t, k, c, b] = line.shape.map(|extent| extent.to_string());
        let mut record = vec![
            t,
            k,
            c,
            b,
            line.kc().to_string(),
            row.backend.clone(),
            line.semiring.clone(),
        ];
        record.push(row.phase.to_string());
        record.extend(times.into_iter().chain([per_position_ms]).map(number));
        record.extend(line.peaks_gb.map(number));
        record.extend([line.status.to_owned(), line.message.clone()]);
        record.extend(line.memory_gb.map(number));
        writer.write_record(&record)?;
    }
    writer.flush()
}

/// Writes `memory_breakdown.csv`. The published file contains estimates; this file contains sums of
/// the program's buffers by role.
///
/// # Errors
/// Errors of the stream.
pub fn write_memory_breakdown(rows: &[&Row], out: impl Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(MEMORY_BREAKDOWN)?;
    for row in rows {
        let line = Line::of(row);
        let [t, k, c, _] = line.shape.map(|extent| extent.to_string());
        let mut record = vec![
            row.backend.clone(),
            line.semiring.clone(),
            row.phase.to_string(),
        ];
        record.extend([t, k, c, line.kc().to_string(), line.status.to_owned()]);
        record.extend(line.peaks_gb.into_iter().chain(line.memory_gb).map(number));
        writer.write_record(&record)?;
    }
    writer.flush()
}

#[derive(Serialize)]
struct Heatmap {
    backend: String,
    semiring: String,
    phase: String,
    #[serde(rename = "T")]
    t: i64,
    cells: Vec<Cell>,
}

#[derive(Serialize)]
struct Cell {
    #[serde(rename = "K")]
    k: i64,
    #[serde(rename = "C")]
    c: i64,
    #[serde(rename = "KC")]
    kc: i64,
    status: &'static str,
    peak_gb: Option<f64>,
    time_ms: Option<f64>,
}

/// Writes `heatmap_data.json`. Values that a cell lacks are null.
///
/// # Errors
/// Errors of the stream.
pub fn write_heatmap_data(rows: &[&Row], mut out: impl Write) -> io::Result<()> {
    let mut maps: BTreeMap<String, Heatmap> = BTreeMap::new();
    for row in rows {
        let line = Line::of(row);
        let [t, k, c, _] = line.shape;
        let key = format!("{}_{}_{}_T{t}", row.backend, line.semiring, row.phase);
        let map = maps.entry(key).or_insert_with(|| Heatmap {
            backend: row.backend.clone(),
            semiring: line.semiring.clone(),
            phase: row.phase.to_string(),
            t,
            cells: Vec::new(),
        });
        map.cells.push(Cell {
            k,
            c,
            kc: line.kc(),
            status: line.status,
            peak_gb: finite(line.peaks_gb[0]),
            time_ms: line.times_ms.map(|times| times[0]),
        });
    }
    serde_json::to_writer_pretty(&mut out, &maps)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// The guide's files divide memory into these categories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Category {
    Potentials,
    DpState,
    Workspace,
    Autograd,
}

/// The category in which the guide's files count a buffer. Every role has a category, so that the
/// categories add up to the program's memory: scores are potentials, whether they are given as
/// edges or as the inputs and weights from which edges are computed.
fn category(role: Role) -> Category {
    match role {
        Role::Potentials | Role::Input | Role::Parameter => Category::Potentials,
        Role::DpState | Role::Output => Category::DpState,
        Role::Workspace => Category::Workspace,
        Role::Gradient | Role::Saved | Role::Optimizer => Category::Autograd,
    }
}

/// A row as the three files have it.
struct Line {
    /// T, K, C, B.
    shape: [i64; 4],
    semiring: String,
    status: &'static str,
    message: String,
    /// Median and the guide's quartiles, for successes.
    times_ms: Option<[f64; 3]>,
    /// Allocated, reserved.
    peaks_gb: [f64; 2],
    /// Potentials, dp state, workspace, autograd.
    memory_gb: [f64; 4],
}

impl Line {
    fn of(row: &Row) -> Self {
        let status = status(row.outcome.status);
        let reason = row.outcome.reason.as_deref().unwrap_or_default();
        let message = match row.outcome.status {
            Status::Ok => String::new(),
            other => format!("{other}: {reason}"),
        };
        let measured = row.outcome.measurement.as_ref();
        let is_ok = row.outcome.status == Status::Ok;
        let bytes = |wanted: Category| {
            measured.filter(|_| is_ok).map_or(f64::NAN, |found| {
                let held = found.memory_bytes.iter();
                let held = held.filter(|(role, _)| category(**role) == wanted);
                held.map(|(_, bytes)| *bytes).sum::<u64>() as f64 / GB
            })
        };
        let peaks_gb = measured.filter(|_| is_ok).map_or([f64::NAN; 2], |found| {
            let memory = found.device_memory;
            [memory.peak_allocated_bytes, memory.peak_reserved_bytes].map(|peak| peak as f64 / GB)
        });
        Line {
            shape: ["T", "K", "C", "B"].map(|name| row.int(name).unwrap_or(0)),
            semiring: capitalized(row.text("semiring").unwrap_or_default()),
            status,
            message,
            times_ms: measured
                .filter(|_| is_ok)
                .and_then(|found| times_ms(&found.samples_ns)),
            peaks_gb,
            memory_gb: [
                bytes(Category::Potentials),
                bytes(Category::DpState),
                bytes(Category::Workspace),
                bytes(Category::Autograd),
            ],
        }
    }

    fn kc(&self) -> i64 {
        self.shape[1] * self.shape[2]
    }
}

/// Median, and the quartiles as the guide takes them: `sorted[n // 4]` and `sorted[3 n // 4]`.
fn times_ms(samples_ns: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = samples_ns.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let middle = (sorted.get(n / 2)? + sorted.get((n - 1) / 2)?) / 2.0;
    Some([middle, sorted[n / 4], sorted[3 * n / 4]].map(|time_ns| time_ns / 1e6))
}

/// The guide's word for a status.
fn status(status: Status) -> &'static str {
    match status {
        Status::Ok => "success",
        Status::Oom => "oom",
        Status::PredictedOom | Status::Pruned => "not_tested",
        Status::Unavailable => "not_supported",
        Status::Skipped => "skipped",
        Status::CompileError
        | Status::CompileTimeout
        | Status::LaunchError
        | Status::Crashed
        | Status::Timeout
        | Status::Wrong
        | Status::Refused
        | Status::Error => "error",
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::hardware::DeviceMemory;
    use sweeper_model::row::outcome::{Measurement, Outcome};
    use sweeper_model::row::test_row;

    fn rows() -> Vec<Row> {
        let measurement = Measurement {
            samples_ns: vec![5e6, 1e6, 4e6, 2e6, 3e6],
            memory_bytes: [
                (Role::Potentials, 1 << 29),
                (Role::Gradient, 1 << 28),
                (Role::Saved, 1 << 28),
            ]
            .into(),
            device_memory: DeviceMemory {
                peak_allocated_bytes: 1 << 30,
                peak_reserved_bytes: 1 << 31,
            },
            ..Measurement::default()
        };
        vec![
            test_row(1, Outcome::measured(measurement)),
            test_row(
                2,
                Outcome::without_measurement(Status::PredictedOom, "needs 50 GB"),
            ),
        ]
    }

    fn written(write: impl FnOnce(&[&Row], &mut Vec<u8>) -> io::Result<()>) -> String {
        let rows = rows();
        let mut bytes = Vec::new();
        write(&rows.iter().collect::<Vec<_>>(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn benchmark_full_is_the_guides() {
        let expected = "T,K,C,B,KC,backend,semiring,phase,time_ms_median,time_ms_iqr_low,\
            time_ms_iqr_high,time_per_position_ms,peak_allocated_gb,peak_reserved_gb,status,error_msg,\
            memory_potentials_gb,memory_dp_state_gb,memory_workspace_gb,memory_autograd_gb\n\
            128,4,3,4,12,fused,Log,forward,3,2,4,0.0234375,1,2,success,,0.5,0,0,0.5\n\
            128,4,3,4,12,fused,Log,forward,nan,nan,nan,nan,nan,nan,not_tested,\
            predicted_oom: needs 50 GB,nan,nan,nan,nan\n";
        assert_eq!(
            written(|rows, out| write_benchmark_full(rows, out)),
            expected
        );
    }

    #[test]
    fn memory_breakdown_is_the_guides() {
        let text = written(|rows, out| write_memory_breakdown(rows, out));
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap(),
            "backend,semiring,phase,T,K,C,KC,status,peak_allocated_gb,peak_reserved_gb,\
             est_potentials_gb,est_dp_state_gb,est_workspace_gb,est_autograd_gb"
        );
        assert_eq!(
            lines.next().unwrap(),
            "fused,Log,forward,128,4,3,12,success,1,2,0.5,0,0,0.5"
        );
    }

    #[test]
    fn heatmap_data_is_the_guides() {
        let text = written(|rows, out| write_heatmap_data(rows, out));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let map = &json["fused_Log_forward_T128"];
        assert_eq!(map["T"], 128);
        assert_eq!(map["cells"][0]["time_ms"], 3.0);
        assert_eq!(map["cells"][1]["status"], "not_tested");
        assert!(map["cells"][1]["peak_gb"].is_null());
    }
}
