//! Races between configurations of a tuned backend, and the second measurement of the best.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use sweeper::device::Script;
use sweeper::device::null::Null;
use sweeper::execute::answers::Answers;
use sweeper::execute::block::{self, Listener};
use sweeper::execute::block_context::Artifacts;
use sweeper::execute::block_inputs::BlockInputs;
use sweeper::execute::protocol::{Block, BlockPoint, Rival, Settings, Stage, Tuned};
use sweeper::manifest::Overrides;
use sweeper::manifest::settings::{Order, Stopping, Warmup};
use sweeper::mode::{Launching, Mode};
use sweeper::row::outcome::{Flag, Measurement, Outcome, Status};
use sweeper::stats::Summary;
use sweeper::tuning::race;
use sweeper_program::{Dtype, Phase, Value};

use super::{copied, declared, manifest, rows};
use crate::place::{Place, text};
use crate::support::resolve;

const MODE: Mode = Mode::Each(Launching::Launch);

/// Configurations of `work`, with the null device's times of them.
const TIMES_NS: [(&str, f64); 5] = [
    ("work{passes=40,twin=1}", 4000.0),
    ("work{passes=1,twin=1}", 1000.0),
    ("work{passes=1,twin=2}", 1001.0),
    ("work{passes=20,twin=1}", 2000.0),
    ("work{passes=20,twin=2}", 1010.0),
];

fn configuration((number, (name, time_ns)): (usize, (&str, f64))) -> BlockPoint {
    BlockPoint {
        number: number as u32,
        backend: name.to_owned(),
        phase: Phase::Forward,
        mode: MODE,
        canonical: Vec::new(),
        kernels: Vec::new(),
        folder: String::new(),
        tolerance_factor: 1.0,
        tuned: Some(Tuned {
            is_raced: true,
            is_whole: true,
        }),
        script: Some(Script {
            time_ns,
            noise: 0.05,
            seed: 11 + number as u64,
            memory_bytes: None,
        }),
        scripted_status: None,
    }
}

fn block(order: Order, repeats: u32) -> Block {
    Block {
        workload: "double".to_owned(),
        parameters: vec![("n".to_owned(), Value::Int(8))],
        dtype: Dtype::F32,
        problem: [7; 32],
        inputs: None,
        save_tensors: None,
        settings: Settings {
            stop: Stopping::Repeats(repeats),
            warmup: Warmup::Runs(0),
            fresh_starts: 0,
            verify: true,
            oracle_s: 1.0,
            order,
            auto: Default::default(),
            compile_limit: std::time::Duration::from_secs(60),
        },
        points: TIMES_NS
            .into_iter()
            .enumerate()
            .map(configuration)
            .collect(),
        rivals: Vec::new(),
        oracle_kernels: Vec::new(),
        oracle_failure: None,
        artifacts: Vec::new(),
    }
}

/// Outcomes by number, and the order in which points were finished.
#[derive(Default)]
struct Heard {
    outcomes: BTreeMap<u32, Outcome>,
    order: Vec<u32>,
}

impl Listener for Heard {
    fn working(&mut self, _number: u32, _stage: Stage) {}

    fn finished(&mut self, number: u32, outcome: Outcome) {
        self.order.push(number);
        assert!(self.outcomes.insert(number, outcome).is_none(), "twice");
    }
}

fn measured(block: &Block) -> Heard {
    let manifest = manifest("race.toml");
    let declared = manifest.cases[0].workload.declared.unwrap();
    let answers = Answers::open(None);
    let inputs = BlockInputs::generate(block, 0, &answers, &[declared]);
    let mut heard = Heard::default();
    let (artifacts, mut device) = (Artifacts::new(), Null::default());
    block::measure(block, inputs, &artifacts, &answers, &mut device, &mut heard).unwrap();
    assert_eq!(heard.outcomes.len(), block.points.len());
    heard
}

fn measurement(heard: &Heard, number: u32) -> &Measurement {
    let outcome = &heard.outcomes[&number];
    assert_eq!(outcome.status, Status::Ok, "{outcome:?}");
    outcome.measurement.as_ref().unwrap()
}

