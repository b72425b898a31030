//! Shards: dealt out, in any order, twice, held by others, and read as one run.

use super::*;

/// A manifest of eight problems with two backends, one of which runs out of memory at one size.
pub(super) fn manifest(more: &str) -> String {
    let sizes = "[grid]\nelements = [10, 20, 30, 40, 50, 60, 70, 80]";
    let script = "[null]\ntime_ns = \"100 * elements\"\nnoise = 0.01\n\
                  outcomes = [{ when = \"elements == 30\", status = \"oom\" }]\n";
    null_manifest(&format!("{script}{more}")).replace("[grid]\nelements = [10, 20, 30, 40]", sizes)
}

pub(super) fn shard(place: &Place, shard: &str) -> Output {
    place.sweeper(&["run", "m.toml", "--shard", shard])
}

/// The whole sweep by one process.
pub(super) fn alone(manifest: &str) -> Place {
    let place = Place::new(manifest);
    let output = place.sweeper(&["run", "m.toml"]);
    assert!([0, 4].contains(&code(&output)), "{}", text(&output));
    place
}

/// Lines of all journals in a run's folder.
pub(super) fn rows(folder: &Path) -> Vec<String> {
    let mut paths = vec![folder.join("journal.jsonl")];
    for entry in fs::read_dir(folder.join("shards")).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|held| held == "jsonl") {
            paths.push(path);
        }
    }
    let text = |path: &PathBuf| fs::read_to_string(path).unwrap();
    let lines = paths.iter().flat_map(|path| {
        let text = text(path);
        let rows = text.lines().skip(1).map(str::to_owned);
        rows.collect::<Vec<_>>()
    });
    let mut rows: Vec<String> = lines.collect();
    rows.sort();
    rows
}

