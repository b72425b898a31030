//! `compilation_economics.json` of the compilation guide: one object for each comparison of a
//! backend with the baseline, and each state of the kernel cache that a loop may start with. Times
//! are seconds, as in the guide.

use std::collections::BTreeMap;

use serde::Serialize;
use sweeper_program::Value;

use sweeper_model::economics::{
    Comparison, Crossing, Loop, Priced, Start, Steady, is_same_program,
};
use sweeper_model::interval::LogInterval;
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Starting, Status};

/// One side of a comparison, by the lines of the guide's table.
#[derive(Debug, Serialize)]
struct Side {
    implementation: String,
    warmup_s: f64,
    warmup_low_s: Option<f64>,
    warmup_high_s: Option<f64>,
    warmup_per_iteration_s: f64,
    steady_state_s: f64,
    steady_state_per_iteration_s: f64,
    total_time_s: f64,
    average_per_iteration_s: f64,
}

/// A comparison. Unknown values, and a break-even that never comes, are null.
#[derive(Debug, Serialize)]
pub struct Object {
    workload: String,
    parameters: BTreeMap<String, Value>,
    phase: String,
    mode: String,
    l2: String,
    threads: u32,
    device_name: String,
    start: &'static str,
    iterations: u64,
    warmup_iterations: u32,
    no_compile: Side,
    compile: Side,
    warmup_overhead: f64,
    steady_state_speedup: Option<f64>,
    steady_state_speedup_low: Option<f64>,
    steady_state_speedup_high: Option<f64>,
    total_speedup: Option<f64>,
    total_speedup_low: Option<f64>,
    total_speedup_high: Option<f64>,
    break_even: &'static str,
    break_even_point: Option<u64>,
    break_even_point_low: Option<u64>,
    break_even_point_high: Option<u64>,
    verdict: &'static str,
    best_for: String,
}

/// All comparisons of rows that are right with those of a baseline of their problem, by baselines
/// and then in the order of the rows; totals are of so many `iterations`.
pub fn comparisons(rows: &[Row], baselines: &[&str], iterations: u32) -> Vec<Object> {
    let each = baselines.iter();
    each.flat_map(|baseline| against(rows, baseline, iterations))
        .collect()
}

fn against(rows: &[Row], baseline: &str, iterations: u32) -> Vec<Object> {
    let mut bases: BTreeMap<Vec<String>, (&Row, Priced)> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.backend == baseline) {
        if let Some(price) = priced(row) {
            bases.insert(alike(row), (row, price));
        }
    }
    let others = rows.iter().filter(|row| row.backend != baseline);
    let pairs = others.filter_map(|row| Some((bases.get(&alike(row))?, row, priced(row)?)));
    pairs
        .flat_map(|((base, base_price), row, price)| {
            let compared = |start| Comparison::new(base_price, &price, start, iterations);
            let found = Start::each(&Start::ALL, compared).into_iter();
            found.map(move |(start, found)| {
                let is_same = is_same_program(program_of(base), program_of(row));
                object(base, row, start, &found.of_same_program(is_same))
            })
        })
        .collect()
}

/// A row's backend, and the earlier backend that had its program.
fn program_of(row: &Row) -> (&str, Option<&str>) {
    let found = row.outcome.measurement.as_ref();
    let same = found.and_then(|found| found.same_program_as.as_deref());
    (&row.backend, same)
}

/// Everything that rows have in common that differ by the backend alone.
fn alike(row: &Row) -> Vec<String> {
    vec![
        row.problem.0.hex(),
        row.phase.to_string(),
        row.mode.clone(),
        row.l2.clone(),
        row.threads.to_string(),
        row.device_name.clone(),
    ]
}

/// A row's program as the body of a loop, if it is right and says everything.
fn priced(row: &Row) -> Option<Priced> {
    let found = row.outcome.measurement.as_ref()?;
    let summary = row.summary().filter(|_| row.outcome.status == Status::Ok)?;
    let steady = Steady {
        median_ns: summary.median,
        interval_ns: (summary.n > 1).then_some((summary.interval.low, summary.interval.high)),
    };
    let once = found.own_prepare_ns().zip(found.first_runs);
    let once = once.and_then(|(prepare_ns, first_runs)| Starting::once(prepare_ns, first_runs));
    let starting = row.fresh_starting().or(once);
    let cold = row.cold_starting();
    Priced::new(&row.compile, starting, cold, steady, found.checked)
}

