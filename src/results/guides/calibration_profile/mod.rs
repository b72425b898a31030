//! `calibration_profile.json`, in the format of the calibration guide: the ceilings of a device,
//! and the gains of fusing on it.
//!
//! Values have the guide's names, in both of its spellings; intervals, verdicts and controls, which
//! the guide lacks, stand beside them. Profiles are keyed by pattern *and* size. Unknown values are
//! null. A gigabyte is 10^9 bytes here, as in the guide.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::About;
use sweeper_model::fusion::subject::Subject;
use sweeper_model::fusion::{CONTROL, FUSED, UNFUSED};
use sweeper_model::hardware::peaks::{self, Peaks};
use sweeper_model::quantity;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Measurement, Status};

mod fused;
mod operation;

use operation::Operation;

/// Rows that differ in their backend alone, by backend.
type Group<'r> = BTreeMap<&'r str, &'r Row>;

/// Writes `calibration_profile.json`.
///
/// # Errors
/// Errors of the stream.
pub fn write(rows: &[Row], about: &About<'_>, mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, &profile(rows, about))?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Theoretical rates of the device.
struct Paper<'a> {
    about: &'a About<'a>,
    known: Option<&'static Peaks>,
}

impl Paper<'_> {
    /// Theoretical operations a second, in 10^9: the manifest's are of f32.
    fn gflops(&self, arithmetic: &str) -> Option<f64> {
        let given = self.about.hardware.peak_gflops;
        given
            .filter(|_| arithmetic == "f32")
            .or_else(|| self.known?.gflops(arithmetic))
    }

    fn bandwidth_gbps(&self) -> Option<f64> {
        let given = self.about.hardware.peak_bandwidth_gbps;
        given.or_else(|| Some(self.known?.bandwidth_gbps))
    }

    /// The source of a nominal value: the manifest, or a known value of the device.
    fn source(&self, given: Option<f64>) -> Option<&'static str> {
        match given {
            Some(_) => Some("manifest"),
            None => Some(self.known?.source),
        }
    }
}

fn profile(rows: &[Row], about: &About<'_>) -> Value {
    let paper = Paper {
        about,
        known: about
            .devices
            .first()
            .and_then(|device| peaks::known(&device.name)),
    };
    let (fusions, operations): (Vec<Group<'_>>, Vec<Group<'_>>) = groups(rows)
        .into_iter()
        .partition(|group| group.contains_key(UNFUSED) && group.contains_key(FUSED));
    let operations: Vec<Operation<'_>> = operations.iter().filter_map(Operation::of).collect();
    let measured = Measured::of(&operations);
    let mut profile = headline(&measured, &paper);
    profile.insert("metadata".to_owned(), metadata(rows, about));
    let operations = operations
        .iter()
        .map(|one| (one.key(), one.json(&paper, &measured)));
    profile.insert("operation_profiles".to_owned(), operations.collect());
    let mut left_out = Vec::new();
    let mut profiles = Map::new();
    for group in &fusions {
        match fused::profile(group, about.in_turns) {
            Ok((key, fusion)) => _ = profiles.insert(key, fusion),
            Err(reason) => left_out.push(reason),
        }
    }
    profile.insert("fusion_profiles".to_owned(), Value::Object(profiles));
    profile.insert("not_measured".to_owned(), Value::Array(left_out));
    Value::Object(profile)
}

/// Rows by all but their backend, in the order of the table, without rows that were left out by
/// declaration.
fn groups(rows: &[Row]) -> Vec<Group<'_>> {
    let mut places = BTreeMap::new();
    let mut groups: Vec<Group<'_>> = Vec::new();
    for row in rows {
        if row.outcome.status == Status::Skipped {
            continue;
        }
        let key = (row.problem, row.phase, &row.mode, &row.l2, row.threads);
        let place = *places.entry(key).or_insert_with(|| {
            groups.push(Group::new());
            groups.len() - 1
        });
        groups[place].insert(&row.backend, row);
    }
    groups
}

/// The subject of a row.
fn subject(row: &Row) -> Subject {
    let parameters = row.parameters.iter();
    Subject::of(
        &row.workload,
        parameters.map(|(name, value)| (name.as_str(), value)),
    )
}

fn key(row: &Row) -> String {
    subject(row).key(row.phase, row.mode == "graph")
}

