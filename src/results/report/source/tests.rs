//! Reading sources of all formats, and errors of bad files.

use std::fs;

use sweeper_program::{Phase, Role, Value};

use super::*;
use crate::record::contents::Contents;
use crate::record::journal::{Header, Journal};
use crate::record::tables;
use sweeper_model::row::outcome::{Measurement, Outcome, Status};
use sweeper_model::row::{Row, test_row};

const GUIDE: &str = "T,K,C,B,KC,backend,semiring,phase,time_ms_median,time_ms_iqr_low,\
    time_ms_iqr_high,time_per_position_ms,peak_allocated_gb,peak_reserved_gb,status,error_msg,\
    memory_potentials_gb,memory_dp_state_gb,memory_workspace_gb,memory_autograd_gb\n\
    128,4,3,4,12,triton,Log,forward,3,2,4,0.02,1,2,success,,0.5,0,0,0.25\n\
    256,4,3,4,12,triton,Max,both,nan,nan,nan,nan,nan,nan,oom,CUDA out of memory,nan,nan,nan,nan\n\
    512,4,3,4,12,triton,Log,forward,nan,nan,nan,nan,nan,nan,not_tested,\
    predicted_oom: needs 50 GB,nan,nan,nan,nan\n";

fn rows() -> Vec<Row> {
    let measurement = Measurement {
        samples_ns: vec![5e6, 1e6, 4e6, 2e6, 3e6],
        iterations: 3,
        memory_bytes: [(Role::Gradient, 100), (Role::Saved, 20)].into(),
        flops: 1e6,
        ..Measurement::default()
    };
    let mut rows = vec![
        test_row(1, Outcome::measured(measurement)),
        test_row(2, Outcome::without_measurement(Status::Oom, "too, much")),
    ];
    rows[0].roofline_ns = Some(1.5e6);
    rows[0].ceiling_flops_per_s = Some(1e13);
    rows[0].values.insert("share".to_owned(), Value::Float(0.5));
    rows
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn read(text: &str) -> Result<Source, String> {
    let folder = folder(&[("results.csv", text)]);
    let path = folder.path().join("results.csv");
    let source = open(path.to_str().unwrap(), Path::new("."));
    source.map_err(|error| {
        let prefix = format!("{}/", folder.path().display());
        error.to_string().replace(&prefix, "")
    })
}

fn records() -> String {
    let mut bytes = Vec::new();
    tables::write_records(&rows(), &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_guides_file_has_what_it_has() {
    let source = read(GUIDE).unwrap();
    assert_eq!((source.kind, source.schema), (Kind::Guide, None));
    assert_eq!(source.label, "results");
    let [fine, oom, predicted] = &source.entries[..] else {
        panic!("{:?}", source.entries);
    };
    assert_eq!(fine.median_ns(), Some(3e6));
    assert_eq!(fine.times.unwrap().interval(), Some((2e6, 4e6)));
    assert_eq!((fine.int("T"), fine.int("KC")), (Some(128), Some(12)));
    assert_eq!(fine.text("semiring"), Some("log"));
    assert_eq!(fine.memory.peak_allocated, Some(1 << 30));
    assert_eq!(fine.memory.by_role.get(&Role::Potentials), Some(&(1 << 29)));
    assert_eq!((oom.status, oom.phase), (Status::Oom, Phase::Both));
    assert_eq!(oom.reason.as_deref(), Some("CUDA out of memory"));
    assert_eq!(oom.times, None);
    assert_eq!(predicted.status, Status::PredictedOom);
    assert_eq!(predicted.reason.as_deref(), Some("needs 50 GB"));
}

#[test]
fn a_journal_and_its_table_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let run = sweeper_model::identity::RunId(sweeper_model::identity::Digest::from_bytes([7; 32]));
    let path = folder.path().join("journal.jsonl");
    let (mut journal, _) = Journal::open(&path, Header::of(run)).unwrap();
    for row in rows() {
        journal.write(&row).unwrap();
    }
    let contents = Contents::read(&path).unwrap();
    let from_journal = run::entries(&contents, &(0..contents.len()).collect::<Vec<_>>()).unwrap();
    let mut from_table = read(&records()).unwrap().entries;
    // The table's samples are in a file of their own.
    from_table[0].samples_ns = vec![5e6, 1e6, 4e6, 2e6, 3e6];
    assert_eq!(from_journal, from_table);
    assert_eq!(from_journal[0].efficiency(), Some(0.5));
    // A million operations in 3 ms are 3.3e8 a second.
    let utilization = from_journal[0].flops_utilization().unwrap();
    assert!(
        (utilization - 1e9 / 3.0 / 1e13).abs() < 1e-12,
        "{utilization}"
    );
    assert!(from_journal[0].values.get("share").is_some());
    assert!(from_journal[0].parameters.get("semiring").is_some());
}

#[test]
fn samples_beside_a_table_are_read() {
    let mut samples = Vec::new();
    tables::write_samples(&rows(), &mut samples).unwrap();
    let samples = String::from_utf8(samples).unwrap();
    let folder = folder(&[("records.csv", &records()), ("samples.csv", &samples)]);
    let source = open(folder.path().to_str().unwrap(), Path::new(".")).unwrap();
    assert_eq!(source.entries[0].samples_ns, [5e6, 1e6, 4e6, 2e6, 3e6]);
    assert!(source.entries[1].samples_ns.is_empty());
}

/// Samples that were cut off, or are there twice, would give other intervals than the row has.
#[test]
fn samples_that_are_not_those_of_the_row_are_left_out() {
    let mut samples = Vec::new();
    tables::write_samples(&rows(), &mut samples).unwrap();
    let samples = String::from_utf8(samples).unwrap();
    let lines: Vec<&str> = samples.split_inclusive('\n').collect();
    let cut = lines[..4].concat();
    let twice = samples.clone() + lines[5];
    for text in [&cut, &twice] {
        let folder = folder(&[("records.csv", &records()), ("samples.csv", text)]);
        let source = open(folder.path().to_str().unwrap(), Path::new(".")).unwrap();
        assert!(source.entries[0].samples_ns.is_empty());
        let warnings = &source.warnings;
        assert!(
            warnings[0].starts_with("samples.csv has not as many samples as 1 row says"),
            "{warnings:?}"
        );
        assert_eq!(warnings.len(), 1);
    }
    let folder = folder(&[
        ("records.csv", &records()),
        ("samples.csv", samples.trim_end()),
    ]);
    let source = open(folder.path().to_str().unwrap(), Path::new(".")).unwrap();
    assert_eq!(source.entries[0].samples_ns.len(), 5);
    assert!(source.warnings[0].starts_with("samples.csv: the last line has no end"));
}

#[test]
fn bad_files_are_refused_with_the_place() {
    for (text, expected) in [
        ("", "results.csv: the file is empty"),
        (
            "T;K\n1;2\n",
            "results.csv: fields must be separated by commas; save the file as CSV with commas",
        ),
        (
            "T,K,T\n1,2,3\n",
            "results.csv: the header has the column `T` twice",
        ),
        (
            "T,K,C,backend,phase,time_ms_median\n",
            "results.csv: no column `B`, `semiring`, `status`; a `benchmark_full.csv` of the semi-CRF guide \
             needs them",
        ),
        (
            "point,problem,workload,backend,phase,median_ns\n",
            "results.csv: no column `dtype`, `status`, `reason`; a `records.csv` needs them",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), expected);
    }
    let edited = |from: &str, to: &str| read(&GUIDE.replacen(from, to, 1)).unwrap_err();
    assert_eq!(
        edited("triton,Log,forward,3,2", "triton,Log,forward,fast,2"),
        "results.csv:2: column `time_ms_median`: `fast` is not a number"
    );
    assert_eq!(
        edited("triton,Log,forward,3,2", "triton,Log,forward,-3,2"),
        "results.csv:2: column `time_ms_median`: `-3` is not a number that is finite and not negative"
    );
    assert_eq!(
        edited("Max,both", "Max,sideways"),
        "results.csv:3: column `phase`: `sideways` is not `forward`, `backward` or `both`"
    );
    assert_eq!(
        edited("256,4", "256.5,4"),
        "results.csv:3: column `T`: `256.5` is not a whole number"
    );
    assert_eq!(
        read(&GUIDE[..GUIDE.len() - 20]).unwrap_err(),
        "results.csv:4: 16 fields where the header has 20; the file was cut off or edited here"
    );
}

#[test]
fn what_is_odd_but_readable_is_a_warning() {
    let source = read(GUIDE.trim_end()).unwrap();
    assert!(source.warnings[0].contains("may have been cut off"));
    let header_only = &GUIDE[..=GUIDE.find('\n').unwrap()];
    assert_eq!(
        read(header_only).unwrap().warnings,
        ["the file has no rows"]
    );
    let zero = GUIDE.replacen("forward,3,2", "forward,0.0,2", 1);
    let source = read(&zero).unwrap();
    assert!(source.warnings[0].contains("time of 0 ms"));
    assert_eq!(source.entries[0].median_ns(), None);
    let line = GUIDE.lines().nth(1).unwrap();
    let twice = format!("{GUIDE}{}\n", line.replace("forward,3,2", "forward,9,2"));
    let source = read(&twice).unwrap();
    assert!(source.warnings[0].starts_with("1 rows are about points that have later rows"));
    assert_eq!(source.entries.len(), 3);
    assert_eq!(source.entries[2].median_ns(), Some(9e6));
    let nan = read(&GUIDE.replacen("forward,3,2", "forward,NaN,2", 1)).unwrap();
    assert_eq!(nan.entries[0].status, Status::Ok);
    assert_eq!(nan.entries[0].reason.as_deref(), Some("no time"));
}

#[test]
fn versions_are_known_and_not_mixed() {
    let newer = records()
        .lines()
        .map(|line| {
            line.strip_suffix(",1")
                .map_or(line.to_owned(), |rest| format!("{rest},9"))
                + "\n"
        })
        .collect::<String>();
    assert_eq!(
        read(&newer).unwrap_err(),
        "results.csv: version 9 of `records.csv`, this program knows 1; use a newer sweeper"
    );
    // A file of an older version, whose rows do not state the cache's state.
    let mut lines = Vec::new();
    for line in records().lines() {
        let fields: Vec<&str> = line.split(',').collect();
        lines.push(fields[..fields.len() - 1].join(","));
    }
    let old = lines.join("\n").replacen(",l2,", ",l2_was,", 1) + "\n";
    assert_eq!(read(&old).unwrap().schema, Some(0));
    let folder = folder(&[
        ("new.csv", &records()),
        ("old.csv", &old),
        ("guide.csv", GUIDE),
    ]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let error = open_all(&[path("new.csv"), path("old.csv")], Path::new(".")).unwrap_err();
    assert!(error.to_string().contains("rows of version 1"), "{error}");
    let both = open_all(&[path("new.csv"), path("guide.csv")], Path::new(".")).unwrap();
    assert_eq!(both[1].label, "guide");
}

#[test]
fn labels_are_unique() {
    let folder = folder(&[("one.csv", &records()), ("two.csv", &records())]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let names = [path("one.csv"), path("two.csv"), path("two.csv")];
    let sources = open_all(&names, Path::new(".")).unwrap();
    let labels: Vec<&str> = sources.iter().map(|source| source.label.as_str()).collect();
    assert_eq!(labels[0], format!("null ({})", path("one.csv")));
    assert_eq!(labels[2], format!("null ({}) #2", path("two.csv")));
}

#[test]
fn nothing_there_is_said_so() {
    let message = |name: &str| {
        open(name, Path::new("/nonexistent"))
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        message("some/where.csv"),
        "some/where.csv: there is no such file or folder"
    );
    assert!(
        message("abcd").contains("/nonexistent"),
        "{}",
        message("abcd")
    );
    // `--output-dir` of `report` is where its files go.
    assert!(message("abcd").contains("(of `report`: --runs-dir)"));
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path();
    assert!(message(folder.to_str().unwrap()).contains("no run is here"));
    let run = folder.join("quick-3f9a12");
    std::fs::create_dir(&run).unwrap();
    std::fs::write(run.join("journal.jsonl"), "").unwrap();
    let said = message(folder.to_str().unwrap());
    assert!(
        said.ends_with(&format!("runs in it: {}", run.display())),
        "{said}"
    );
    let manifest = folder.join("m.toml");
    std::fs::write(&manifest, "schema = 1\n").unwrap();
    assert!(message(manifest.to_str().unwrap()).contains("is a manifest"));
}

#[test]
fn a_parameter_may_be_called_like_a_column() {
    let mut rows = rows();
    for row in &mut rows {
        row.parameters.insert("n".to_owned(), Value::Int(7));
        row.values.insert("flops".to_owned(), Value::Int(8));
    }
    let mut bytes = Vec::new();
    tables::write_records(&rows, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let is_right = |text: &str| {
        let source = read(text).unwrap();
        let entry = &source.entries[0];
        assert_eq!(entry.int("n"), Some(7));
        assert_eq!(entry.times.unwrap().n, Some(5));
        assert_eq!(entry.int("flops"), Some(8));
        assert_eq!(entry.measurement.as_ref().unwrap().flops, 1e6);
    };
    assert!(text.contains(",axis_n,") && text.contains(",axis_flops,"));
    is_right(&text);
    // Files from before such columns had a prefix.
    is_right(&text.replace("axis_", ""));
}
