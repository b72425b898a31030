//! Ends of jobs, times that are given, and results of earlier runs.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::shards::manifest;
use super::*;

/// Points that hang for two seconds each.
fn slow(more: &str) -> String {
    let hangs = "outcomes = [{ when = \"elements >= 40\", status = \"timeout\" }, ";
    let limit = "[limits]\npoint_timeout_s = 2\n";
    manifest(&format!("{limit}{more}")).replace("outcomes = [", hangs)
}

fn statuses(place: &Place) -> Vec<String> {
    super::super::place::column(&place.read("records.csv"), "status")
}

#[test]
fn no_point_is_begun_that_does_not_end_before_the_job() {
    let place = Place::new(&slow(""));
    let began = Instant::now();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut command = place.command(&["run", "m.toml", "--shard", "1/1"]);
    let output = command
        .env("SLURM_JOB_END_TIME", (now + 13).to_string())
        .output()
        .unwrap();
    assert_eq!(code(&output), 75, "{}", text(&output));
    assert!(
        began.elapsed().as_secs_f64() < 13.0,
        "{:?}",
        began.elapsed()
    );
    let rows = fs::read_to_string(place.run_folder().join("shards/1-of-1.jsonl")).unwrap();
    let timeouts = rows.matches("\"status\":\"timeout\"").count();
    assert!((1..10).contains(&timeouts), "{timeouts}");
    assert!(!rows.contains("was over"));
    // What is there so far is in the tables.
    let written = rows.lines().count() - 1;
    assert_eq!(statuses(&place).len(), written);
    // Another job goes on.
    let output = place.sweeper(&["run", "m.toml", "--shard", "1/1"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert_eq!(statuses(&place).len(), 16);
}

/// Shards that are at work, each of which has finished its smaller problem and hangs in the larger.
fn hanging(place: &Place, shards: &[&str]) -> Vec<Child> {
    let tasks = shards.iter().map(|shard| {
        let mut command = place.command(&["run", "m.toml", "--shard", shard]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    });
    let tasks: Vec<Child> = tasks.collect();
    let began = Instant::now();
    for shard in shards {
        let name = format!("shards/{}.jsonl", shard.replace('/', "-of-"));
        let rows = || {
            let entries = fs::read_dir(place.path("results")).ok()?;
            let run = entries.flatten().next()?.path();
            Some(fs::read_to_string(run.join(&name)).ok()?.lines().count())
        };
        while rows().is_none_or(|lines| lines < 3) {
            assert!(began.elapsed().as_secs() < 40, "{name}");
            thread::sleep(Duration::from_millis(50));
        }
    }
    tasks
}

fn stop(tasks: Vec<Child>) {
    for task in &tasks {
        let kill = Command::new("kill").arg(task.id().to_string()).status();
        assert!(kill.unwrap().success());
    }
    for mut task in tasks {
        assert_eq!(task.wait().unwrap().code(), Some(75));
    }
}

#[test]
fn shards_that_end_early_leave_tables_of_all_rows_so_far() {
    let hangs = "outcomes = [{ when = \"elements >= 50\", status = \"timeout\" }, ";
    let more = "[limits]\npoint_timeout_s = 60\n[output]\nexports = [\"json\"]\n";
    let place = Place::new(&manifest(more).replace("outcomes = [", hangs));
    let points = |place: &Place| super::super::place::column(&place.read("records.csv"), "point");
    let exported = |place: &Place| {
        place
            .read("exports/records.json")
            .matches("\"point\":")
            .count()
    };
    // All at once: one after the other makes them, and the last one has all rows.
    stop(hanging(&place, &["1/4", "2/4", "3/4", "4/4"]));
    assert_eq!((points(&place).len(), exported(&place)), (8, 8));
    // One that ends as it should, after others have ended early.
    let quick = manifest(more).replace("point_timeout_s = 60", "point_timeout_s = 1");
    fs::write(place.path("m.toml"), quick.replace("outcomes = [", hangs)).unwrap();
    let ended = place.sweeper(&["run", "m.toml", "--shard", "3/4"]);
    assert_eq!(code(&ended), 4, "{}", text(&ended));
    assert_eq!((points(&place).len(), exported(&place)), (10, 10));
}

#[test]
fn in_a_given_time_the_most_telling_points_come_first() {
    let hangs = slow("").replace("elements >= 40", "elements == 10 or elements == 50");
    let place = Place::new(&hangs);
    let output = place.sweeper(&["run", "m.toml", "--max-time", "3s"]);
    let said = text(&output);
    assert_eq!(code(&output), 4, "{said}");
    assert!(
        said.contains("without a measurement, since the time was over"),
        "{said}"
    );
    let records = place.read("records.csv");
    let column = |name| super::super::place::column(&records, name);
    let (sizes, reasons) = (column("elements"), column("reason"));
    let rows: Vec<(&String, &String)> = sizes.iter().zip(&reasons).collect();
    assert_eq!(rows.len(), 16);
    let unmeasured = |size: &str| {
        let own = rows.iter().filter(|(held, _)| *held == size);
        own.filter(|(_, reason)| reason.contains("--max-time 3s was over"))
            .count()
    };
    // The first is an end of the axis, which hangs; the middle ones are left.
    assert!(unmeasured("10") < 2, "{rows:?}");
    assert!(unmeasured("20") == 2 && unmeasured("60") == 2, "{rows:?}");
    // The next run measures them.
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    let reasons = super::super::place::column(&place.read("records.csv"), "reason");
    assert!(
        reasons.iter().all(|reason| !reason.contains("was over")),
        "{reasons:?}"
    );
    let wrong = place.sweeper(&["run", "m.toml", "--max-time", "soon"]);
    assert_eq!(code(&wrong), 2, "{}", text(&wrong));
}

#[test]
fn results_of_earlier_runs_are_taken_when_asked_for() {
    let place = Place::new(&manifest(""));
    place.sweeper(&["run", "m.toml"]);
    let earlier = place.run_folder();
    // These sizes and two more: another run.
    let more = manifest("").replace("70, 80]", "70, 80, 90]");
    fs::write(place.path("more.toml"), more).unwrap();
    let output = place.sweeper(&["run", "more.toml", "--reuse"]);
    let said = text(&output);
    assert_eq!(code(&output), 4, "{said}");
    assert!(
        said.contains("18 points") && said.contains("14 taken from earlier runs"),
        "{said}"
    );
    let folder = |other: &Path| {
        let entries = fs::read_dir(place.path("results")).unwrap();
        let mut paths = entries.map(|entry| entry.unwrap().path());
        paths.find(|path| path != other).unwrap()
    };
    let records = fs::read_to_string(folder(&earlier).join("records.csv")).unwrap();
    let from = super::super::place::column(&records, "reused_from");
    let id = earlier
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .rsplit_once('-')
        .unwrap()
        .1;
    assert_eq!(
        from.iter().filter(|held| held.starts_with(id)).count(),
        14,
        "{from:?}"
    );
    assert_eq!(
        from.iter().filter(|held| held.is_empty()).count(),
        4,
        "{from:?}"
    );
    // Shards take their own; a renamed manifest is the run in another folder.
    fs::write(
        place.path("renamed.toml"),
        manifest("").replace("name = \"", "name = \"re"),
    )
    .unwrap();
    let output = place.sweeper(&["run", "renamed.toml", "--reuse", "--shard", "1/2"]);
    assert!(
        text(&output).contains("taken from earlier runs"),
        "{}",
        text(&output)
    );
    // Measurements made in another way are not.
    let output = place.sweeper(&["run", "more.toml", "--reuse", "--repeats", "6"]);
    assert!(!text(&output).contains("taken from"), "{}", text(&output));
}
