//! Joining journals, and looking at how far shards are.

use super::shards::{alone, manifest, rows, shard};
use super::*;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy(&path, &to),
            false => _ = fs::copy(&path, to).unwrap(),
        }
    }
}

fn merge(place: &Place, folders: &[&Path]) -> Output {
    let folders = folders.iter().map(|path| path.to_str().unwrap());
    let args: Vec<&str> = std::iter::once("merge").chain(folders).collect();
    place.sweeper(&args)
}

fn status(place: &Place) -> serde_json::Value {
    let output = place.sweeper(&["status", "--json", place.run_folder().to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_joined_journal_is_that_of_one_process() {
    let manifest = manifest("");
    let one = alone(&manifest);
    let place = Place::new(&manifest);
    for index in [3, 2, 1, 4] {
        shard(&place, &format!("{index}/4"));
    }
    let output = merge(&place, &[&place.run_folder()]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    assert!(
        text(&output).contains("16 rows of 5 journals, all 16 points"),
        "{}",
        text(&output)
    );
    assert!(!place.run_folder().join("shards").exists());
    assert!(rows(&place.run_folder()) == rows(&one.run_folder()));
    for file in ["records.csv", "samples.csv"] {
        assert!(place.read(file) == one.read(file), "{file}");
    }
    // Now any number of shards will do; they have nothing to do.
    let other = shard(&place, "1/7");
    assert!(text(&other).contains("nothing to do"), "{}", text(&other));
    let again = merge(&place, &[&place.run_folder()]);
    assert_eq!(code(&again), 0, "{}", text(&again));
    assert!(rows(&place.run_folder()) == rows(&one.run_folder()));
}

/// Whatever else lies among the files of shards is somebody's.
#[test]
fn what_is_no_file_of_a_shard_stays() {
    let place = Place::new(&manifest(""));
    for index in [1, 2] {
        shard(&place, &format!("{index}/2"));
    }
    let folder = place.run_folder();
    let shards = folder.join("shards");
    let others = [
        "notes.txt",
        ".2-of-2.jsonl.AbC123",
        "2-of-2 (conflict).jsonl",
    ];
    for name in others {
        fs::write(shards.join(name), "mine").unwrap();
    }
    std::os::unix::fs::symlink("/nowhere", shards.join("elsewhere")).unwrap();
    fs::remove_file(folder.join("plan.json")).unwrap();
    let output = merge(&place, &[&folder]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("16 rows of 3 journals"), "{said}");
    assert!(said.contains("the folder has no plan.json"), "{said}");
    for name in others {
        assert_eq!(fs::read_to_string(shards.join(name)).unwrap(), "mine");
        assert!(said.contains(name), "{said}");
    }
    let entries = fs::read_dir(&shards).unwrap();
    assert_eq!(entries.count(), others.len() + 1);
    fs::remove_file(folder.join("manifest.toml")).unwrap();
    let output = merge(&place, &[&folder]);
    let why = "tables and exports were not made: error[E0003]: there is no manifest";
    assert!(text(&output).contains(why), "{}", text(&output));
}

/// A limit is not part of a run's identity, and changes what its shards share.
#[test]
fn shards_of_another_plan_are_refused() {
    let place = Place::new(&manifest(""));
    let few = [
        "run",
        "m.toml",
        "--shard",
        "1/2",
        "--set=limits.max_points=8",
    ];
    let first = place.sweeper(&few);
    assert!([0, 4].contains(&code(&first)), "{}", text(&first));
    let other = place.sweeper(&["run", "m.toml", "--shard", "2/2"]);
    assert_eq!(code(&other), 6, "{}", text(&other));
    let expected = "shard 1/2 has a plan of 8 points, and this one of 16";
    assert!(text(&other).contains(expected), "{}", text(&other));
}

#[test]
fn folders_that_were_copied_apart_are_joined() {
    let manifest = manifest("");
    let one = alone(&manifest);
    let places = [Place::new(&manifest), Place::new(&manifest)];
    // The second shard was measured in both places, and no row is lost or doubled.
    for (place, indices) in places.iter().zip([[1, 2], [3, 2]]) {
        for index in indices {
            shard(place, &format!("{index}/3"));
        }
    }
    let [here, there] = &places;
    let elsewhere = here.path("copied");
    copy(&there.run_folder(), &elsewhere);
    let output = merge(here, &[&here.run_folder(), &elsewhere]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    assert!(rows(&here.run_folder()) == rows(&one.run_folder()));
    assert!(here.read("records.csv") == one.read("records.csv"));
    // Without the others a journal has its own rows alone.
    let part = merge(there, &[&there.run_folder()]);
    assert!(text(&part).contains("of 16 points"), "{}", text(&part));
    let rest = there.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&rest), 4, "{}", text(&rest));
    assert!(there.read("records.csv") == one.read("records.csv"));
}

#[test]
fn what_does_not_belong_together_is_refused_by_its_field() {
    let place = Place::new(&manifest(""));
    shard(&place, "1/2");
    let other = Place::new(&manifest("").replace("repeats = 5", "repeats = 6"));
    shard(&other, "2/2");
    let refused = merge(&place, &[&place.run_folder(), &other.run_folder()]);
    assert_eq!(code(&refused), 6, "{}", text(&refused));
    assert!(
        text(&refused).contains("the field `manifest` differs"),
        "{}",
        text(&refused)
    );
    let fewer = Place::new(&manifest("[limits]\nmax_points = 4\n"));
    shard(&fewer, "2/2");
    let refused = merge(&place, &[&place.run_folder(), &fewer.run_folder()]);
    let said = text(&refused);
    assert!(
        said.contains("the field `plan` differs, which has 4 points"),
        "{said}"
    );
    let engine = other.path("engine");
    copy(&place.run_folder(), &engine);
    let file = engine.join("environment.json");
    let mut environment: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    environment["identity"]["engine"] = "ab".repeat(32).into();
    fs::write(&file, environment.to_string()).unwrap();
    let refused = merge(&place, &[&place.run_folder(), &engine]);
    assert!(
        text(&refused).contains("the field `engine` differs"),
        "{}",
        text(&refused)
    );
    let nothing = merge(&place, &[&place.run_folder(), &place.path("cache")]);
    assert_eq!(code(&nothing), 6, "{}", text(&nothing));
    assert!(place.run_folder().join("shards/1-of-2.jsonl").exists());
}

#[test]
fn status_tells_of_each_shard_and_of_the_last_failure() {
    let place = Place::new(&manifest(""));
    shard(&place, "2/3");
    shard(&place, "1/3");
    let told = status(&place);
    assert_eq!(told["counts"]["done"], 2);
    assert_eq!(told["counts"]["not begun"], 1);
    let progress = &told["progress"];
    assert_eq!(progress["points"], 16);
    let parts = progress["parts"].as_array().unwrap();
    let done: u64 = parts
        .iter()
        .map(|part| part["done"].as_u64().unwrap())
        .sum();
    assert_eq!(progress["done"], done);
    let failures: u64 = parts
        .iter()
        .map(|part| part["failures"].as_u64().unwrap())
        .sum();
    shard(&place, "3/3");
    let told = status(&place);
    assert_eq!(told["progress"]["done"], 16);
    let parts = told["progress"]["parts"].as_array().unwrap();
    let all: u64 = parts
        .iter()
        .map(|part| part["failures"].as_u64().unwrap())
        .sum();
    assert_eq!(all, 2, "before: {failures}");
    let last = parts.iter().find(|part| part["failures"] == 2).unwrap();
    assert_eq!(last["last_failure"]["status"], "oom");
    let shown = text(&place.sweeper(&["status", place.run_folder().to_str().unwrap()]));
    for words in [
        "16/16 points",
        "3 shards: 3 done",
        "2 without a result",
        "oom",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let watched = place.sweeper(&["status", "--watch", place.run_folder().to_str().unwrap()]);
    assert_eq!(code(&watched), 0, "nobody is at work");
    // Of a plain run, and of one that was joined.
    let one = alone(&manifest(""));
    assert_eq!(status(&one)["progress"]["done"], 16);
    merge(&place, &[&place.run_folder()]);
    assert_eq!(status(&place)["progress"]["done"], 16);
}

#[test]
fn a_process_at_work_is_seen_and_keeps_others_out() {
    // Two points hang until their limit.
    let hangs = manifest("[limits]\npoint_timeout_s = 3\n").replace(
        "outcomes = [",
        "outcomes = [{ when = \"elements == 80\", status = \"timeout\" }, ",
    );
    let place = Place::new(&hangs);
    let mut command = place.command(&["run", "m.toml", "--shard", "1/2"]);
    command
        .env("SLURM_ARRAY_JOB_ID", "77")
        .env("SLURM_ARRAY_TASK_ID", "1");
    let mut process = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    let is_at_work = || {
        let folder = fs::read_dir(place.path("results"))
            .ok()
            .and_then(|mut all| all.next());
        let folder = folder.map(|entry| entry.unwrap().path());
        folder.is_some_and(|folder| {
            folder.join("shards/1-of-2.hold").exists() && folder.join("environment.json").exists()
        })
    };
    while !is_at_work() {
        assert!(began.elapsed().as_secs() < 60, "it does not begin");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let told = status(&place);
    assert_eq!(told["counts"]["at work"], 1);
    let pid = process.id();
    let refused = shard(&place, "1/2");
    assert_eq!(code(&refused), 6, "{}", text(&refused));
    for words in ["shard 1/2", "job 77_1", &format!("process {pid}"), "host "] {
        assert!(
            text(&refused).contains(words),
            "{words}: {}",
            text(&refused)
        );
    }
    for verb in ["run", "merge"] {
        let named = place.run_folder();
        let args = match verb {
            "run" => ["run", "m.toml"],
            _ => ["merge", named.to_str().unwrap()],
        };
        let refused = place.sweeper(&args);
        assert_eq!(code(&refused), 6, "{}", text(&refused));
        assert!(text(&refused).contains("job 77_1"), "{}", text(&refused));
    }
    // Other shards don't mind; the dead do not get in the way.
    let other = shard(&place, "2/2");
    assert!([0, 4].contains(&code(&other)), "{}", text(&other));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(status(&place)["counts"]["gone"], 1);
    let again = shard(&place, "1/2");
    assert_eq!(code(&again), 4, "{}", text(&again));
    assert_eq!(status(&place)["progress"]["done"], 16);
}

#[test]
fn a_process_of_another_machine_is_waited_for() {
    let place = Place::new(&manifest(""));
    shard(&place, "1/2");
    let state = place.run_folder().join("shards/1-of-2.state.json");
    let hold = place.run_folder().join("shards/1-of-2.hold");
    let text_of = fs::read_to_string(&state).unwrap();
    let mut told: serde_json::Value = serde_json::from_str(&text_of).unwrap();
    told["holder"]["machine"] = "elsewhere".into();
    told["holder"]["host"] = "n7".into();
    told["end"] = serde_json::Value::Null;
    fs::write(&hold, told["holder"].to_string()).unwrap();
    fs::write(&state, told.to_string()).unwrap();
    assert_eq!(status(&place)["counts"]["at work"], 1);
    let wait = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("SWEEPER_PATIENCE_S", "2").output().unwrap()
    };
    // It goes on writing: it lives.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for beat in 100..110 {
                std::thread::sleep(std::time::Duration::from_millis(600));
                told["beat"] = beat.into();
                fs::write(&state, told.to_string()).unwrap();
            }
        });
        let refused = wait(&["run", "m.toml", "--shard", "1/2"]);
        assert_eq!(code(&refused), 6, "{}", text(&refused));
        for words in ["host n7", "signs of life"] {
            assert!(
                text(&refused).contains(words),
                "{words}: {}",
                text(&refused)
            );
        }
    });
    // It says nothing more: it is gone.
    let taken = wait(&["run", "m.toml", "--shard", "1/2"]);
    assert!(text(&taken).contains("nothing to do"), "{}", text(&taken));
    assert!(!hold.exists());
}