/// Samples, samples of the second measurement, and whether it was outraced, of all points.
fn counts(heard: &Heard) -> Vec<(usize, usize, bool)> {
    let numbers = heard.outcomes.keys();
    let all = numbers.map(|&number| {
        let found = measurement(heard, number);
        let is_outraced = found.flags.contains(&Flag::Outraced);
        let (first, again) = (found.samples_ns.len(), found.again_samples_ns.len());
        (first, again, is_outraced)
    });
    all.collect()
}

#[test]
fn slow_configurations_stop_and_the_best_are_measured_again() {
    let heard = measured(&block(Order::Interleaved, 30));
    let found = counts(&heard);
    // In the fifth round those that come first have no rival with five samples yet.
    for slow in [0, 3] {
        let (samples, again, is_outraced) = found[slow];
        assert!((5..=6).contains(&samples), "{found:?}");
        assert!(again == 0 && is_outraced, "{found:?}");
    }
    for close in [1, 2, 4] {
        assert_eq!((found[close].0, found[close].2), (30, false), "{found:?}");
    }
    // The best and its ties are those whose intervals do not lie above the best's.
    let interval = |number| race::interval_of(&measurement(&heard, number).samples_ns);
    let end = race::best_end([1, 2, 4].into_iter().filter_map(interval));
    for close in [1, 2, 4] {
        let is_tie = !race::is_above(interval(close), end);
        assert_eq!(found[close as usize].1, if is_tie { 30 } else { 0 });
    }
    assert_eq!(found[1].1, 30);
    // Fresh samples: the null device gives each its own.
    let best = measurement(&heard, 1);
    assert_ne!(best.samples_ns, best.again_samples_ns);
    // Rows of slow ones do not wait for the others.
    assert!(
        heard.order[..2]
            .iter()
            .all(|number| [0, 3].contains(number))
    );
    // All of it repeats.
    assert_eq!(
        heard.outcomes,
        measured(&block(Order::Interleaved, 30)).outcomes
    );
}

#[test]
fn a_configuration_that_the_device_refuses_is_no_failure() {
    let mut block = block(Order::Interleaved, 5);
    block.points[0].scripted_status = Some(Status::LaunchError);
    block.points[2].scripted_status = Some(Status::Wrong);
    let heard = measured(&block);
    let failures = heard.outcomes.values().map(Outcome::is_failure);
    assert_eq!(
        failures.collect::<Vec<_>>(),
        [false, false, true, false, false]
    );
    assert_eq!(heard.outcomes[&0].status, Status::LaunchError);
    // One that is not tuned has no others that may be launched.
    block.points[0].tuned = None;
    assert!(measured(&block).outcomes[&0].is_failure());
}

#[test]
fn no_configuration_is_judged_by_fewer_than_five_samples() {
    let heard = measured(&block(Order::Interleaved, 5));
    for (samples, _, is_outraced) in counts(&heard) {
        assert_eq!((samples, is_outraced), (5, false));
    }
}

#[test]
fn one_after_the_other_they_race_those_before_them() {
    let found = counts(&measured(&block(Order::Sequential, 30)));
    // The first has no rival, although it is the slowest.
    assert_eq!(found[0], (30, 0, false));
    assert_eq!(found[3], (5, 0, true));
    assert_eq!(found[1], (30, 30, false));
}

#[test]
fn without_a_race_all_take_their_samples() {
    let mut block = block(Order::Interleaved, 12);
    for point in &mut block.points {
        point.tuned = Some(Tuned {
            is_raced: false,
            is_whole: true,
        });
    }
    let found = counts(&measured(&block));
    assert!(found.iter().all(|one| (one.0, one.2) == (12, false)));
    assert_eq!((found[0].1, found[1].1, found[3].1), (0, 12, 0));
    // Alone, or beside configurations that are not measured yet, there is no best to measure again.
    for tuned in [
        None,
        Some(Tuned {
            is_raced: true,
            is_whole: false,
        }),
    ] {
        block
            .points
            .iter_mut()
            .for_each(|point| point.tuned = tuned);
        let found = counts(&measured(&block));
        assert!(found.iter().all(|one| one.1 == 0), "{found:?}");
    }
}

/// A configuration that an earlier worker measured, with an interval around this time.
fn rival(time_ns: f64, has_again: bool) -> Rival {
    let samples: Vec<f64> = (0..10).map(|at| time_ns + f64::from(at)).collect();
    Rival {
        family: "work".to_owned(),
        phase: Phase::Forward,
        mode: MODE,
        samples: samples.len(),
        interval: Summary::of(&samples).map(|summary| summary.interval),
        has_again,
    }
}

