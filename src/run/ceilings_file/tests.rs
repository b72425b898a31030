//! Ceilings rise, never fall, and say since when.

use super::*;
use sweeper_model::hardware::DeviceKind;
use sweeper_model::identity::Digest as Identity;
use sweeper_model::row::outcome::{Measurement, Outcome};
use sweeper_model::row::test_row;

fn device() -> DeviceIdentity {
    DeviceIdentity {
        kind: DeviceKind::Cpu,
        name: "a processor".to_owned(),
        unit: String::new(),
        details: BTreeMap::new(),
    }
}

fn run(number: u8) -> RunId {
    RunId(Identity::from_bytes([number; 32]))
}

/// A row that takes a second for so many bytes or operations.
fn row(workload: &str, amount: f64, checked: Checked) -> Row {
    let mut row = test_row(
        1,
        Outcome::measured(Measurement {
            samples_ns: vec![1e9; 3],
            flops: amount,
            compulsory_bytes: amount,
            checked,
            ..Measurement::default()
        }),
    );
    row.workload = workload.to_owned();
    row.unix_time_s = 2000.0;
    row
}

fn probed() -> CeilingsFile {
    let ceilings = Ceilings {
        copy_bytes_per_s: 100.0,
        cache_bytes: 10,
        flops_per_s: [("f32".to_owned(), 50.0)].into(),
        ..Ceilings::default()
    };
    CeilingsFile::probed(device(), 1, ceilings, 1000.0)
}

#[test]
fn a_better_run_raises_and_a_worse_one_changes_nothing() {
    let mut held = probed();
    let rates = |copy: f64, f32: f64| [(COPY.to_owned(), copy), ("f32".to_owned(), f32)].into();
    let raised = held.raise(rates(120.0, 40.0), run(1), 2000.0);
    assert_eq!(
        raised,
        [Raised {
            kind: COPY.to_owned(),
            from_per_s: Some(100.0),
            to_per_s: 120.0
        }]
    );
    let better = held.ceilings();
    assert_eq!(better.copy_bytes_per_s, 120.0);
    assert_eq!(better.flops_per_s["f32"], 50.0);
    assert_eq!(better.sources[COPY].run, Some(run(1)));
    assert_eq!(better.sources["f32"].run, None);
    assert_eq!(better.sources["f32"].unix_s, 1000.0);
    assert_eq!(held.raise(rates(110.0, 40.0), run(2), 3000.0), []);
    assert_eq!(held.ceilings(), better);
    // A calibration may measure a kind for which there is no probe.
    let raised = held.raise([("bf16".to_owned(), 400.0)].into(), run(3), 3000.0);
    assert_eq!((raised[0].from_per_s, raised[0].to_per_s), (None, 400.0));
    assert_eq!(held.ceilings().flops_per_s["bf16"], 400.0);
}

#[test]
fn only_what_is_right_and_larger_than_caches_counts() {
    let mut wrong = row("matmul", 90.0, Checked::Full);
    wrong.outcome.status = Status::Wrong;
    let mut rounded = row("matmul", 70.0, Checked::Reduced);
    rounded
        .parameters
        .insert("precision".to_owned(), "bf16".into());
    let mut unpaid = row("copy", 43.0, Checked::Full);
    unpaid.l2 = "clean".to_owned();
    let rows = [
        unpaid,
        row("copy", 39.0, Checked::Full),
        row("copy", 41.0, Checked::Full),
        row("copy", 44.0, Checked::None),
        row("matmul", 60.0, Checked::Full),
        row("matmul", 50.0, Checked::Full),
        row("linear", 99.0, Checked::Full),
        wrong,
        rounded,
    ];
    let rows: Vec<&Row> = rows.iter().collect();
    let expected = [("bf16", 70.0), (COPY, 41.0), ("f32", 60.0)];
    let expected = expected.map(|(kind, rate)| (kind.to_owned(), rate));
    let found = rates(&rows, 10).into_iter();
    let found: BTreeMap<String, f64> = found.map(|(kind, rate)| (kind, rate.round())).collect();
    assert_eq!(found, expected.into());
    assert_eq!(rates(&rows[1..3], 11), BTreeMap::new());
}

#[test]
fn what_is_learnt_is_there_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let copy = row("copy", 500.0, Checked::Full);
    let learnt = |rows: &[&Row]| learn(folder.path(), &device(), 1, rows, run(7)).unwrap();
    assert_eq!(learnt(&[&copy]), [], "nothing is remembered yet");
    fs::write(folder.path().join("CACHEDIR.TAG"), "").unwrap();
    probed().keep(folder.path()).unwrap();
    assert_eq!(learnt(&[&copy])[0].to_per_s, 500.0);
    assert_eq!(learnt(&[&copy]), []);
    let all = CeilingsFile::all_of(folder.path(), &device());
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].ceilings().copy_bytes_per_s, 500.0);
    assert_eq!(all[0].ceilings().sources[COPY].unix_s, 2000.0);
    assert!(CeilingsFile::of(folder.path(), &device(), 2).is_none());
}

/// A file from before calibrations were remembered.
#[test]
fn older_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CACHEDIR.TAG"), "").unwrap();
    let mut text = serde_json::to_value(probed()).unwrap();
    let object = text.as_object_mut().unwrap();
    object.remove("probed_unix_s");
    object.remove("calibrated");
    object["ceilings"]
        .as_object_mut()
        .unwrap()
        .remove("sources");
    let path = path(folder.path(), &device(), 1).unwrap();
    fs::write(path, text.to_string()).unwrap();
    let held = CeilingsFile::of(folder.path(), &device(), 1).unwrap();
    assert_eq!(held.ceilings().copy_bytes_per_s, 100.0);
}
