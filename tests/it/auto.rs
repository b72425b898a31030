//! The backend `auto`, as people run it: loops on this machine's processors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::place::{Place, code, column, text};
use super::support::processes;

/// A sweep of loops of a workload; `more` are keys of its case, `measure` of `[measure]`.
fn manifest(workload: &str, phase: &str, more: &str, measure: &str) -> String {
    format!(
        "schema = 1\nname = \"hot\"\n[case.{workload}]\nworkload = \"{workload}\"\n\
         backends = [\"auto\"]\nphases = [\"{phase}\"]\n{more}\n[device]\nuse = \"cpu\"\n\
         [limits]\npoint_timeout_s = 1800\n[measure]\nrepeats = 1\nwarmup = 0\n{measure}\n"
    )
}

/// Runs the sweep, and yields `records.csv`.
fn records(place: &Place) -> String {
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    place.read("records.csv")
}

fn only(csv: &str, name: &str) -> String {
    let values = column(csv, name);
    assert_eq!(values.len(), 1, "{values:?}");
    values[0].clone()
}

fn number(csv: &str, name: &str) -> u64 {
    let value = only(csv, name);
    let number: f64 = value.parse().unwrap_or_else(|_| panic!("{name}: {value}"));
    number as u64
}

/// Runs a loop of so many iterations; yields the records, and its outcome.
fn records_of(place: &Place, iterations: u64) -> (String, String) {
    let loops = format!("measure.loops=[{iterations}]");
    let output = place.sweeper(&["run", "m.toml", "--set", &loops]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let csv = place.read("records.csv");
    assert_eq!(only(&csv, "status"), "ok", "{}", only(&csv, "reason"));
    let outcome = only(&csv, "hot_outcome");
    (csv, outcome)
}

/// Runs loops until one of both was found to be faster; yields the records, and the loop's
/// iterations. Kernels that were compiled beside a loop that ended first are there for the next
/// one; where that is not enough, loops are longer.
fn decided(place: &Place) -> (String, u64) {
    let lengths = [3_000, 30_000, 300_000, 3_000_000].into_iter();
    decided_within(place, lengths.flat_map(|length| [length; 3]))
}

/// As [`decided`], by loops of these lengths.
fn decided_within(place: &Place, lengths: impl Iterator<Item = u64>) -> (String, u64) {
    // Compilers give way to all other tests.
    for iterations in lengths {
        let (csv, outcome) = records_of(place, iterations);
        if ["kept", "kept_parts", "back"].contains(&&*outcome) {
            return (csv, iterations);
        }
        assert!(
            ["short", "compiling", "trying"].contains(&&*outcome),
            "{outcome}"
        );
        fs::remove_dir_all(place.path("results")).unwrap();
    }
    panic!("compiling takes too long");
}

/// The program is compiled whatever it costs, so that loops switch on every machine; whether it is
/// faster, machines decide.
#[test]
fn loops_switch_to_a_compiled_program_and_stay_right() {
    let small = "batch = 2\nlayers = 1\nheads = 2\nd_model = 16\nd_ff = 32\nvocabulary = 32\n\
                 grid = { context = [8] }";
    for (workload, phase, more) in [
        ("mixed", "forward", ""),
        ("mlp", "both", ""),
        (
            "gelu",
            "both",
            "grid = { batch = [8], sequence = [8], dimension = [32] }",
        ),
        ("transformer", "step", small),
    ] {
        let place = Place::new(&manifest(workload, phase, more, "hot_threshold = 3"));
        let (csv, iterations) = decided(&place);
        assert!(number(&csv, "hot_detected_at") < 40, "{workload}");
        assert!(number(&csv, "hot_switched_at") > 3, "{workload}");
        let replaced = number(&csv, "hot_replaced");
        assert!(
            (1..iterations).contains(&replaced),
            "{workload}: {replaced}"
        );
        assert_eq!(only(&csv, "checked"), "full");
    }
}

/// Equal layers become compiled first, and then all of the loop; both programs are judged.
#[test]
fn equal_layers_become_compiled_by_themselves() {
    let layers = "batch = 2\nlayers = 3\nheads = 2\nd_model = 16\nd_ff = 32\nvocabulary = 32\n\
                  grid = { context = [8] }";
    let rules = "hot_threshold = 3\nhot_parts = \"first\"\nhot_memory = false";
    let place = Place::new(&manifest("transformer", "step", layers, rules));
    // No loop finds kernels of the one before.
    let (csv, _) = decided_within(&place, [60_000, 300_000, 3_000_000].into_iter());
    let places = ["hot_detected_at", "hot_parts_at", "hot_switched_at"];
    let places = places.map(|name| number(&csv, name));
    assert!(places.is_sorted() && places[1] < places[2], "{places:?}");
    assert_eq!(only(&csv, "checked"), "full");
}

/// Three products in a row: nothing to fuse.
#[test]
fn a_loop_that_compiling_cannot_make_faster_is_not_compiled() {
    let place = Place::new(&manifest("matmul_chain", "forward", "", "loops = [3000]"));
    let csv = records(&place);
    assert_eq!(only(&csv, "hot_outcome"), "worthless");
    assert_eq!(number(&csv, "hot_replaced"), 0);
    assert_eq!(number(&csv, "hot_regressions"), 0);
}

#[test]
fn loops_are_needed() {
    let place = Place::new(&manifest("mixed", "forward", "", ""));
    let csv = records(&place);
    assert_eq!(only(&csv, "status"), "skipped");
    assert!(only(&csv, "reason").contains("`measure.loops`"));
    let place = Place::new(&manifest("mixed", "backward", "", "loops = [10]"));
    let csv = records(&place);
    assert_eq!(only(&csv, "status"), "skipped");
    assert!(only(&csv, "reason").contains("take the phase `both`"));
}

#[test]
fn what_a_loop_found_out_is_remembered() {
    let place = Place::new(&manifest("mixed", "forward", "", "hot_threshold = 3"));
    let (first, iterations) = decided(&place);
    let before = only(&first, "hot_outcome");
    let listed = text(&place.sweeper(&["cache", "ls"]));
    assert!(listed.contains(&format!("loop: {before}")), "{listed}");
    fs::remove_dir_all(place.path("results")).unwrap();
    let again = |more: &[&str]| {
        let loops = format!("measure.loops=[{iterations}]");
        let args = [&["run", "m.toml", "--set", &loops], more].concat();
        let output = place.sweeper(&args);
        assert_eq!(code(&output), 0, "{}", text(&output));
        place.read("records.csv")
    };
    let second = again(&[]);
    let after = only(&second, "hot_outcome");
    match before.as_str() {
        "kept" => {
            assert_eq!(after, "remembered");
            assert_eq!(number(&second, "hot_switched_at"), 1);
            assert_eq!(number(&second, "hot_replaced"), iterations);
        }
        _ => {
            assert_eq!(after, "back");
            assert_eq!(number(&second, "hot_replaced"), 0);
        }
    }
    let verified = place.sweeper(&["cache", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));

    // Without memory, a loop begins anew.
    fs::remove_dir_all(place.path("results")).unwrap();
    let third = again(&["--set", "measure.hot_memory=false"]);
    assert_ne!(only(&third, "hot_outcome"), "remembered");
    assert_ne!(only(&third, "hot_switched_at"), "1");
    assert!(number(&third, "hot_detected_at") > 1);
}

/// Loops that differ in sizes of one bucket alone share the program's kernels.
#[test]
fn loops_of_one_bucket_compile_once() {
    let of_size = |dimension: u32| {
        let grid = format!("grid = {{ batch = [8], sequence = [8], dimension = [{dimension}] }}");
        let bucket = "[plan]\nbuckets = { dimension = [64] }\n[measure]";
        manifest("gelu", "both", &grid, "hot_threshold = 3").replace("[measure]", bucket)
    };
    let place = Place::new(&of_size(33));
    decided(&place);
    let kernels = |place: &Place| {
        let listed = text(&place.sweeper(&["cache", "ls"]));
        listed.matches("shared object").count()
    };
    let before = kernels(&place);
    fs::remove_dir_all(place.path("results")).unwrap();
    fs::write(place.path("m.toml"), of_size(40)).unwrap();
    let (csv, _) = decided(&place);
    assert!(number(&csv, "hot_switched_at") > 3, "it is another loop");
    assert_eq!(only(&csv, "hot_price_ns"), "500000.0", "loading alone");
    assert_eq!(kernels(&place), before);
}

/// A C compiler that does as `words` say once the file `mark` is there.
fn compiler(place: &Place, words: &str) -> String {
    let script = format!(
        "#!/bin/sh\nif [ -e '{}' ]; then case \"$*\" in *-c*|*-shared*) {words};; esac; fi\n\
         exec cc \"$@\"\n",
        place.path("mark").display()
    );
    let path = place.path("cc-with-moods");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_compiler_that_refuses_is_asked_once() {
    // Two sizes of a bucket: the kernels of their programs are one.
    let grid = "grid = { batch = [8], sequence = [8], dimension = [33, 40] }";
    let measure = "loops = [100000]\nhot_threshold = 3\n[plan]\nbuckets = { dimension = [64] }";
    let place = Place::new(&manifest("gelu", "both", grid, measure));
    let asked = place.path("asked");
    let words = format!(
        "echo >>'{}'; echo 'no such register' >&2; exit 1",
        asked.display()
    );
    let cc = compiler(&place, &words);
    let run = |args: &[&str]| {
        let output = place.command(args).env("CC", &cc).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output));
    };
    // Kernels of single operations are compiled before.
    run(&["compile", "m.toml"]);
    fs::write(place.path("mark"), "").unwrap();
    for _ in 0..2 {
        run(&["run", "m.toml"]);
        let csv = place.read("records.csv");
        // Single operations are right.
        assert_eq!(column(&csv, "status"), ["ok"; 2]);
        assert_eq!(column(&csv, "hot_outcome"), ["failed"; 2]);
        let notes = column(&csv, "hot_note");
        let has_reason = |note: &String| note.contains("no such register");
        assert!(notes.iter().all(has_reason), "{notes:?}");
        assert_eq!(column(&csv, "hot_replaced"), ["0"; 2]);
        fs::remove_dir_all(place.path("results")).unwrap();
    }
    let listed = text(&place.sweeper(&["cache", "ls"]));
    assert_eq!(listed.matches("loop: failed").count(), 1, "{listed}");
    assert_eq!(fs::read_to_string(&asked).unwrap(), "\n");
}

