//! Results of autotuners in the T4 format (schema 1.0.0, as Kernel Tuner, KTT and the benchmark hub
//! write it) as rows.
//!
//! Times of compiling are called `compilation_time` in the schema and `compilation` in all files.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use sweeper_program::{Dtype, Phase, Value};

use sweeper_model::hardware::DeviceKind;
use sweeper_model::identity::{Digest, PointId, ProblemId};
use sweeper_model::row::outcome::{Measurement, Outcome, Status};
use sweeper_model::row::{CompileUse, Row};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    metadata: Map<String, Json>,
    results: Vec<Outcomes>,
}

#[derive(Deserialize)]
struct Outcomes {
    configuration: BTreeMap<String, Json>,
    #[serde(default)]
    times: Map<String, Json>,
    #[serde(default)]
    invalidity: String,
    #[serde(default)]
    measurements: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    name: String,
    value: Json,
    #[serde(default)]
    unit: String,
}

/// Names of units, in nanoseconds.
const UNITS: [(&str, f64); 9] = [
    ("nanoseconds", 1.0),
    ("ns", 1.0),
    ("microseconds", 1e3),
    ("us", 1e3),
    ("milliseconds", 1e6),
    // As the files of the benchmark hub spell it.
    ("miliseconds", 1e6),
    ("ms", 1e6),
    ("seconds", 1e9),
    ("s", 1e9),
];

/// The rows of a file called `name`: one for each configuration, in its order.
///
/// # Errors
/// A sentence: the text is not T4, or has a unit that is not known.
pub fn rows(text: &str, name: &str) -> Result<Vec<Row>, String> {
    let file: File = serde_json::from_str(text)
        .map_err(|error| format!("this is not a file of results in the T4 format: {error}"))?;
    let word = |key: &str| file.metadata.get(key).and_then(Json::as_str);
    let unit_ns = unit_ns(word("timeunit").unwrap_or("milliseconds"))?;
    let kernel = word("kernel_name").unwrap_or(name);
    let workload = word("workload").unwrap_or(kernel);
    let parameters = file.metadata.get("parameters").and_then(Json::as_object);
    let parameters: BTreeMap<String, Value> = parameters
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value_of(value)))
        .collect();
    let about = format!("{workload} {parameters:?}");
    let problem = ProblemId(Digest::from_bytes(Sha256::digest(&about).into()));
    let whole = Sha256::digest(text);
    let row = |(number, found): (usize, &Outcomes)| {
        let point = Sha256::new()
            .chain_update(format!("t4 {number} "))
            .chain_update(whole)
            .finalize();
        Ok(Row {
            point: PointId(Digest::from_bytes(point.into())),
            problem,
            case: workload.to_owned(),
            workload: workload.to_owned(),
            parameters: parameters.clone(),
            values: BTreeMap::new(),
            dtype: word("dtype").and_then(Dtype::named).unwrap_or(Dtype::F32),
            backend: configured(kernel, &found.configuration),
            phase: Phase::Forward,
            canonical: BTreeMap::new(),
            device: DeviceKind::Cuda,
            device_name: word("device").unwrap_or("a GPU").to_owned(),
            l2: word("l2").unwrap_or_default().to_owned(),
            mode: String::new(),
            threads: 1,
            unix_time_s: 0.0,
            compile: compile(found, unit_ns),
            roofline_ns: None,
            ceiling_flops_per_s: None,
            earlier_rows: 0,
            retried_in: None,
            reused_from: None,
            outcome: outcome(found, unit_ns)?,
        })
    };
    file.results.iter().enumerate().map(row).collect()
}

fn unit_ns(name: &str) -> Result<f64, String> {
    let found = UNITS.iter().find(|(known, _)| *known == name);
    found.map(|(_, unit_ns)| *unit_ns).ok_or_else(|| {
        let known: Vec<&str> = UNITS.iter().map(|(name, _)| *name).collect();
        format!(
            "the unit of time `{name}` is not known: {}",
            known.join(" ")
        )
    })
}

fn value_of(value: &Json) -> Value {
    match value {
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Value::Int(value),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        other => Value::from(other.to_string().as_str()),
    }
}

/// A configuration as a backend: `gemm{MWG=16,NWG=32}`.
fn configured(kernel: &str, configuration: &BTreeMap<String, Json>) -> String {
    let pairs = configuration.iter();
    let pairs = pairs.map(|(name, value)| format!("{name}={}", value_of(value)));
    let pairs: Vec<String> = pairs.collect();
    match pairs.is_empty() {
        true => kernel.to_owned(),
        false => format!("{kernel}{{{}}}", pairs.join(",")),
    }
}

