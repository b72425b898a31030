//! What tuning found, for other programs: `dispatch.json`, from a problem to its best
//! configuration, and the files of `t4/`, every configuration's times in the T4 format of
//! autotuners (schema 1.0.0, as Kernel Tuner and KTT write it).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use sweeper_model::files;
use sweeper_model::row::Row;
use sweeper_model::row::entry::{Entry, Words};
use sweeper_model::row::outcome::Status;
use sweeper_model::tuning::{choices, configuration_of, family_of};

/// Rows of one problem, phase and way of measuring.
type Groups<'r> = BTreeMap<String, Vec<&'r Row>>;

fn groups(rows: &[Row]) -> Groups<'_> {
    let mut groups = Groups::new();
    for row in rows {
        let key = format!(
            "{} {:?} {} {} {} {} {}",
            row.workload, row.parameters, row.dtype, row.phase, row.l2, row.mode, row.device_name
        );
        groups.entry(key).or_default().push(row);
    }
    groups
}

/// A configuration as an object.
fn configuration(backend: &str) -> Json {
    let pairs = configuration_of(backend).into_iter();
    Json::Object(
        pairs
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect(),
    )
}

/// Writes `dispatch.json`; nothing where no backend was tuned.
///
/// # Errors
/// Those of the file system.
pub fn write_dispatch(rows: &[Row], folder: &Path) -> io::Result<()> {
    let mut families: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    let mut words = Words::default();
    for rows in groups(rows).into_values() {
        let entries: Vec<Entry> = rows.iter().map(|row| Entry::of(row, &mut words)).collect();
        let entries: Vec<&Entry> = entries.iter().collect();
        for choice in choices(&entries) {
            let best = choice.best;
            let alike = choice
                .alike
                .iter()
                .map(|entry| configuration(&entry.backend));
            families
                .entry(choice.family.to_owned())
                .or_default()
                .push(json!({
                    "workload": &*best.workload,
                    "parameters": &best.parameters,
                    "dtype": best.dtype,
                    "phase": best.phase,
                    "device": best.device_name,
                    "l2": best.l2,
                    "mode": best.mode,
                    "configuration": configuration(&best.backend),
                    "median_ns": choice.best_ns(),
                    "measured_again": choice.is_by_again,
                    "alike": alike.collect::<Vec<_>>(),
                }));
        }
    }
    if families.is_empty() {
        return Ok(());
    }
    let root = json!({ "schema": 1, "backends": families });
    let mut out = files::create(folder, "dispatch.json")?;
    serde_json::to_writer_pretty(&mut out, &root)?;
    out.flush()
}

/// Writes a file of `t4/` for each tuned backend and problem.
///
/// # Errors
/// Those of the file system.
pub fn write_t4(rows: &[Row], folder: &Path) -> io::Result<()> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for rows in groups(rows).into_values() {
        let mut families: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            families
                .entry(family_of(&row.backend))
                .or_default()
                .push(row);
        }
        for (family, rows) in families.into_iter().filter(|(_, rows)| rows.len() > 1) {
            let number = numbers.entry(family).or_default();
            let below = folder.join("t4");
            fs::create_dir_all(&below)?;
            let mut out = files::create(&below, &format!("{family}-{number}.json"))?;
            *number += 1;
            serde_json::to_writer_pretty(&mut out, &t4(&rows))?;
            out.flush()?;
        }
    }
    Ok(())
}

/// The configurations of one backend for one problem in the T4 format.
fn t4(rows: &[&Row]) -> Json {
    let first = rows[0];
    json!({
        "schema_version": "1.0.0",
        "metadata": {
            "timeunit": "milliseconds",
            "kernel_name": family_of(&first.backend),
            "workload": first.workload,
            "parameters": first.parameters,
            "dtype": first.dtype,
            "phase": first.phase,
            "device": first.device_name,
            "l2": first.l2,
            "sweeper": env!("CARGO_PKG_VERSION"),
        },
        "results": rows.iter().map(|row| result(row)).collect::<Vec<_>>(),
    })
}

