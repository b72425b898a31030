//! From rows to answers: when compiling pays (the compilation guide), and implementations of
//! operations side by side (the operations guide).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sweeper::device::cpu::Cpu;
use sweeper::device::{Device, Job, RunsPrograms};
use sweeper_program::inputs::InputKey;
use sweeper_program::{CanonicalShape, Dtype, Parameters, Phase, Target};
use sweeper_workloads::registry;

use super::conformance::artifact;
use super::place::{Place, code, text};
use crate::support::golden;

/// A row of `records.csv` as far as these tables read it.
struct Row {
    batch: u32,
    phase: &'static str,
    backend: &'static str,
    median_ns: f64,
    /// Half of the interval's width, as a part of the median.
    width: f64,
    compile_ns: u64,
    checked: &'static str,
}

const HEADER: &str = "point,problem,case,workload,backend,phase,dtype,batch,sequence,dimension,status,reason,n,\
    median_ns,median_low_ns,median_high_ns,iterations,warmup_samples,first_runs,first_runs_ns,prepare_ns,\
    fresh_starts,start_runs,start_ns,start_low_ns,start_high_ns,launches,\
    library_launches,flops,compulsory_bytes,roofline_ns,peak_allocated_bytes,kernels,kernel_hits,compile_ns,\
    cache_read_ns,checked,schema\n";

/// Starts of different backends' programs take equally long, except for compiling.
fn line(number: usize, row: &Row) -> String {
    let Row {
        batch,
        phase,
        backend,
        median_ns,
        width,
        compile_ns,
        checked,
    } = row;
    let (low, high) = (median_ns * (1.0 - width), median_ns * (1.0 + width));
    let bytes = 2 * 4 * batch * 64 * 32;
    let kernels = u32::from(*compile_ns > 0);
    format!(
        "{number:064x},{batch:064x},layernorm,layernorm,{backend},{phase},f32,{batch},64,32,ok,,30,{median_ns},{low},\
         {high},9,4,5,{first},40000,5,5,{start},{start_low},{start_high},{launches},0,1000,{bytes},{roofline},{bytes},{kernels},0,{compile_ns},20000,\
         {checked},1\n",
        first = median_ns * 6.0,
        start = 40_000.0 + median_ns * 6.0,
        start_low = 35_000.0 + median_ns * 6.0,
        start_high = 50_000.0 + median_ns * 6.0,
        launches = if *backend == "eager" { 3 } else { 1 },
        roofline = bytes / 100,
    )
}

/// Compiling pays at the greater batch only; the backward pass does not tell; the fastest was not
/// checked.
fn records() -> String {
    let row = |batch, phase, backend, median_ns, compile_ns| Row {
        batch,
        phase,
        backend,
        median_ns,
        width: 0.01,
        compile_ns,
        checked: "full",
    };
    let rows = [
        row(16, "forward", "eager", 10_000.0, 200_000_000),
        row(16, "forward", "compiled", 12_000.0, 100_000_000),
        row(32, "forward", "eager", 20_000.0, 200_000_000),
        row(32, "forward", "compiled", 16_000.0, 220_000_000),
        Row {
            checked: "none",
            ..row(16, "forward", "reckless", 5_000.0, 1_000_000)
        },
        Row {
            checked: "none",
            ..row(32, "forward", "reckless", 8_000.0, 1_000_000)
        },
        row(32, "backward", "eager", 30_000.0, 0),
        Row {
            width: 0.05,
            ..row(32, "backward", "compiled", 29_900.0, 1_000_000)
        },
    ];
    let lines = rows.iter().enumerate();
    HEADER.to_owned() + &lines.map(|(at, row)| line(at, row)).collect::<String>()
}

fn reported(place: &Place, args: &[&str]) -> String {
    let output = place.sweeper(&[&["report"], args].concat());
    assert_eq!(code(&output), 0, "{}", text(&output));
    text(&output)
}

fn place(records: &str) -> Place {
    let place = Place::new("");
    fs::write(place.path("r.csv"), records).unwrap();
    place
}