fn compile(found: &Outcomes, unit_ns: f64) -> CompileUse {
    let names = ["compilation", "compilation_time"];
    let time = names
        .iter()
        .find_map(|name| found.times.get(*name)?.as_f64());
    CompileUse {
        compile_ns: time.map_or(0, |time| (time * unit_ns) as u64),
        ..CompileUse::default()
    }
}

fn outcome(found: &Outcomes, unit_ns: f64) -> Result<Outcome, String> {
    let status = match found.invalidity.as_str() {
        "correct" | "" => Status::Ok,
        "correctness" => Status::Wrong,
        "compile" => Status::CompileError,
        "timeout" => Status::Timeout,
        "constraints" => Status::Skipped,
        _ => Status::Error,
    };
    if status != Status::Ok {
        let reason = format!("`invalidity` is `{}`", found.invalidity);
        return Ok(Outcome::without_measurement(status, reason));
    }
    let samples_ns = samples_ns(found, unit_ns)?;
    if samples_ns.is_empty() {
        let reason = "neither run times nor a measurement `time`";
        return Ok(Outcome::without_measurement(Status::Error, reason));
    }
    Ok(Outcome::measured(Measurement {
        samples_ns,
        iterations: 1,
        ..Measurement::default()
    }))
}

/// The run times, or the measured time where a file has none.
fn samples_ns(found: &Outcomes, unit_ns: f64) -> Result<Vec<f64>, String> {
    let is_time = |time_ns: &f64| time_ns.is_finite() && *time_ns > 0.0;
    if let Some(Json::Array(times)) = found.times.get("runtimes") {
        let times_ns = times
            .iter()
            .filter_map(|time| Some(time.as_f64()? * unit_ns));
        let times_ns: Vec<f64> = times_ns.filter(is_time).collect();
        if !times_ns.is_empty() {
            return Ok(times_ns);
        }
    }
    let measured = found.measurements.iter().find(|it| it.name == "time");
    let Some(measured) = measured else {
        return Ok(Vec::new());
    };
    let unit_ns = match measured.unit.as_str() {
        "" => unit_ns,
        unit => self::unit_ns(unit)?,
    };
    let time_ns = measured.value.as_f64().map(|time| time * unit_ns);
    Ok(time_ns.filter(is_time).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_become_rows_with_their_times_and_failures() {
        let text = r#"{"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}, "results": [
            {"configuration": {"b": 2, "a": "x"}, "times": {"compilation": 918.5, "runtimes": [0.5, 0.75]},
             "invalidity": "correct", "correctness": 1, "measurements": [], "objectives": ["time"]},
            {"configuration": {"b": 4, "a": "x"}, "times": {"compilation_time": 1, "runtimes": []},
             "invalidity": "correct", "measurements": [{"name": "time", "value": 3, "unit": "us"}]},
            {"configuration": {"b": 8, "a": "x"}, "times": {}, "invalidity": "compile"}]}"#;
        let rows = rows(text, "add").unwrap();
        let backends: Vec<&str> = rows.iter().map(|row| &*row.backend).collect();
        assert_eq!(backends, ["add{a=x,b=2}", "add{a=x,b=4}", "add{a=x,b=8}"]);
        assert_eq!(rows[0].summary().map(|it| it.median), Some(625_000.0));
        assert_eq!(rows[0].compile.compile_ns, 918_500_000);
        assert_eq!(rows[1].summary().map(|it| it.median), Some(3000.0));
        assert_eq!(rows[2].outcome.status, Status::CompileError);
        assert!(rows[0].point != rows[1].point && rows[0].problem == rows[1].problem);
    }

    #[test]
    fn what_is_no_t4_is_refused() {
        assert!(
            rows("{}", "x")
                .unwrap_err()
                .contains("not a file of results")
        );
        let misspelt = r#"{"metadata": {"timeunit": "miliseconds"}, "results": []}"#;
        assert!(rows(misspelt, "x").unwrap().is_empty());
        let unit = r#"{"metadata": {"timeunit": "fortnights"}, "results": []}"#;
        assert!(
            rows(unit, "x")
                .unwrap_err()
                .contains("`fortnights` is not known")
        );
    }
}
