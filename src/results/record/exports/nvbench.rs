//! `nvbench.json`, and beside it the samples: version 1.0.0 of NVBench's own files, so that its
//! scripts compare, plot and summarise our results.
//!
//! A benchmark there is a case with a phase and a backend, its axes are our parameters. Times stand
//! under `nv/cold/time/gpu`, on every device, because the scripts read no other times.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value as Json, json};
use sweeper_program::Value;

use sweeper_model::files;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::Status;
use sweeper_model::stats::Summary;

/// The file, and the folder of its samples, named as NVBench does.
const FILE: &str = "nvbench.json";
const SAMPLES: &str = "nvbench.json-bin";

/// How long all samples took together.
const WALLTIME: &str = "nv/cold/walltime";

/// Writes the file and its samples below `folder`.
///
/// # Errors
/// Those of the file system.
pub fn write(rows: &[Row], folder: &Path) -> io::Result<()> {
    let mut devices: Vec<&str> = rows.iter().map(|row| row.device_name.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let mut benchmarks: BTreeMap<String, Vec<(usize, &Row)>> = BTreeMap::new();
    for (number, row) in rows.iter().enumerate() {
        let name = format!("{} {} {}", row.case, row.phase, row.backend);
        benchmarks.entry(name).or_default().push((number, row));
    }
    let benchmarks = benchmarks.iter().enumerate();
    let benchmarks: Vec<Json> = benchmarks
        .map(|(index, (name, rows))| benchmark(index, name, rows, &devices))
        .collect();
    let devices = devices.iter().enumerate();
    let root = json!({
        "meta": {
            "argv": [],
            "version": {
                "json": { "major": 1, "minor": 0, "patch": 0, "string": "1.0.0" },
                "sweeper": env!("CARGO_PKG_VERSION"),
            },
        },
        "devices": devices
            .map(|(id, name)| json!({ "id": id, "name": name }))
            .collect::<Vec<_>>(),
        "benchmarks": benchmarks,
    });
    let samples = folder.join(SAMPLES);
    fs::create_dir_all(&samples)?;
    for (number, row) in rows.iter().enumerate() {
        if let Some(measurement) = measured(row) {
            let times = measurement.samples_ns.iter();
            let bytes: Vec<u8> = times
                .flat_map(|ns| ((ns / 1e9) as f32).to_le_bytes())
                .collect();
            fs::write(samples.join(format!("{number}.bin")), bytes)?;
        }
    }
    let mut out = files::create(folder, FILE)?;
    serde_json::to_writer_pretty(&mut out, &root)?;
    out.flush()
}

fn measured(row: &Row) -> Option<&sweeper_model::row::outcome::Measurement> {
    let is_ok = row.outcome.status == Status::Ok;
    let found = row.outcome.measurement.as_deref().filter(|_| is_ok)?;
    (!found.samples_ns.is_empty()).then_some(found)
}

/// Parameters, and how they were measured: all that tells the points of one benchmark apart.
fn axes(row: &Row) -> BTreeMap<String, Value> {
    let mut axes = row.parameters.clone();
    for (name, value) in [
        ("dtype", Value::from(row.dtype.name())),
        ("l2", Value::from(row.l2.as_str())),
        ("mode", Value::from(row.mode.as_str())),
        ("threads", Value::Int(i64::from(row.threads))),
    ] {
        axes.entry(name.to_owned()).or_insert(value);
    }
    axes
}

/// NVBench's word for the kind of an axis.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        _ => "string",
    }
}

fn benchmark(index: usize, name: &str, rows: &[(usize, &Row)], devices: &[&str]) -> Json {
    let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (_, row) in rows {
        for (name, value) in axes(row) {
            let held = values.entry(name).or_default();
            if !held.contains(&value) {
                held.push(value);
            }
        }
    }
    let axis = |(name, values): (&String, &Vec<Value>)| {
        let value = |value: &Value| json!({ "input_string": value.to_string(), "description": "", "value": plain(value) });
        json!({
            "name": name,
            "type": values.first().map_or("string", kind),
            "flags": "",
            "values": values.iter().map(value).collect::<Vec<_>>(),
        })
    };
    let ids: Vec<usize> = (0..devices.len())
        .filter(|&id| rows.iter().any(|(_, row)| row.device_name == devices[id]))
        .collect();
    json!({
        "name": name,
        "index": index,
        "devices": ids,
        "axes": values.iter().map(axis).collect::<Vec<_>>(),
        "states": rows.iter().map(|(number, row)| state(*number, row, devices)).collect::<Vec<_>>(),
    })
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Int(value) => json!(value),
        Value::Float(value) => json!(value),
        other => json!(other.to_string()),
    }
}