fn object(base: &Row, row: &Row, start: &'static str, found: &Comparison) -> Object {
    // One program is neither faster nor slower than itself.
    let judged = |number: f64| (!found.is_same_program).then_some(number);
    let speedups = [found.steady_speedup(), found.total_speedup()].map(LogInterval::numbers);
    let [steady, total] = speedups.map(|numbers| numbers.map(judged));
    let break_even = found.break_even();
    let ends = break_even.ends.filter(|_| !found.is_same_program);
    Object {
        workload: row.workload.clone(),
        parameters: row.parameters.clone(),
        phase: row.phase.to_string(),
        mode: row.mode.clone(),
        l2: row.l2.clone(),
        threads: row.threads,
        device_name: row.device_name.clone(),
        start,
        iterations: found.iterations,
        warmup_iterations: found.other.first,
        no_compile: side(base, &found.baseline, found.iterations),
        compile: side(row, &found.other, found.iterations),
        warmup_overhead: found.other.warmup_ns / found.baseline.warmup_ns,
        steady_state_speedup: steady[1],
        steady_state_speedup_low: steady[0],
        steady_state_speedup_high: steady[2],
        total_speedup: total[1],
        total_speedup_low: total[0],
        total_speedup_high: total[2],
        break_even: match break_even.estimate {
            _ if found.is_same_program => "same program",
            _ if break_even.is_unclear => "unclear",
            Crossing::At(_) => "reached",
            Crossing::Never => "never",
        },
        break_even_point: number(break_even.estimate).filter(|_| !found.is_same_program),
        break_even_point_low: ends.and_then(|(low, _)| number(low)),
        break_even_point_high: ends.and_then(|(_, high)| number(high)),
        verdict: found.verdict().name(),
        best_for: found.best_for(),
    }
}

fn number(at: Crossing) -> Option<u64> {
    match at {
        Crossing::At(iterations) => Some(iterations),
        Crossing::Never => None,
    }
}