#[test]
fn tables_are_as_promised() {
    let place = place(&records());
    reported(&place, &["r.csv", "--baseline", "eager", "--format", "svg"]);
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/report");
    for name in [
        "economics.csv",
        "economics.md",
        "economics.tex",
        "comparison.csv",
        "comparison.md",
    ] {
        let made = fs::read_to_string(place.path("r-report").join(name)).unwrap();
        golden(&goldens.join(name), &made).unwrap();
    }
    let plot = fs::read_to_string(place.path("r-report/break_even_forward.svg")).unwrap();
    assert!(
        plot.contains("Time of a loop over its iterations: forward"),
        "{plot}"
    );
}

#[test]
fn files_from_before_are_reported_without_what_they_lack() {
    let fresh = "fresh_starts,start_runs,start_ns,start_low_ns,start_high_ns";
    let without_fresh = records().replacen(fresh, "a,b,c,d,e", 1);
    let place = place(&without_fresh);
    reported(&place, &["r.csv", "--no-plots"]);
    let folder = place.path("r-report");
    // One start, of the process that measured: how far it is off is unknown, and no verdict rests
    // on it.
    let verdicts = fs::read_to_string(folder.join("economics.csv")).unwrap();
    for row in rows(&verdicts) {
        assert_eq!(row["break_even_low"], "", "{row:?}");
    }
    fs::remove_dir_all(&folder).unwrap();
    let without_starts = without_fresh.replacen("first_runs,first_runs_ns,prepare_ns", "f,g,h", 1);
    fs::write(place.path("r.csv"), without_starts).unwrap();
    reported(&place, &["r.csv", "--no-plots"]);
    assert!(!folder.join("economics.csv").exists());
    assert!(folder.join("comparison.csv").exists());
}

#[test]
fn a_word_that_a_workload_lacks_names_no_folder() {
    let workload = |workload: &str, forms: &[&str], first: usize| -> String {
        let each = forms.iter().enumerate().map(|(at, form)| {
            let row = Row {
                batch: 16,
                phase: "forward",
                backend: "eager",
                median_ns: 1e4,
                width: 0.01,
                compile_ns: 0,
                checked: "full",
            };
            line(first + at, &row)
                .replace("layernorm,layernorm", &format!("{workload},{workload}"))
                .replace(",f32,", &format!(",f32,{form},"))
        });
        each.collect()
    };
    let records = HEADER.replace("dtype,", "dtype,form,")
        + &workload("gelu", &["erf", "tanh", ""], 0)
        + &workload("swish", &[""], 10);
    let place = place(&records);
    reported(&place, &["r.csv", "--no-plots"]);
    let folder = place.path("r-report");
    for section in [
        "gelu/form=erf",
        "gelu/form=tanh",
        "gelu/form=unstated",
        "swish",
    ] {
        let path = folder.join(format!("workload={section}/comparison.csv"));
        assert!(path.is_file(), "{}", path.display());
    }
    assert!(!folder.join("workload=swish/form=unstated").exists());
}

#[test]
fn a_baseline_can_be_chosen_and_may_be_missing() {
    let place = place(&records());
    reported(&place, &["r.csv", "--no-plots", "--baseline", "compiled"]);
    let table = fs::read_to_string(place.path("r-report/economics.md")).unwrap();
    assert!(table.starts_with("**When compiling pays, against `compiled`**"));
    let without = records().replace(",eager,", ",other,");
    fs::write(place.path("without.csv"), without).unwrap();
    reported(&place, &["without.csv", "--no-plots"]);
    assert!(!place.path("without-report/economics.csv").exists());
}

/// Lines of a CSV file by column.
fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows = reader.deserialize();
    rows.map(|row| row.unwrap()).collect()
}

fn number(row: &BTreeMap<String, String>, name: &str) -> f64 {
    row[name]
        .parse()
        .unwrap_or_else(|_| panic!("{name}: {}", row[name]))
}

const LOOPS: &str = "schema = 1\nname = \"loops\"\nabout = \"When does compiling pay?\"\n\
    [case.mixed]\nworkload = \"mixed\"\nbackends = [\"eager\", \"compiled\"]\nphases = [\"forward\"]\n\
    [case.gelu]\nworkload = \"gelu\"\nbackends = [\"eager\", \"compiled\"]\n\
    grid = { batch = 2, sequence = 3, dimension = 40 }\n\
    [device]\nuse = \"cpu\"\n[measure]\nrepeats = 6\nfresh_starts = 3\n\
    [output]\nexports = [\"compilation_economics\", \"benchmark_results\"]\n\
    [report]\nbaseline = \"eager\"\n";

