//! A file system that shows changes of other machines late, in the place of NFS: `tests/delayed`
//! has the library, and what it delays.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::place::cpu_manifest;
use super::shards::{alone, manifest, rows};
use super::*;

/// How long others' changes can't be seen, in milliseconds.
const LATE_MS: u64 = 1500;

/// A folder that several machines see, and what stands for these machines.
struct Late {
    place: Place,
    preloaded: PathBuf,
    notes: tempfile::TempDir,
}

impl Late {
    fn new(manifest: &str) -> Self {
        let notes = tempfile::tempdir().unwrap();
        let preloaded = notes.path().join("delayed.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/delayed/delayed.c");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-shared", "-fPIC", "-o"]);
        let built = cc.arg(&preloaded).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", text(&built));
        for node in ["a", "b", "c", "d"] {
            fs::write(notes.path().join(format!("boot.{node}")), node).unwrap();
        }
        Late {
            place: Place::new(manifest),
            preloaded,
            notes,
        }
    }

    /// The program on one machine.
    fn on(&self, node: &str, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        let root = fs::canonicalize(self.place.path(".")).unwrap();
        command
            .env("LD_PRELOAD", &self.preloaded)
            .env("DELAYED_ROOT", root)
            .env("DELAYED_NOTES", self.notes.path())
            .env("DELAYED_NODE", node)
            .env("DELAYED_MS", LATE_MS.to_string())
            .env("SLURMD_NODENAME", node)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn start(&self, node: &str, args: &[&str]) -> Child {
        self.on(node, args).spawn().unwrap()
    }

    /// Waits until everybody sees everything.
    fn settle() {
        thread::sleep(Duration::from_millis(LATE_MS + 100));
    }
}

fn ended(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

#[test]
fn changes_of_others_are_seen_late_and_own_ones_at_once() {
    // Otherwise the tests below show nothing.
    let late = Late::new(&manifest(""));
    let ran = late.on("a", &["run", "m.toml"]).output().unwrap();
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let folder = late.place.run_folder();
    let show = |node| late.on(node, &["show", folder.to_str().unwrap()]).output();
    assert_eq!(code(&show("a").unwrap()), 0);
    assert_ne!(code(&show("b").unwrap()), 0);
    Late::settle();
    assert_eq!(code(&show("b").unwrap()), 0);
}

#[test]
fn shards_on_machines_that_see_each_other_late_lose_nothing() {
    let manifest = manifest("");
    let one = alone(&manifest);
    let late = Late::new(&manifest);
    for pair in [[1, 2, 3, 4], [5, 6, 7, 8]] {
        let shards = pair.map(|index| format!("{index}/8"));
        let nodes = ["a", "b", "c", "d"].into_iter().zip(&shards);
        let tasks =
            nodes.map(|(node, shard)| late.start(node, &["run", "m.toml", "--shard", shard]));
        for task in tasks.collect::<Vec<_>>() {
            let output = ended(task);
            assert!([0, 4].contains(&code(&output)), "{}", text(&output));
        }
    }
    let folder = late.place.run_folder();
    // Whatever somebody sees meanwhile is a part of it, and no damage.
    let status = late.on("d", &["status", folder.to_str().unwrap()]).output();
    assert_eq!(
        code(status.as_ref().unwrap()),
        0,
        "{}",
        text(&status.unwrap())
    );
    Late::settle();
    assert!(
        rows(&folder) == rows(&one.run_folder()),
        "{:?}",
        rows(&folder)
    );
    let report = late
        .on("b", &["report", "--no-plots", folder.to_str().unwrap()])
        .output();
    assert_eq!(
        code(report.as_ref().unwrap()),
        0,
        "{}",
        text(&report.unwrap())
    );
    for file in ["records.csv", "samples.csv"] {
        assert!(late.place.read(file) == one.read(file), "{file}");
    }
}

/// Refuses a shard that a process of another machine, whose files can't be seen yet, has begun.
fn refuse(locks: &str) {
    let hangs = "[null]\ntime_ns = \"100\"\nnoise = 0.01\n\
                 outcomes = [{ when = \"elements >= 10\", status = \"timeout\" }]\n\
                 [limits]\npoint_timeout_s = 4\n";
    let late = Late::new(&null_manifest(hangs));
    let shard = |node| {
        let mut command = late.on(node, &["run", "m.toml", "--shard", "1/2"]);
        command.env("DELAYED_LOCKS", locks);
        command.env("SLURM_ARRAY_JOB_ID", "77");
        command.env("SLURM_ARRAY_TASK_ID", "1");
        command
    };
    let mut first = shard("a").spawn().unwrap();
    let began = Instant::now();
    let shards = || fs::read_dir(late.place.path("results")).ok()?.next()?.ok();
    let hold = || shards().is_some_and(|run| run.path().join("shards/1-of-2.hold").exists());
    while !hold() {
        assert!(began.elapsed() < Duration::from_secs(30), "no hold");
        thread::sleep(Duration::from_millis(5));
    }
    let second = shard("b").output().unwrap();
    // `env`, which starts the program, becomes it.
    let process = format!("host a, process {}, job 77_1", first.id());
    first.kill().unwrap();
    first.wait().unwrap();
    let said = text(&second);
    assert_eq!(code(&second), 6, "{said}");
    assert!(said.contains(&process), "{process}: {said}");
}

#[test]
fn a_shard_of_another_machine_is_refused_where_there_are_no_locks() {
    refuse("none");
}

#[test]
fn a_shard_that_another_machine_has_locked_is_refused_with_its_name() {
    refuse("all");
}

#[test]
fn machines_that_fill_one_cache_get_right_kernels() {
    let late = Late::new(&cpu_manifest(""));
    let tasks = ["a", "b", "c"].map(|node| {
        let folder = format!("results-{node}");
        late.start(node, &["run", "m.toml", "--output-dir", &folder])
    });
    for task in tasks {
        let output = ended(task);
        assert_eq!(code(&output), 0, "{}", text(&output));
        assert!(text(&output).contains("(6 ok)"), "{}", text(&output));
    }
    Late::settle();
    let verified = late.on("d", &["cache", "verify"]).output().unwrap();
    assert_eq!(code(&verified), 0, "{}", text(&verified));
    assert!(text(&verified).contains(", 0 bad"), "{}", text(&verified));
    // And all of it is found then.
    let run = late
        .on("d", &["run", "m.toml", "--require-cached"])
        .output()
        .unwrap();
    assert_eq!(code(&run), 0, "{}", text(&run));
}