/// The measurement of a row that is right, with its median in nanoseconds.
fn measurement(row: &Row) -> Option<(&Measurement, f64)> {
    let found = row.outcome.measurement.as_deref()?;
    let median_ns = row.summary()?.median;
    (row.outcome.status == Status::Ok && median_ns > 0.0).then_some((found, median_ns))
}

/// Rates that operations reached.
struct Measured {
    /// 10^9 operations a second of each operation that computes, by kind of arithmetic.
    gflops: BTreeMap<String, Vec<f64>>,
    /// The fastest copy, in 10^9 bytes a second.
    bandwidth_gbps: Option<f64>,
}

impl Measured {
    fn of(operations: &[Operation<'_>]) -> Self {
        let mut measured = Measured {
            gflops: BTreeMap::new(),
            bandwidth_gbps: None,
        };
        for one in operations {
            if one.gflops() > 0.0 {
                let kind = one.row.arithmetic().to_owned();
                measured.gflops.entry(kind).or_default().push(one.gflops());
            } else {
                let rate = measured.bandwidth_gbps.unwrap_or(0.0).max(one.gbps());
                measured.bandwidth_gbps = Some(rate);
            }
        }
        measured
    }

    fn best(&self, arithmetic: &str) -> Option<f64> {
        let rates = self.gflops.get(arithmetic)?.iter().copied();
        rates.reduce(f64::max)
    }
}

/// The numbers at the top: rates of f32, and of the fastest copy.
fn headline(measured: &Measured, paper: &Paper<'_>) -> Map<String, Value> {
    let rates = measured.gflops.get("f32").map_or(&[][..], Vec::as_slice);
    let peak = paper.gflops("f32");
    let bandwidth = paper.bandwidth_gbps();
    let hardware = paper.about.hardware;
    let mut top = Map::new();
    let mut add = |name: &str, value: Value| _ = top.insert(name.to_owned(), value);
    add("theoretical_peak_gflops", json!(peak));
    add("theoretical_bandwidth_gbps", json!(bandwidth));
    add(
        "theoretical_sources",
        json!({
            "peak_gflops": paper.source(hardware.peak_gflops),
            "bandwidth_gbps": paper.source(hardware.peak_bandwidth_gbps),
        }),
    );
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    for (name, rate) in [
        ("best", rates.iter().copied().reduce(f64::max)),
        ("avg", (!rates.is_empty()).then_some(mean)),
        ("worst", rates.iter().copied().reduce(f64::min)),
    ] {
        add(&format!("{name}_measured_gflops"), json!(rate));
        add(&format!("{name}_efficiency"), json!(part(rate, peak)));
    }
    add("measured_bandwidth_gbps", json!(measured.bandwidth_gbps));
    let efficiency = part(measured.bandwidth_gbps, bandwidth);
    add("bandwidth_efficiency", json!(efficiency));
    let kinds = measured.gflops.keys().map(|kind| {
        let (best, peak) = (measured.best(kind), paper.gflops(kind));
        let one = json!({
            "best_measured_gflops": best,
            "theoretical_peak_gflops": peak,
            "efficiency": part(best, peak),
        });
        (kind.clone(), one)
    });
    add("by_precision", Value::Object(kinds.collect()));
    top
}

/// The attained part of a theoretical rate.
fn part(measured: Option<f64>, theoretical: Option<f64>) -> Option<f64> {
    Some(measured? / theoretical?)
}

fn metadata(rows: &[Row], about: &About<'_>) -> Value {
    let device = about.devices.first();
    let name = device.map(|device| device.name.as_str());
    let details = device.map(|device| &device.details);
    // The last row: on the null device no time passes.
    let times = rows.iter().map(|row| row.unix_time_s);
    let ended_s = times.fold(0.0, f64::max);
    json!({
        "hardware_name": about.hardware.name.as_deref().or(name),
        "calibration_date": (ended_s > 0.0).then(|| quantity::date(ended_s)),
        "calibration_unix_s": (ended_s > 0.0).then_some(ended_s),
        "calibration_tool_version": format!("sweeper {}", env!("CARGO_PKG_VERSION")),
        "device_type": device.map(|device| device.kind.name()),
        "device_name": name,
        "device_details": details,
        "devices": about.devices.len(),
        "threads": rows.first().map(|row| row.threads),
        "run": about.run.0.hex(),
        "manifest": about.name,
        "unfused_backend": UNFUSED,
        "fused_backend": FUSED,
        "control_backend": CONTROL,
    })
}

#[cfg(test)]
mod tests;