/// The price of starting a loop of `first` iterations, by the origin of its kernels: first runs
/// that were not timed one by one, because the machine was slow at that moment, count as the
/// median.
fn warmup(record: &BTreeMap<String, String>, is_compiled: bool, first: f64) -> f64 {
    let kernels = if is_compiled {
        "compile_wall_ns"
    } else {
        "cache_read_ns"
    };
    assert_eq!(record["fresh_starts"], "3", "{record:?}");
    let further_ns = (first - number(record, "start_runs")) * number(record, "median_ns");
    number(record, kernels) + number(record, "start_ns") + further_ns
}

#[test]
fn a_run_on_a_cpu_says_when_compiling_pays() {
    let place = Place::new(LOOPS);
    let output = place.sweeper(&["run", "m.toml", "--iterations", "70"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let run = place.run_folder();
    let shown = reported(&place, &[run.to_str().unwrap(), "--no-plots"]);
    assert!(
        shown.contains("When compiling pays, against `eager`"),
        "{shown}"
    );
    let records = rows(&place.read("records.csv"));
    assert!(shown.contains("totals: of 70 iterations"), "{shown}");
    for record in &records {
        let (sum, waited) = (
            number(record, "compile_ns"),
            number(record, "compile_wall_ns"),
        );
        assert!(0.0 < waited && waited <= sum, "{record:?}");
    }
    let table = rows(&place.read("report/economics.csv"));
    let mut compared = 0;
    for row in table.iter().filter(|row| row["backend"] == "compiled") {
        let of = |backend: &str| {
            let same = ["workload", "phase"];
            let is = |record: &&BTreeMap<String, String>| {
                record["backend"] == backend && same.iter().all(|name| record[*name] == row[*name])
            };
            records.iter().find(is).unwrap()
        };
        let (base, own) = (of("eager"), of("compiled"));
        let first = number(base, "start_runs").max(number(own, "start_runs"));
        assert!((1.0..=5.0).contains(&first), "{base:?} {own:?}");
        let started = (
            warmup(base, row["start"] == "cold", first),
            warmup(own, row["start"] != "warm", first),
        );
        let said = number(row, "warmup_ns");
        assert!((said / started.1 - 1.0).abs() < 1e-9, "{said} {row:?}");
        let gain_ns = number(base, "median_ns") - number(own, "median_ns");
        let is_same = own["same_program_as"] == "eager";
        assert_eq!(row["verdict"] == "same program", is_same, "{row:?}");
        let expected = match first + (started.1 - started.0) / gain_ns {
            // One program against itself is not judged.
            _ if is_same => String::new(),
            // The interval of the gain contains no gain.
            _ if number(row, "speedup_steady_low") < 1.0
                && number(row, "speedup_steady_high") > 1.0 =>
            {
                "unclear".to_owned()
            }
            _ if gain_ns <= 0.0 => "never".to_owned(),
            iterations => iterations.ceil().max(1.0).to_string(),
        };
        assert_eq!(row["break_even"], expected, "{row:?}");
        compared += 1;
    }
    // Four programs, from three starts.
    assert_eq!(compared, 12);
    let objects: Vec<serde_json::Value> =
        serde_json::from_str(&place.read("exports/compilation_economics.json")).unwrap();
    assert_eq!(objects.len(), compared);
    for (object, row) in objects
        .iter()
        .filter(|held| held["start"] == "cold")
        .flat_map(|object| {
            let same = table.iter().filter(|row| {
                object["workload"] == row["workload"]
                    && object["phase"] == row["phase"]
                    && row["start"] == "cold"
                    && row["backend"] == "compiled"
            });
            same.map(move |row| (object, row))
        })
    {
        assert_eq!(object["verdict"], row["verdict"]);
        assert_eq!(object["iterations"], 70);
        let total_ns = object["compile"]["total_time_s"].as_f64().unwrap() * 1e9;
        assert!((total_ns / number(row, "total_ns") - 1.0).abs() < 1e-9);
    }
    for phase in ["forward", "backward", "both"] {
        let path = format!("exports/phase={phase}/benchmark_results.json");
        let results: Vec<serde_json::Value> = serde_json::from_str(&place.read(&path)).unwrap();
        assert_eq!(results.len(), 2, "{path}");
        assert_eq!(results[0]["operation"], "GELU");
        assert!(results[0]["time_ms"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn what_libraries_compile_is_read_from_files() {
    let columns = ["cold_start_ns", "cold_start_low_ns", "cold_start_high_ns"];
    let mut lines = records().lines().map(str::to_owned).collect::<Vec<_>>();
    lines[0] += &format!(",{}", columns.join(","));
    for line in &mut lines[1..] {
        *line += match line.contains(",compiled,forward,") {
            true => ",900000000,880000000,920000000",
            false => ",,,",
        };
    }
    let place = place(&(lines.join("\n") + "\n"));
    reported(&place, &["r.csv", "--no-plots", "--baseline", "eager"]);
    let table = fs::read_to_string(place.path("r-report/economics.csv")).unwrap();
    let table = rows(&table);
    let warmup = |start: &str| {
        let is = |row: &&BTreeMap<String, String>| {
            row["backend"] == "compiled" && row["problem"] == "batch=16" && row["start"] == start
        };
        let row = table.iter().find(is).unwrap();
        ["warmup_ns", "warmup_ns_low", "warmup_ns_high"].map(|name| number(row, name))
    };
    // 100 ms by this program's compiler, and the library's own.
    assert_eq!(warmup("cold"), [1e9, 0.98e9, 1.02e9]);
    assert_eq!(warmup("warm"), [132e3, 127e3, 142e3]);
}

#[test]
fn loops_are_held_against_several_baselines() {
    let place = Place::new(
        "schema = 1\nname = \"baselines\"\nabout = \"When does compiling pay?\"\n\
         [case.mixed]\nworkload = \"mixed\"\nbackends = [\"primitive\", \"eager\", \"compiled\"]\n\
         phases = [\"forward\"]\n[device]\nuse = \"cpu\"\n[measure]\nrepeats = 3\n\
         [output]\nexports = [\"compilation_economics\"]\n\
         [report]\nbaseline = \"eager\"\nmore_baselines = [\"primitive\"]\n",
    );
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    reported(
        &place,
        &[place.run_folder().to_str().unwrap(), "--no-plots"],
    );
    let table = rows(&place.read("report/economics.csv"));
    let objects: Vec<serde_json::Value> =
        serde_json::from_str(&place.read("exports/compilation_economics.json")).unwrap();
    for (baseline, backend) in [
        ("eager", "primitive"),
        ("eager", "compiled"),
        ("primitive", "eager"),
        ("primitive", "compiled"),
    ] {
        let is_row = |row: &&BTreeMap<String, String>| {
            row["baseline"] == baseline && row["backend"] == backend
        };
        assert_eq!(table.iter().filter(is_row).count(), 3, "{table:?}");
        let is_object = |object: &&serde_json::Value| {
            object["no_compile"]["implementation"] == baseline
                && object["compile"]["implementation"] == backend
        };
        assert_eq!(objects.iter().filter(is_object).count(), 3);
    }
    assert_eq!(objects.len(), 12);
}

#[test]
fn every_program_pays_for_its_kernels_whoever_loaded_them() {
    let workload = registry::workload("copy").unwrap();
    let parameters: Parameters = [("elements", 1000)].into_iter().collect();
    let problem = workload.problem(&parameters, Dtype::F32).unwrap();
    let mut device = Cpu::new(1).unwrap();
    device.bind(&problem.generate(&InputKey([7; 32]))).unwrap();
    let canonical = CanonicalShape::default();
    let mut prepare = || {
        let program = problem.program("compiled", Phase::Forward, &canonical, &Target::Cpu);
        let program = program.unwrap();
        let artifacts: Vec<_> = program.sources().into_iter().map(artifact).collect();
        let job = Job {
            program,
            artifacts: &artifacts,
            script: None,
        };
        let prepared = device.prepare(job).unwrap();
        device.further_preparation_ns(prepared)
    };
    assert_eq!(prepare(), 0);
    let again = prepare();
    assert!(again > 0);
    assert_eq!(prepare(), again);
}