#[test]
fn a_killed_compiler_costs_the_loop_nothing() {
    let measure = "loops = [30000]\nhot_threshold = 3";
    let place = Place::new(&manifest("mixed", "forward", "", measure));
    let started = place.path("started");
    let cc = compiler(&place, &format!("touch '{}'; sleep 60", started.display()));
    let output = place
        .command(&["compile", "m.toml"])
        .env("CC", &cc)
        .output();
    assert_eq!(code(&output.unwrap()), 0);
    fs::write(place.path("mark"), "").unwrap();
    let mut command = place.command(&["run", "m.toml"]);
    command.env("CC", &cc);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    let mut killed = 0;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "it hangs");
        if started.exists() {
            for process in processes(&cc, "\0compiler") {
                Command::new("kill")
                    .args(["-9", &process])
                    .status()
                    .unwrap();
                killed += 1;
            }
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success());
    assert!(killed > 0, "no process compiled");
    let csv = place.read("records.csv");
    assert_eq!(only(&csv, "status"), "ok");
    let outcome = only(&csv, "hot_outcome");
    assert!(["failed", "compiling"].contains(&&*outcome), "{outcome}");
    let listed = text(&place.sweeper(&["cache", "ls"]));
    assert!(!listed.contains("loop:"), "another try may work: {listed}");
    // The next run compiles as if nothing had been.
    fs::remove_file(place.path("mark")).unwrap();
    fs::remove_dir_all(place.path("results")).unwrap();
    assert!(number(&decided(&place).0, "hot_replaced") > 0);
    let verified = place.sweeper(&["cache", "verify"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

/// A sweep whose loops compile beside them with a compiler that does not end, once kernels of
/// single operations are compiled.
struct Stuck {
    place: Place,
    cc: String,
}

impl Stuck {
    fn new(measure: &str) -> Self {
        let measure = format!("{measure}\nhot_threshold = 3");
        let place = Place::new(&manifest("mixed", "forward", "", &measure));
        fs::create_dir(place.path("tmp")).unwrap();
        let started = place.path("started");
        let cc = compiler(&place, &format!("touch '{}'; sleep 600", started.display()));
        let stuck = Stuck { place, cc };
        let output = stuck.command(&["compile", "m.toml"]).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output));
        fs::write(stuck.place.path("mark"), "").unwrap();
        stuck
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("CC", &self.cc);
        command.env("TMPDIR", self.place.path("tmp"));
        command
    }

    /// Begins the sweep, and waits until a kernel is being compiled.
    fn begin(&self) -> Child {
        let mut command = self.command(&["run", "m.toml"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        within("compiling begins", 120, || {
            self.place.path("started").exists()
        });
        child
    }

    /// Nothing of a sweep that ended is there any more.
    fn assert_is_clean(&self) {
        within("processes end", 10, || processes(&self.cc, "").is_empty());
        let left: Vec<_> = fs::read_dir(self.place.path("tmp"))
            .unwrap()
            .flatten()
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    /// The compiler ends again: the next sweep is whole.
    fn assert_next_is_whole(&self, points: usize) {
        fs::remove_file(self.place.path("mark")).unwrap();
        let output = self.command(&["run", "m.toml"]).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output));
        let csv = self.place.read("records.csv");
        assert_eq!(column(&csv, "status"), vec!["ok"; points]);
        let mut names = column(&csv, "point");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), points, "a row is there twice");
        let verified = self.command(&["cache", "verify"]).output().unwrap();
        assert_eq!(code(&verified), 0, "{}", text(&verified));
        self.assert_is_clean();
    }
}

