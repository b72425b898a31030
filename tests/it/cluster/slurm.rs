//! Commands of Slurm that are scripts here: what they are asked, and what their refusals become.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::super::place::cpu_manifest;
use super::shards::manifest;
use super::*;

/// Stands for Slurm: commands that write down how they were called.
struct Slurm {
    place: Place,
}

impl Slurm {
    fn new(manifest: &str) -> Self {
        let slurm = Slurm {
            place: Place::new(manifest),
        };
        fs::create_dir(slurm.place.path("bin")).unwrap();
        slurm.answer("sbatch", "wc -l < \"$CALLS\"");
        slurm.answer("squeue", "");
        slurm.answer("scancel", "");
        slurm.answer("scontrol", "");
        slurm
    }

    /// Lets a command do something else.
    fn answer(&self, name: &str, script: &str) {
        let path = self.place.path("bin").join(name);
        let text = format!("#!/bin/sh\necho {name} \"$@\" >> \"$CALLS\"\n{script}\n");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn prepare(&self, command: &mut Command) {
        let path = std::env::var("PATH").unwrap();
        let bin = self.place.path("bin");
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.env("CALLS", self.place.path("calls"));
    }

    fn sweeper(&self, args: &[&str]) -> Output {
        let mut command = self.place.command(args);
        self.prepare(&mut command);
        command.output().unwrap()
    }

    /// How commands were called.
    fn calls(&self) -> String {
        fs::read_to_string(self.place.path("calls")).unwrap_or_default()
    }
}

fn seconds() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

fn says(output: &Output, expected: i32, words: &[&str]) {
    let said = text(output);
    assert_eq!(code(output), expected, "{said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn three_steps_depend_on_each_other_and_what_is_missing_is_submitted_again() {
    let slurm = Slurm::new(&cpu_manifest(""));
    let submit = ["submit", "m.toml", "--shards", "3", "--at-once", "2"];
    let first = slurm.sweeper(&submit);
    says(&first, 0, &["3 tasks submitted as job 2"]);
    let calls = slurm.calls();
    let lines: Vec<&str> = calls.lines().collect();
    for (line, words) in lines.iter().zip([
        &["sbatch", "compile.sh"][..],
        &["--array=1-3%2", "--dependency=afterany:1", "array.sh"],
        &["--dependency=afterany:2", "report.sh"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{calls}");
    }
    slurm.answer("squeue", "echo 2_1; echo 2_3");
    let again = slurm.sweeper(&submit);
    says(&again, 0, &["1 tasks submitted", "2 queued or running"]);
    assert!(slurm.calls().contains("--array=2%2"), "{}", slurm.calls());
}

#[test]
fn refusals_are_slurms_own_words_and_nothing_stays_queued() {
    let slurm = Slurm::new(&cpu_manifest(""));
    slurm.answer(
        "sbatch",
        "case \"$*\" in *array*) echo 'Invalid job array specification' >&2; exit 1; esac\n\
         echo 70",
    );
    let refused = slurm.sweeper(&["submit", "m.toml", "--shards", "3"]);
    says(
        &refused,
        7,
        &["sbatch refused", "Invalid job array specification"],
    );
    assert!(slurm.calls().contains("scancel 70"), "{}", slurm.calls());
    let place = Place::new(&manifest(""));
    let mut command = Command::new(crate::support::program());
    command.args(["submit", "m.toml", "--shards", "3"]);
    command.current_dir(place.path(".")).env("PATH", "/nowhere");
    let absent = command.output().unwrap();
    says(&absent, 7, &["there is no `sbatch` here", "--dry-run"]);
}

#[test]
fn another_number_of_shards_is_refused_when_it_is_submitted() {
    let slurm = Slurm::new(&manifest(""));
    says(
        &slurm.sweeper(&["submit", "m.toml", "--shards", "3"]),
        0,
        &[],
    );
    let more = ["submit", "m.toml", "--shards", "5"];
    slurm.answer("squeue", "echo 1_2");
    let queued = slurm.sweeper(&more);
    says(&queued, 6, &["in 3 shards are queued", "sweeper cancel"]);
    slurm.answer("squeue", "");
    let mut task = slurm.place.command(&["run", "m.toml", "--shard", "1/3"]);
    task.env("SLURM_ARRAY_JOB_ID", "1");
    task.env("SLURM_ARRAY_TASK_ID", "1");
    task.output().unwrap();
    let begun = slurm.sweeper(&more);
    says(
        &begun,
        6,
        &["shared between 3 shards", "--shards 3", "sweeper merge"],
    );
    // Each task is tried again that has points to try again, once.
    for index in ["2/3", "3/3"] {
        slurm.place.sweeper(&["run", "m.toml", "--shard", index]);
    }
    let submit = ["submit", "m.toml", "--shards", "3"];
    says(&slurm.sweeper(&submit), 0, &["nothing to submit; 3 done"]);
    let again = slurm.sweeper(&[&submit[..], &["--retry", "oom,wide"]].concat());
    says(&again, 0, &["3 tasks submitted"]);
    let again = slurm.sweeper(&[&submit[..], &["--retry", "oom", "--dry-run"]].concat());
    says(&again, 0, &["--requeue --retry oom --shard"]);
    let again = slurm.sweeper(&[&submit[..], &["--retry", "oom"]].concat());
    says(&again, 0, &["1 tasks submitted", "2 done"]);
    let wrong = slurm.sweeper(&[&submit[..], &["--retry", "slow"]].concat());
    says(&wrong, 2, &["no status `slow`"]);
    // On nodes of another kind it is another run.
    let other = [&more[..], &["--gpus", "h100:1", "--option=--qos=low"]].concat();
    says(&slurm.sweeper(&other), 0, &["5 tasks submitted"]);
    let folder = slurm.place.path("results").join(".submissions");
    let scripts = fs::read_dir(folder).unwrap().map(|entry| {
        let script = entry.unwrap().path().join("array.sh");
        fs::read_to_string(script).unwrap()
    });
    let scripts: String = scripts.collect();
    assert!(scripts.contains("#SBATCH --qos=low\n"), "{scripts}");
}

#[test]
fn tasks_that_left_nothing_are_told_of() {
    let slurm = Slurm::new(&manifest(""));
    let submitted = slurm.sweeper(&["submit", "m.toml", "--shards", "2", "--json"]);
    let submitted: serde_json::Value = serde_json::from_slice(&submitted.stdout).unwrap();
    let folder = submitted["folder"].as_str().unwrap();
    let words = ["has begun a run", "nodes don't see this folder"];
    says(&slurm.sweeper(&["status", folder, "--watch"]), 6, &words);
    says(
        &slurm.sweeper(&["submit", "m.toml", "--shards", "2"]),
        0,
        &words,
    );
    fs::write(
        Path::new(folder).join("logs/1.log"),
        "loading\nno such module\n\n",
    )
    .unwrap();
    let status = slurm.sweeper(&["status", folder]);
    says(&status, 6, &["1.log ends with: no such module"]);
}

#[test]
fn a_task_whose_time_is_over_has_itself_alone_started_again() {
    let hangs = "outcomes = [{ when = \"elements >= 20\", status = \"timeout\" }, ";
    let limit = "[limits]\npoint_timeout_s = 2\n";
    let slurm = Slurm::new(&manifest(limit).replace("outcomes = [", hangs));
    let task = |seconds_left: u64| {
        let args = ["run", "m.toml", "--shard", "1/1", "--requeue"];
        let mut command = slurm.place.command(&args);
        slurm.prepare(&mut command);
        // The last task of an array has the array's number.
        for name in ["SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID"] {
            command.env(name, "7");
        }
        command.env("SLURM_ARRAY_TASK_ID", "3");
        command.env("SLURM_JOB_END_TIME", (seconds() + seconds_left).to_string());
        command.output().unwrap()
    };
    says(&task(9), 75, &["job 7_3 is queued again"]);
    assert_eq!(slurm.calls(), "scontrol requeue 7_3\n");
    says(&task(1), 75, &["brought nothing new"]);
    assert_eq!(slurm.calls(), "scontrol requeue 7_3\n");
}

#[test]
fn a_node_whose_clock_is_hours_off_measures_as_long_as_its_job_takes() {
    let place = Place::new(&manifest(""));
    let dry = place.sweeper(&["submit", "m.toml", "--shards", "1", "--dry-run"]);
    let said = String::from_utf8(dry.stdout).unwrap();
    let script = said.split("#!/bin/bash").nth(1).unwrap();
    // On a busy machine the script begins some seconds later.
    for (away, told) in [(-7200, "clock is 72"), (7200, "clock is -7")] {
        let began = seconds().saturating_add_signed(away);
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).current_dir(place.path("."));
        bash.env("SLURM_ARRAY_TASK_ID", "1");
        bash.env("SLURM_JOB_START_TIME", began.to_string());
        bash.env("SLURM_JOB_END_TIME", (began + 60).to_string());
        let ran = bash.output().unwrap();
        says(&ran, 4, &[told, "s ahead of Slurm's", "16 points"]);
        fs::remove_dir_all(place.path("results")).unwrap();
    }
}

#[test]
fn a_task_that_is_started_again_goes_on_with_what_it_was_to_try_again() {
    let slurm = Slurm::new(&manifest(""));
    let submit = ["submit", "m.toml", "--shards", "1", "--dry-run"];
    let submit = slurm.sweeper(&[&submit[..], &["--retry", "failed"]].concat());
    let said = String::from_utf8(submit.stdout).unwrap();
    let script = said.split("#!/bin/bash").nth(1).unwrap();
    let task = |array: &str, restarts: Option<&str>| {
        let mut bash = Command::new("bash");
        bash.args(["-c", script]).current_dir(slurm.place.path("."));
        slurm.prepare(&mut bash);
        bash.env("SLURM_JOB_ID", array)
            .env("SLURM_ARRAY_JOB_ID", array);
        bash.env("SLURM_ARRAY_TASK_ID", "1");
        bash.envs(restarts.map(|count| ("SLURM_RESTART_COUNT", count)));
        bash.output().unwrap()
    };
    let journal = || slurm.place.run_folder().join("shards/1-of-1.jsonl");
    // The last row was being measured when the task ended.
    let cut_off = || {
        let text = fs::read_to_string(journal()).unwrap();
        let last = text.trim_end().rfind('\n').unwrap();
        fs::write(journal(), &text[..=last]).unwrap();
    };
    let tries = |job: &str| {
        let text = fs::read_to_string(journal()).unwrap();
        let rows = text.lines().filter(|row| row.contains("\"oom\""));
        rows.filter(|row| row.contains(&format!("\"retried_in\":\"{job}\"")))
            .count()
    };
    // Points without rows are measured as ever. Those that fail were tried by this job.
    says(&task("6", None), 4, &["16 points in"]);
    says(&task("6", Some("1")), 4, &["nothing to do"]);
    assert_eq!(tries("6_1"), 2);
    // Another submission tries them again, each once, however often its task is started.
    says(&task("7", None), 4, &["2 points in"]);
    cut_off();
    assert_eq!(tries("7_1"), 1);
    says(&task("7", Some("1")), 4, &["1 points in"]);
    assert_eq!(tries("7_1"), 2);
    says(&task("7", Some("2")), 4, &["nothing to do"]);
    says(&task("8", None), 4, &["2 points in"]);
    assert_eq!(tries("8_1"), 2);
}