#[test]
fn configurations_that_were_measured_before_are_rivals() {
    let of = |time_ns, has_again| {
        let mut block = block(Order::Interleaved, 12);
        block.points.truncate(1);
        block.rivals.push(rival(time_ns, has_again));
        counts(&measured(&block))[0]
    };
    assert_eq!(of(1000.0, true), (5, 0, true));
    assert_eq!(of(9000.0, true), (12, 12, false));
    // Ties that were measured before: one that has no second measurement can't be held against
    // one that has.
    assert_eq!(of(4000.0, true), (12, 12, false));
    assert_eq!(of(4000.0, false), (12, 0, false));
    // Another backend, phase or mode is not a rival.
    let mut block = block(Order::Interleaved, 12);
    block.points.truncate(1);
    for change in [
        |rival: &mut Rival| rival.family = "other".to_owned(),
        |rival: &mut Rival| rival.phase = Phase::Backward,
        |rival: &mut Rival| rival.mode = Mode::Each(Launching::Graph),
    ] {
        let mut other = rival(1000.0, true);
        change(&mut other);
        block.rivals = vec![other];
        assert_eq!(counts(&measured(&block))[0], (12, 12, false));
    }
}

/// A failed configuration holds nobody up, and is not measured again.
#[test]
fn a_failure_is_no_rival() {
    let mut block = block(Order::Interleaved, 12);
    block.points[1].scripted_status = Some(Status::Oom);
    let heard = measured(&block);
    assert_eq!(heard.outcomes[&1].status, Status::Oom);
    let again = measurement(&heard, 2).again_samples_ns.len();
    assert_eq!(again, 12);
}

/// A copy of the manifests with edits of `race.toml`.
fn edited(edits: &[(&str, &str)]) -> Place {
    let folder = copied();
    let path = folder.path("race.toml");
    let mut manifest = fs::read_to_string(&path).unwrap();
    for (from, to) in edits {
        assert!(manifest.contains(from), "{manifest}");
        manifest = manifest.replace(from, to);
    }
    fs::write(&path, manifest).unwrap();
    folder
}

/// The rest of a block whose worker died races anew: the best has its second measurement.
#[test]
fn a_race_outlives_its_worker() {
    let folder = edited(&[
        ("passes = [40, 1, 20]", "passes = [1, 20]"),
        // One call is long enough for a sample: the process dies in one of them.
        ("n = [20000]", "n = [2000000]"),
        ("repeats = 30", "repeats = 30\nwarmup = 0"),
        (
            "PASSES = \"passes\"",
            "PASSES = \"passes\", CALLS = \"where(passes * twin == 2, 18, 0)\"",
        ),
    ]);
    folder.sweeper(&["run", "race.toml"]);
    let found = rows(&folder);
    let of = |name: &str| {
        let found = found.iter().find(|row| row["backend"] == name).unwrap();
        // Other tests may have the processor.
        let flags = found["flags"].replace("waited", "");
        let flags = flags.split_whitespace().collect::<Vec<_>>().join(" ");
        (found["status"].clone(), flags, found["again_n"].clone())
    };
    let expected =
        |status: &str, flags: &str, again: &str| (status.into(), flags.into(), again.into());
    assert_eq!(of("work{passes=1,twin=1}"), expected("ok", "", "30"));
    assert_eq!(of("work{passes=1,twin=2}"), expected("crashed", "", ""));
    for twin in 1..=2 {
        let slow = of(&format!("work{{passes=20,twin={twin}}}"));
        assert_eq!(slow, expected("ok", "outraced", ""));
    }
}