fn within(what: &str, seconds: u64, mut has_happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !has_happened() {
        assert!(start.elapsed() < Duration::from_secs(seconds), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn kill(process: &str) {
    signal("-9", process);
}

fn signal(signal: &str, process: &str) {
    let sent = Command::new("kill").args([signal, process]).status();
    assert!(sent.unwrap().success());
}

/// A loop that ends while its program is compiled is not waited for.
#[test]
fn a_loop_that_ends_first_waits_for_no_compiler() {
    for (more, note) in [
        ("", "compiling went on beside the next one"),
        ("\nhot_memory = false", "compiling was given up"),
    ] {
        let stuck = Stuck::new(&format!("loops = [30000]{more}"));
        let mut run = stuck.begin();
        let mut status = None;
        within("the sweep ends", 120, || {
            status = run.try_wait().unwrap();
            status.is_some()
        });
        assert!(status.unwrap().success());
        let csv = stuck.place.read("records.csv");
        assert_eq!(only(&csv, "status"), "ok", "{}", only(&csv, "reason"));
        assert_eq!(only(&csv, "hot_outcome"), "compiling");
        let said = only(&csv, "hot_note");
        assert!(said.ends_with(note), "{said}");
        stuck.assert_is_clean();
    }
}

#[test]
fn a_sweep_that_is_killed_while_it_compiles_leaves_nothing_behind() {
    let stuck = Stuck::new("loops = [20, 100000]");
    let mut run = stuck.begin();
    kill(&run.id().to_string());
    run.wait().unwrap();
    stuck.assert_is_clean();
    stuck.assert_next_is_whole(2);
}

/// Compilers that a killed worker leaves end by themselves, or by the main process where it is
/// sooner: on busy processors they do not get to it.
fn killed_worker_leaves_nothing_behind(before: impl Fn(&[String])) {
    let stuck = Stuck::new("loops = [20, 100000]");
    let mut run = stuck.begin();
    let workers = processes(&stuck.cc, "\0worker");
    // One for each loop of the block.
    let compilers = processes(&stuck.cc, "\0compiler");
    assert_eq!((workers.len(), compilers.len()), (1, 2));
    before(&compilers);
    kill(&workers[0]);
    within("the compilers end", 10, || {
        let left = processes(&stuck.cc, "\0compiler");
        compilers.iter().all(|process| !left.contains(process))
    });
    // By the main process, which is killed next.
    within("their folders go", 10, || {
        let of = |name: &str, process: &String| name.starts_with(&format!("sweeper-cc-{process}-"));
        let left = fs::read_dir(stuck.place.path("tmp")).unwrap().flatten();
        let mut left = left.map(|folder| folder.file_name().into_string().unwrap());
        left.all(|name| !compilers.iter().any(|process| of(&name, process)))
    });
    kill(&run.id().to_string());
    run.wait().unwrap();
    stuck.assert_is_clean();
    stuck.assert_next_is_whole(2);
}

#[test]
fn a_worker_that_is_killed_while_it_compiles_leaves_nothing_behind() {
    killed_worker_leaves_nothing_behind(|_| {});
}

#[test]
fn a_killed_worker_whose_compilers_are_late_leaves_nothing_behind() {
    killed_worker_leaves_nothing_behind(|compilers| {
        for compiler in compilers {
            signal("-STOP", compiler);
        }
    });
}

#[test]
fn the_report_tells_of_loops() {
    let text_of = manifest(
        "mixed",
        "forward",
        "",
        "loops = [1, 50, 2000]\nhot_threshold = 3",
    )
    .replace("[\"auto\"]", "[\"eager\", \"compiled\", \"auto\"]");
    let place = Place::new(&text_of);
    records(&place);
    let output = place.sweeper(&["report", place.run_folder().to_str().unwrap()]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let screen = text(&output);
    assert!(
        screen.contains("Loops that decide whether to compile"),
        "{screen}"
    );
    assert!(screen.contains("not a time that a loop took"), "{screen}");
    let report = place.run_folder().join("report");
    let table = fs::read_to_string(report.join("hot_paths.csv")).unwrap();
    assert_eq!(column(&table, "iterations"), ["1", "50", "2000"]);
    assert!(
        column(&table, "over_best")
            .iter()
            .all(|ratio| !ratio.is_empty())
    );
    assert!(report.join("hot_paths.pdf").exists());
}