fn state(number: usize, row: &Row, devices: &[&str]) -> Json {
    let device = devices.iter().position(|name| *name == row.device_name);
    let device = device.unwrap_or(0);
    let axes = axes(row);
    let words: Vec<String> = axes
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let values: Vec<Json> = axes
        .iter()
        .map(|(name, value)| json!({ "name": name, "type": kind(value), "value": value.to_string() }))
        .collect();
    let mut state = json!({
        "name": format!("Device={device} {}", words.join(" ")),
        "device": device,
        "type_config_index": 0,
        "axis_values": values,
        "summaries": summaries(number, row),
        "is_skipped": measured(row).is_none(),
    });
    if measured(row).is_none() {
        let reason = row.outcome.reason.as_deref().unwrap_or_default();
        state["skip_reason"] = json!(format!("{}: {reason}", row.outcome.status));
    }
    state
}

fn summaries(number: usize, row: &Row) -> Vec<Json> {
    let (Some(found), Some(summary)) = (measured(row), row.summary()) else {
        // `nvbench-walltime` fails at a state without one.
        return vec![number_of(WALLTIME, "Walltime", "duration", 0.0)];
    };
    let Summary {
        n,
        median,
        mean,
        std,
        min,
        q1,
        q3,
        max,
        ..
    } = summary;
    let total_ns = found.samples_ns.iter().sum::<f64>() * f64::from(found.iterations);
    let times = [
        ("min", min),
        ("max", max),
        ("mean", mean),
        ("median", median),
        ("q1", q1),
        ("q3", q3),
        ("stdev/absolute", std),
        ("iqr/absolute", q3 - q1),
    ];
    let mut all = vec![summary_of(
        "nv/cold/sample_size",
        "Samples",
        "sample_size",
        &json!(n.to_string()),
    )];
    all.extend(times.map(|(tag, ns)| {
        number_of(
            &format!("nv/cold/time/gpu/{tag}"),
            &format!("Time {tag}"),
            "duration",
            ns / 1e9,
        )
    }));
    for (tag, part, whole) in [("stdev", std, mean), ("iqr", q3 - q1, median)] {
        let tag = format!("nv/cold/time/gpu/{tag}/relative");
        all.push(number_of(&tag, "Noise", "percentage", part / whole));
    }
    all.push(number_of(WALLTIME, "Walltime", "duration", total_ns / 1e9));
    all.push(number_of(
        "nv/cold/bw/global/bytes_per_second",
        "Compulsory bytes",
        "byte_rate",
        found.compulsory_bytes / median * 1e9,
    ));
    if let Some(clocks) = &found.clocks {
        let (tag, hertz) = ("nv/cold/sm_clock_rate/mean", f64::from(clocks.sm_mhz) * 1e6);
        all.push(number_of(tag, "Clock", "frequency", hertz));
    }
    all.push(sample_times(number, n));
    all
}

/// The file of `n` sample times of state `number`.
fn sample_times(number: usize, n: usize) -> Json {
    json!({
        "tag": "nv/json/bin:nv/cold/sample_times",
        "name": "Samples Times File",
        "description": "Times of one iteration in seconds, as little-endian f32",
        "hint": "file/sample_times",
        "hide": "Not needed in table.",
        "data": [
            { "name": "filename", "type": "string", "value": format!("{SAMPLES}/{number}.bin") },
            { "name": "size", "type": "int64", "value": n.to_string() },
        ],
    })
}

/// A number as NVBench writes it: its digits in quotes, null where it is not finite.
fn number_of(tag: &str, name: &str, hint: &str, number: f64) -> Json {
    let value = match number.is_finite() {
        true => json!(number.to_string()),
        false => Json::Null,
    };
    summary_of(tag, name, hint, &value)
}

fn summary_of(tag: &str, name: &str, hint: &str, value: &Json) -> Json {
    let kind = if hint == "sample_size" {
        "int64"
    } else {
        "float64"
    };
    json!({
        "tag": tag,
        "name": name,
        "description": "",
        "hint": hint,
        "data": [{ "name": "value", "type": kind, "value": value }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::row::outcome::{Measurement, Outcome};
    use sweeper_model::row::test_row;

    #[test]
    fn states_have_times_in_seconds_and_samples_beside() {
        let measurement = Measurement {
            samples_ns: vec![2e6, 1e6, 4e6],
            iterations: 10,
            ..Measurement::default()
        };
        let rows = [
            test_row(1, Outcome::measured(measurement)),
            test_row(2, Outcome::without_measurement(Status::Oom, "too much")),
        ];
        let folder = tempfile::tempdir().unwrap();
        write(&rows, folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join(FILE)).unwrap();
        let root: Json = serde_json::from_str(&text).unwrap();
        let states = &root["benchmarks"][0]["states"];
        let summaries = states[0]["summaries"].as_array().unwrap();
        let of = |tag: &str| summaries.iter().find(|held| held["tag"] == tag).unwrap();
        assert_eq!(of("nv/cold/time/gpu/median")["data"][0]["value"], "0.002");
        assert_eq!(of("nv/cold/walltime")["data"][0]["value"], "0.07");
        assert_eq!(states[1]["is_skipped"], true);
        assert_eq!(states[1]["skip_reason"], "oom: too much");
        let samples = fs::read(folder.path().join(SAMPLES).join("0.bin")).unwrap();
        assert_eq!(samples[..4], 0.002f32.to_le_bytes());
        assert_eq!(samples.len(), 12);
    }
}
