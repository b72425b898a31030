//! Runs are found by their ids, wherever they were written, and listed with any outcome.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use super::place::{Place, SCRIPT, code, null_manifest, text};

/// The only folder in a folder.
fn only(folder: &Path) -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn id(run: &Path) -> String {
    let name = run.file_name().unwrap().to_string_lossy().into_owned();
    name.rsplit('-').next().unwrap().to_owned()
}

fn fine(output: &Output) -> String {
    let all = text(output);
    assert_eq!(code(output), 0, "{all}");
    all
}

#[test]
fn a_run_below_a_folder_of_results_is_found_by_its_id() {
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}[output]\ndir = \"results/quick/host\"\nexports = [\"json\"]\n"
    )));
    fine(&place.sweeper(&["run", "m.toml"]));
    let run = only(&place.path("results/quick/host"));
    let id = id(&run);
    // An export that looks like a run is not a run.
    fs::create_dir(run.join("exports/nested")).unwrap();
    fs::copy(
        run.join("journal.jsonl"),
        run.join("exports/nested/journal.jsonl"),
    )
    .unwrap();
    let listed = place.sweeper(&["runs"]);
    let lines = String::from_utf8(listed.stdout.clone()).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    for word in [&id, "complete", "8/8 rows", "results/quick/host/nulls-"] {
        assert!(lines.contains(word), "{word}: {lines}");
    }
    assert!(
        text(&listed).contains("1 run below results, looked 4 folders deep"),
        "{listed:?}"
    );
    fine(&place.sweeper(&["show", &id[..6]]));
    fine(&place.sweeper(&["report", &id[..6], "--no-plots"]));
    fine(&place.sweeper(&["compare", &id[..6], &id[..7]]));
    fine(&place.sweeper(&["rerun", &id[..6]]));
    assert!(
        run.join("attempt-1/records.csv").is_file(),
        "beside the run"
    );
    let both = fine(&place.sweeper(&["runs"]));
    assert!(both.contains("attempt 1"), "{both}");
    // The run is meant, not its attempt.
    let shown = fine(&place.sweeper(&["show", &id]));
    assert!(shown.contains(&format!("nulls-{id}\n")), "{shown}");
    assert!(shown.contains("attempts   "), "{shown}");
    fine(&place.sweeper(&["rerun", &run.join("attempt-1").to_string_lossy()]));
    assert!(run.join("attempt-2/records.csv").is_file());
}

#[test]
fn a_run_elsewhere_is_remembered() {
    let place = Place::new(&null_manifest(SCRIPT));
    fine(&place.sweeper(&["run", "m.toml", "--output-dir", "far/away"]));
    let id = id(&only(&place.path("far/away")));
    let none = place.sweeper(&["runs"]);
    assert_eq!(code(&none), 6, "{none:?}");
    assert!(text(&none).contains("--all"), "{none:?}");
    let all = fine(&place.sweeper(&["runs", "--all"]));
    assert!(all.contains(&id) && all.contains("1 elsewhere"), "{all}");
    fine(&place.sweeper(&["show", &id[..5]]));
    // Another folder with the run: the run below the results is meant.
    fine(&place.sweeper(&["run", "m.toml"]));
    let shown = fine(&place.sweeper(&["show", &id[..5]]));
    assert!(shown.contains("folder     results/"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_slice(&place.sweeper(&["runs", "--all", "--json"]).stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 2);
    assert_eq!(json[0]["state"], "complete");
    assert_eq!(json[0]["statuses"]["ok"], 8);
}

#[test]
fn what_is_damaged_or_ambiguous_is_said() {
    let place = Place::new(&null_manifest(SCRIPT));
    for seed in ["1", "2"] {
        fine(&place.sweeper(&["run", "m.toml", "--set", &format!("seed={seed}")]));
    }
    let runs: Vec<PathBuf> = fs::read_dir(place.path("results"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(runs.len(), 2);
    // Two copies of one run: an id is not enough.
    let copy = place
        .path("results/copy")
        .join(runs[0].file_name().unwrap());
    fs::create_dir_all(&copy).unwrap();
    for file in ["journal.jsonl", "environment.json", "plan.json"] {
        fs::copy(runs[0].join(file), copy.join(file)).unwrap();
    }
    let twice = place.sweeper(&["show", &id(&runs[0])]);
    assert_eq!(code(&twice), 6);
    for word in ["is several runs; name the folder", "results/copy/nulls-"] {
        assert!(text(&twice).contains(word), "{twice:?}");
    }
    fs::write(runs[0].join("environment.json"), "{ garbage").unwrap();
    fs::remove_file(runs[1].join("environment.json")).unwrap();
    let listed = fine(&place.sweeper(&["runs"]));
    assert_eq!(listed.matches("damaged  ").count(), 2, "{listed}");
    assert!(listed.contains(&id(&runs[1])), "{listed}");
    for (run, wrong) in [(&runs[0], "damaged: "), (&runs[1], "the file is missing")] {
        let shown = place.sweeper(&["show", &run.to_string_lossy()]);
        assert_eq!(code(&shown), 6);
        assert!(text(&shown).contains(wrong), "{shown:?}");
        assert!(text(&shown).contains("writes it again"), "{shown:?}");
    }
    // As it says.
    for seed in ["1", "2"] {
        fine(&place.sweeper(&["run", "m.toml", "--set", &format!("seed={seed}")]));
    }
    let listed = fine(&place.sweeper(&["runs"]));
    assert!(!listed.contains("damaged"), "{listed}");
}

#[test]
fn an_interrupted_fresh_run_goes_on() {
    let place = Place::new(&null_manifest(SCRIPT));
    fine(&place.sweeper(&["run", "m.toml", "--fresh"]));
    let run = only(&place.path("results"));
    let attempt = run.join("attempt-1");
    let journal = fs::read_to_string(attempt.join("journal.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().take(4).collect();
    fs::write(attempt.join("journal.jsonl"), lines.join("\n") + "\n").unwrap();
    let listed = fine(&place.sweeper(&["runs"]));
    assert!(
        listed.contains("unfinished 3/8 rows") && listed.contains("attempt 1"),
        "{listed}"
    );
    let unfinished = place.sweeper(&["rerun", &id(&run)]);
    assert_eq!(code(&unfinished), 6, "{unfinished:?}");
    let again = fine(&place.sweeper(&["run", "m.toml", "--fresh"]));
    assert!(again.contains("3 measured before"), "{again}");
    assert!(!run.join("attempt-2").exists());
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    assert_eq!(lines(&attempt.join("journal.jsonl")), 9);
    // Finished, the next one begins anew.
    fine(&place.sweeper(&["run", "m.toml", "--fresh"]));
    assert_eq!(lines(&run.join("attempt-2/journal.jsonl")), 9);
}

#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let place = Place::new(&null_manifest(SCRIPT));
    fine(&place.sweeper(&["run", "m.toml"]));
    let lock = place.run_folder().join(".lock");
    let precious = place.path("precious");
    fs::write(&precious, "text").unwrap();
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(&precious, &lock).unwrap();
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 6, "{output:?}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "text");
}