fn result(row: &Row) -> Json {
    let milliseconds = |ns: f64| ns / 1e6;
    let measurement = row.outcome.measurement.as_deref();
    let is_ok = row.outcome.status == Status::Ok;
    let samples = measurement.filter(|_| is_ok).map(|it| &it.samples_ns);
    let samples: Vec<f64> = samples
        .into_iter()
        .flatten()
        .map(|&ns| milliseconds(ns))
        .collect();
    let time = row.summary().filter(|_| is_ok);
    let mut result = Map::new();
    result.insert("timestamp".to_owned(), json!(row.unix_time_s.to_string()));
    result.insert("configuration".to_owned(), configuration(&row.backend));
    result.insert(
        "times".to_owned(),
        json!({
            "compilation": milliseconds(row.compile.compile_ns as f64),
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": samples,
        }),
    );
    result.insert(
        "invalidity".to_owned(),
        json!(invalidity(row.outcome.status)),
    );
    result.insert("correctness".to_owned(), json!(u8::from(is_ok)));
    let measured = time
        .map(|time| json!({ "name": "time", "value": milliseconds(time.median), "unit": "ms" }));
    let measured: Vec<Json> = measured.into_iter().collect();
    result.insert("measurements".to_owned(), Json::Array(measured));
    result.insert("objectives".to_owned(), json!(["time"]));
    Json::Object(result)
}

/// The word of T4 for a status.
fn invalidity(status: Status) -> &'static str {
    match status {
        Status::Ok => "correct",
        Status::Wrong => "correctness",
        Status::CompileError | Status::CompileTimeout => "compile",
        Status::Timeout => "timeout",
        Status::Skipped | Status::Refused => "constraints",
        _ => "runtime",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::row::outcome::{Measurement, Outcome};
    use sweeper_model::row::test_row;

    fn row(number: u8, backend: &str, samples_ns: Option<[f64; 3]>) -> Row {
        let outcome = match samples_ns {
            Some(samples_ns) => Outcome::measured(Measurement {
                samples_ns: samples_ns.to_vec(),
                ..Measurement::default()
            }),
            None => Outcome::without_measurement(Status::CompileError, "no"),
        };
        Row {
            backend: backend.to_owned(),
            ..test_row(number, outcome)
        }
    }

    #[test]
    fn a_program_can_load_what_tuning_found() {
        let folder = tempfile::tempdir().unwrap();
        let rows = [
            row(1, "f{a=1,b=x}", Some([4e6, 5e6, 6e6])),
            row(2, "f{a=2,b=x}", Some([1e6, 2e6, 3e6])),
            row(3, "f{a=4,b=x}", None),
            row(4, "plain", Some([1.0, 2.0, 3.0])),
        ];
        write_dispatch(&rows, folder.path()).unwrap();
        write_t4(&rows, folder.path()).unwrap();
        let read = |name: &str| -> Json {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let dispatch = read("dispatch.json");
        let chosen = &dispatch["backends"]["f"][0];
        assert_eq!(chosen["configuration"], json!({ "a": 2, "b": "x" }));
        assert_eq!(chosen["parameters"]["T"], json!(128));
        assert_eq!(dispatch["backends"].as_object().unwrap().len(), 1);
        let t4 = read("t4/f-0.json");
        assert_eq!(t4["results"].as_array().unwrap().len(), 3);
        let [slow, fast, failed] = [0, 1, 2].map(|at| &t4["results"][at]);
        assert_eq!(slow["measurements"][0]["value"], json!(5.0));
        assert_eq!(fast["times"]["runtimes"], json!([1.0, 2.0, 3.0]));
        assert_eq!(
            (&fast["invalidity"], &fast["correctness"]),
            (&json!("correct"), &json!(1))
        );
        assert_eq!(failed["invalidity"], json!("compile"));
        assert_eq!(failed["measurements"], json!([]));
        assert_eq!(failed["configuration"]["a"], json!(4));
    }
}