fn side(row: &Row, held: &Loop, iterations: u64) -> Side {
    let total_ns = held.total_ns(iterations);
    Side {
        implementation: row.backend.clone(),
        warmup_s: held.warmup_ns / 1e9,
        warmup_low_s: held.warmup_ends_ns.map(|(low, _)| low / 1e9),
        warmup_high_s: held.warmup_ends_ns.map(|(_, high)| high / 1e9),
        warmup_per_iteration_s: held.warmup_ns / f64::from(held.first) / 1e9,
        steady_state_s: (total_ns - held.warmup_ns) / 1e9,
        steady_state_per_iteration_s: held.steady.median_ns / 1e9,
        total_time_s: total_ns / 1e9,
        average_per_iteration_s: total_ns / iterations as f64 / 1e9,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guides::write_objects;
    use sweeper_model::row::outcome::{Checked, FirstRuns, FreshStart, Measurement, Outcome};
    use sweeper_model::row::{CompileUse, test_row};

    fn row(backend: &str, median_ns: f64, compile_ns: u64) -> Row {
        let measurement = Measurement {
            samples_ns: vec![median_ns; 7],
            prepare_ns: Some(50_000),
            checked: Checked::Full,
            first_runs: Some(FirstRuns {
                count: 5,
                elapsed_ns: 6.0 * median_ns,
            }),
            ..Measurement::default()
        };
        let mut row = test_row(1, Outcome::measured(measurement));
        backend.clone_into(&mut row.backend);
        row.compile = CompileUse {
            kernels: 2,
            hits: 0,
            compile_ns,
            wall_ns: Some(compile_ns),
            read_ns: Some(30_000),
        };
        row
    }

    fn objects(rows: &[Row]) -> Vec<serde_json::Value> {
        let mut bytes = Vec::new();
        write_objects(&comparisons(rows, &["eager"], 100), &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_comparison_has_the_lines_of_the_guides_table() {
        let rows = [row("eager", 2000.0, 0), row("compiled", 1000.0, 900_000)];
        let [cold, ready, warm] = &objects(&rows)[..] else {
            panic!("three starts");
        };
        assert_eq!(cold["start"], "cold");
        assert_eq!(cold["no_compile"]["warmup_s"], 62e-6);
        assert_eq!(cold["no_compile"]["total_time_s"], 252e-6);
        assert_eq!(cold["compile"]["warmup_s"], 956e-6);
        assert_eq!(cold["compile"]["steady_state_s"], 95e-6);
        assert_eq!(cold["steady_state_speedup"], 2.0);
        // 5 + (956 - 62) / 1 microseconds.
        assert_eq!(cold["break_even_point"], 899);
        // One start has no interval, and so has nothing that rests on it.
        assert_eq!(cold["break_even_point_high"], serde_json::Value::Null);
        assert_eq!(cold["compile"]["warmup_high_s"], serde_json::Value::Null);
        assert_eq!(cold["verdict"], "NO COMPILE WINS");
        assert_eq!(ready["break_even_point"], 5 + 864);
        assert_eq!(warm["break_even_point"], 1);
        assert_eq!(warm["verdict"], "COMPILE WINS");
        assert_eq!(warm["parameters"]["T"], 128);
    }

    #[test]
    fn starts_in_processes_of_their_own_give_the_warm_up_and_its_interval() {
        let mut rows = [row("eager", 2000.0, 0), row("compiled", 1000.0, 900_000)];
        for row in &mut rows {
            let found = row.outcome.measurement.as_mut().unwrap();
            // The worker's own start is left out: it may be the process's first.
            found.prepare_ns = Some(9_000_000);
            let start = |prepare_ns| FreshStart {
                prepare_ns,
                first_runs: FirstRuns {
                    count: 5,
                    elapsed_ns: 5000.0,
                },
            };
            found.fresh_starts = [40_000, 50_000, 60_000].map(start).to_vec();
        }
        let cold = &objects(&rows)[0];
        assert_eq!(cold["no_compile"]["warmup_s"], 55e-6);
        assert_eq!(cold["no_compile"]["warmup_low_s"], 45e-6);
        assert_eq!(cold["no_compile"]["warmup_high_s"], 65e-6);
        // 5 + (955 - 55) / 1 microseconds, and the effect of 10 a side.
        assert_eq!(cold["break_even_point"], 905);
        assert_eq!(cold["break_even_point_low"], 905 - 14);
        assert_eq!(cold["break_even_point_high"], 905 + 15);
    }

    #[test]
    fn functions_in_python_pay_for_what_they_compile_and_not_for_imports() {
        let mut rows = [
            row("eager", 2000.0, 0),
            row("torch", 2000.0, 0),
            row("torch_compile", 1000.0, 0),
        ];
        let first_runs = FirstRuns {
            count: 5,
            elapsed_ns: 5000.0,
        };
        let start = |prepare_ns| FreshStart {
            prepare_ns,
            first_runs,
        };
        for row in &mut rows[1..] {
            row.compile = CompileUse::default();
            let found = row.outcome.measurement.as_mut().unwrap();
            found.prepare_ns = Some(3_050_000);
            found.import_ns = Some(3_000_000);
        }
        let found = rows[2].outcome.measurement.as_mut().unwrap();
        found.fresh_starts = vec![start(60_000); 3];
        found.cold_starts = vec![start(900_000); 3];
        let found = comparisons(&rows, &["eager", "torch"], 100);
        let of = |baseline: &str, start: &str| {
            let mut all = found.iter();
            let is_it = |held: &&Object| {
                let sides = [&held.no_compile, &held.compile].map(|side| &*side.implementation);
                sides == [baseline, "torch_compile"] && held.start == start
            };
            all.find(is_it).unwrap()
        };
        let cold = of("torch", "cold");
        assert_eq!(cold.no_compile.warmup_s, 62e-6);
        assert_eq!(cold.compile.warmup_s, 905e-6);
        assert_eq!(of("torch", "warm").compile.warmup_s, 65e-6);
        assert_eq!(of("eager", "cold").break_even_point, cold.break_even_point);
    }

    #[test]
    fn one_program_is_not_judged() {
        let mut rows = [row("eager", 2000.0, 0), row("compiled", 1000.0, 900_000)];
        let found = rows[1].outcome.measurement.as_mut().unwrap();
        found.same_program_as = Some("eager".to_owned());
        for object in objects(&rows) {
            assert_eq!(object["verdict"], "same program");
            assert_eq!(object["break_even"], "same program");
            for name in [
                "total_speedup",
                "steady_state_speedup_low",
                "break_even_point",
            ] {
                assert_eq!(object[name], serde_json::Value::Null, "{name}");
            }
        }
    }

    #[test]
    fn what_never_pays_and_what_has_no_price() {
        let mut rows = [row("eager", 1000.0, 0), row("compiled", 2000.0, 9)];
        let never = &objects(&rows)[0];
        assert_eq!(never["break_even"], "never");
        assert_eq!(never["break_even_point"], serde_json::Value::Null);
        rows[1].outcome.measurement.as_mut().unwrap().prepare_ns = None;
        assert!(objects(&rows).is_empty());
    }
}