#[test]
fn shards_in_any_order_make_the_run_of_one_process() {
    let manifest = manifest("[output]\nexports = [\"json\"]\n");
    let one = alone(&manifest);
    let place = Place::new(&manifest);
    for index in [3, 1, 5, 2] {
        let output = shard(&place, &format!("{index}/5"));
        assert!([0, 4].contains(&code(&output)), "{}", text(&output));
        assert!(!place.run_folder().join("records.csv").exists());
    }
    // Again: nothing is measured twice.
    let again = shard(&place, "5/5");
    assert!(text(&again).contains("nothing to do"), "{}", text(&again));
    let last = shard(&place, "4/5");
    assert!([0, 4].contains(&code(&last)), "{}", text(&last));
    assert!(rows(&place.run_folder()) == rows(&one.run_folder()));
    for file in [
        "records.csv",
        "samples.csv",
        "exports/records.json",
        "plan.json",
    ] {
        assert!(place.read(file) == one.read(file), "{file}");
    }
    // All readers see one run.
    let show = |place: &Place| {
        let folder = place.run_folder();
        let output = place.sweeper(&["show", "--json", folder.to_str().unwrap()]);
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        shown["rows"].as_array().unwrap().len()
    };
    assert_eq!(show(&place), 16);
    let runs = text(&place.sweeper(&["runs"]));
    assert!(runs.contains("complete   16/16 rows"), "{runs}");
    let report = |place: &Place| {
        let folder = place.run_folder();
        let output = place.sweeper(&["report", "--no-plots", folder.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{}", text(&output));
        let tables = fs::read_dir(place.run_folder().join("report")).unwrap();
        let tables = tables.map(|entry| entry.unwrap().path());
        let mut tables: Vec<PathBuf> = tables
            .filter(|path| path.extension().is_some_and(|held| held == "csv"))
            .collect();
        tables.sort();
        assert!(!tables.is_empty());
        tables
            .iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect::<String>()
    };
    assert_eq!(report(&place), report(&one));
    let folders = [one.run_folder(), place.run_folder()];
    let folders = folders.each_ref().map(|path| path.to_str().unwrap());
    let compared = place.sweeper(&["compare", folders[0], folders[1]]);
    assert_eq!(code(&compared), 0, "{}", text(&compared));
    // A plain run finds all of it, too, and rerun repeats it.
    let whole = place.sweeper(&["run", "m.toml"]);
    assert!(
        text(&whole).contains("nothing to do, 16 points"),
        "{}",
        text(&whole)
    );
    let rerun = place.sweeper(&["rerun", folders[1]]);
    assert_eq!(code(&rerun), 0, "{}", text(&rerun));
}

#[test]
fn each_problem_is_in_one_shard_and_more_shards_than_problems_do_no_harm() {
    let place = Place::new(&manifest(""));
    for index in 1..=12 {
        let output = shard(&place, &format!("{index}/12"));
        assert!([0, 4].contains(&code(&output)), "{}", text(&output));
    }
    let mut problems: Vec<Vec<String>> = Vec::new();
    for entry in fs::read_dir(place.run_folder().join("shards")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|held| held == "jsonl") {
            let text = fs::read_to_string(path).unwrap();
            let rows = text.lines().skip(1);
            let mut own: Vec<String> = rows
                .map(|row| {
                    let row: serde_json::Value = serde_json::from_str(row).unwrap();
                    row["problem"].as_str().unwrap().to_owned()
                })
                .collect();
            own.dedup();
            problems.push(own);
        }
    }
    assert_eq!(problems.len(), 12);
    let mut all: Vec<String> = problems.concat();
    all.sort();
    assert_eq!(all.len(), 8);
    all.dedup();
    assert_eq!(all.len(), 8, "a problem is in two shards");
    assert!(place.run_folder().join("records.csv").exists());
}

#[test]
fn what_the_manifest_leaves_out_is_written_once() {
    let manifest = manifest("").replace(
        "phases = [\"forward\"]",
        "phases = [\"forward\"]\nexclude = [{ when = \"elements == 20\", reason = \"dull\" }]",
    );
    let one = alone(&manifest);
    let place = Place::new(&manifest);
    for index in [2, 1, 3] {
        shard(&place, &format!("{index}/3"));
    }
    assert!(rows(&place.run_folder()) == rows(&one.run_folder()));
    assert!(place.read("records.csv") == one.read("records.csv"));
}

#[test]
fn a_run_is_not_shared_in_another_number_or_by_another_plan() {
    let place = Place::new(&manifest(""));
    shard(&place, "1/3");
    let refused = shard(&place, "1/4");
    assert_eq!(code(&refused), 6, "{}", text(&refused));
    for words in ["shared between 3 shards", "--shard K/3", "sweeper merge"] {
        assert!(
            text(&refused).contains(words),
            "{words}: {}",
            text(&refused)
        );
    }
    let args = [
        "run",
        "m.toml",
        "--shard",
        "1/3",
        "--set",
        "limits.max_points=4",
    ];
    let refused = place.sweeper(&args);
    assert_eq!(code(&refused), 6, "{}", text(&refused));
    for words in ["another plan", "field `plan`", "max_points"] {
        assert!(
            text(&refused).contains(words),
            "{words}: {}",
            text(&refused)
        );
    }
    for wrong in ["4/3", "0/3", "x"] {
        let refused = shard(&place, wrong);
        assert_eq!(code(&refused), 2, "{}", text(&refused));
    }
    let fresh = place.sweeper(&["run", "m.toml", "--shard", "1/3", "--fresh"]);
    assert_eq!(code(&fresh), 2, "{}", text(&fresh));
}

#[test]
fn points_that_failed_are_tried_again_in_their_shards_and_by_all() {
    let place = Place::new(&manifest(""));
    for index in 1..=3 {
        shard(&place, &format!("{index}/3"));
    }
    let fixed = manifest("").replace("status = \"oom\"", "status = \"wrong\"");
    assert_ne!(fixed, manifest(""));
    let before = rows(&place.run_folder()).len();
    // The null device answers alike: the rows say that they are of a second try.
    let mut again = 0;
    for index in 1..=3 {
        let shard = format!("{index}/3");
        let args = ["run", "m.toml", "--shard", &shard, "--retry", "oom"];
        again += usize::from(text(&place.sweeper(&args)).contains("2 points in"));
    }
    assert_eq!(again, 1, "both backends of one problem");
    let after = rows(&place.run_folder());
    assert_eq!(after.len(), before + 2);
    let tried = |rows: &[String], times: u32| {
        let word = format!("\"earlier_rows\":{times}");
        rows.iter().filter(|row| row.contains(&word)).count()
    };
    assert_eq!(tried(&after, 1), 2);
    let whole = place.sweeper(&["run", "m.toml", "--retry", "failed"]);
    assert!(text(&whole).contains("2 points in"), "{}", text(&whole));
    assert_eq!(tried(&rows(&place.run_folder()), 2), 2);
    let runs = text(&place.sweeper(&["runs"]));
    assert!(runs.contains("16/16 rows"), "{runs}");
}