/// A run that is killed in a race keeps the rows of outraced configurations, and goes on.
#[test]
fn a_run_that_is_killed_in_a_race_goes_on() {
    let folder = edited(&[
        ("passes = [40, 1, 20]", "passes = [1, 20]"),
        ("n = [20000]", "n = [500000]"),
        ("repeats = 30", "repeats = 300"),
    ]);
    let mut command = folder.command(&["run", "race.toml"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = command.spawn().unwrap();
    let journal = || {
        let runs = fs::read_dir(folder.path("results")).into_iter().flatten();
        let mut texts = runs.filter_map(|run| {
            let path = run.unwrap().path().join("journal.jsonl");
            fs::read_to_string(path).ok()
        });
        texts.next().unwrap_or_default()
    };
    let began = Instant::now();
    while journal().matches("\"outraced\"").count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", journal());
        thread::sleep(Duration::from_millis(2));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let killed = journal();
    // A head and those that are slow, and one of both others at most.
    assert!((3..5).contains(&killed.lines().count()), "{killed}");
    let said = text(&folder.sweeper(&["run", "race.toml"]));
    assert!(said.contains("4 ok"), "{said}");
    assert!(journal().starts_with(&killed));
    let found = rows(&folder);
    assert_raced(&found);
    assert!(found.iter().any(|row| row["again_n"] == "300"), "{found:?}");
}

type Rows = Vec<BTreeMap<String, String>>;

/// A run of `race.toml` on the CPU.
fn ran(folder: &Place) -> Rows {
    let said = text(&folder.sweeper(&["run", "race.toml"]));
    assert!(said.contains("6 ok"), "{said}");
    rows(folder)
}

fn passes(row: &BTreeMap<String, String>) -> u32 {
    let (_, rest) = row["backend"].split_once("passes=").unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

fn is_slow(row: &BTreeMap<String, String>) -> bool {
    passes(row) > 1
}

fn is_outraced(row: &BTreeMap<String, String>) -> bool {
    row["flags"].split(' ').any(|flag| flag == "outraced")
}

/// Slow configurations stop, and one of the equal fast ones does not: on a busy machine it may be
/// measurably faster than the other.
fn assert_raced(rows: &Rows) {
    let (slow, fast): (Vec<_>, Vec<_>) = rows.iter().partition(|row| is_slow(row));
    assert!(slow.iter().all(|row| is_outraced(row)), "{slow:?}");
    assert!(!fast.iter().all(|row| is_outraced(row)), "{fast:?}");
}

fn count(row: &BTreeMap<String, String>, column: &str) -> u32 {
    row[column].parse().unwrap_or(0)
}

#[test]
fn a_kernel_with_a_slow_configuration_races() {
    let folder = copied();
    let found = ran(&folder);
    assert_raced(&found);
    for row in &found {
        if is_outraced(row) {
            assert!((5..30).contains(&count(row, "n")), "{row:?}");
            assert_eq!((&*row["again_n"], &*row["again_median_ns"]), ("", ""));
        } else {
            assert_eq!(count(row, "n"), 30, "{row:?}");
        }
    }
    let again: Vec<_> = found
        .iter()
        .filter(|row| count(row, "again_n") > 0)
        .collect();
    assert!(!again.is_empty());
    for row in &again {
        let time = |column: &str| -> f64 { row[column].parse().unwrap() };
        assert_eq!(count(row, "again_n"), 30);
        assert!(time("again_low_ns") <= time("again_median_ns"));
        assert!(time("again_median_ns") <= time("again_high_ns"));
    }
    let time =
        |row: &&&BTreeMap<String, String>| -> f64 { row["again_median_ns"].parse().unwrap() };
    let best = again
        .iter()
        .min_by(|one, other| time(one).total_cmp(&time(other)));
    let best = best.unwrap();
    let dispatch: serde_json::Value =
        serde_json::from_str(&folder.read("exports/dispatch.json")).unwrap();
    let chosen = &dispatch["backends"]["work"][0];
    // The reader of JSON may be off by the last bit.
    let told = chosen["median_ns"].as_f64().unwrap();
    assert!((told / time(&best) - 1.0).abs() < 1e-12, "{chosen}");
    assert_eq!(chosen["measured_again"], true);
    assert_eq!(chosen["configuration"]["passes"], 1);
    let reported = folder.sweeper(&["report", folder.run_folder().to_str().unwrap()]);
    assert!(reported.status.success(), "{}", text(&reported));
    let table = folder.read("report/tuning.csv");
    assert!(
        folder
            .run_folder()
            .join("report/tuning_forward.pdf")
            .is_file()
    );
    let line = table.lines().nth(1).unwrap();
    assert!(line.contains("passes=1,twin="), "{table}");
    let outraced = found.iter().filter(|row| is_outraced(row)).count();
    assert!(line.ends_with(&format!(",6,{outraced},0,yes")), "{table}");
}

/// After a kill the rest of a block goes on against the configurations that have rows.
#[test]
fn a_race_that_was_cut_goes_on() {
    let folder = copied();
    ran(&folder);
    let path = folder.run_folder().join("journal.jsonl");
    let without = |name: &str| {
        let journal = fs::read_to_string(&path).unwrap();
        let lines = journal.lines().filter(|line| !line.contains(name));
        let left: String = lines.map(|line| format!("{line}\n")).collect();
        assert_ne!(left, journal);
        fs::write(&path, left).unwrap();
    };
    // A slow one alone is outraced by those that were measured before.
    without("work{passes=40,twin=1}");
    let again = ran(&folder);
    let slow = again
        .iter()
        .find(|row| row["backend"] == "work{passes=40,twin=1}");
    let slow = slow.unwrap();
    assert!(count(slow, "n") == 5 && is_outraced(slow), "{slow:?}");
    // The best, whose rows are written last, are measured anew with the second measurement.
    without("work{passes=1,");
    let again = ran(&folder);
    assert!(
        again.iter().any(|row| count(row, "again_n") == 30),
        "{again:?}"
    );
    assert_raced(&again);
}

/// Runs an edited `race.toml`, which is another run; its rows.
fn ran_edited(folder: &Place, edit: (&str, &str)) -> Rows {
    let path = folder.path("race.toml");
    let manifest = fs::read_to_string(&path).unwrap();
    assert!(manifest.contains(edit.0), "{manifest}");
    fs::write(&path, manifest.replace(edit.0, edit.1)).unwrap();
    let before = folder.run_folder();
    folder.sweeper(&["run", "race.toml", "--reuse"]);
    fs::remove_dir_all(before).unwrap();
    rows(folder)
}

/// Whether configurations race is part of the run's identity and of no point's; results of one
/// kind are not results of the other.
#[test]
fn a_race_is_part_of_a_run_as_sampling_is() {
    let folder = copied();
    let raced = ran(&folder);
    let whole = ran_edited(&folder, ("race     = true\n", ""));
    assert_eq!(whole.len(), raced.len());
    for (row, raced) in whole.iter().zip(&raced) {
        assert_eq!((&*row["n"], &*row["reused_from"]), ("30", ""), "{row:?}");
        assert_eq!(row["point"], raced["point"]);
    }
}

/// A configuration that was alone is measured anew, and a second time, when it gets rivals.
#[test]
fn further_configurations_open_the_race_again() {
    let folder = edited(&[
        ("passes = [40, 1, 20], twin = [1, 2]", "passes = [1]"),
        ("race     = true\n", ""),
    ]);
    folder.sweeper(&["run", "race.toml"]);
    assert_eq!(rows(&folder)[0]["again_n"], "");
    let found = ran_edited(&folder, ("passes = [1]", "passes = [1, 40]"));
    let again: Vec<&str> = found.iter().map(|row| &*row["again_n"]).collect();
    assert_eq!(again, ["30", ""]);
    assert_eq!(found[0]["reused_from"], "");
    // The best has its second measurement, and others are added without another one.
    let found = ran_edited(&folder, ("passes = [1, 40]", "passes = [1, 40, 20]"));
    let of = |at: usize| (&*found[at]["again_n"], found[at]["reused_from"].is_empty());
    assert_eq!(
        [of(0), of(1), of(2)],
        [("30", false), ("", false), ("", true)]
    );
}

#[test]
fn a_race_needs_configurations() {
    let place = copied();
    let with = |tune: &str| {
        let text = fs::read_to_string(declared("race.toml")).unwrap();
        let tuned = "tune     = { passes = [40, 1, 20], twin = [1, 2] }";
        assert!(text.contains(tuned));
        fs::write(place.path("race.toml"), text.replace(tuned, tune)).unwrap();
        let resolved = resolve(&place.path("race.toml"), &Overrides::new());
        resolved.map(|_| ()).map_err(|found| found.to_string())
    };
    let alone = with("tune = { passes = [1] }").unwrap_err();
    assert!(alone.contains("`race` has no configurations"), "{alone}");
    let inside = with("tune = { passes = [1, 2], race = true }").unwrap_err();
    assert!(inside.contains("beside `tune`"), "{inside}");
    assert_eq!(with("tune = { passes = [1, 2] }"), Ok(()));
}
