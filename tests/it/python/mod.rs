//! Functions in Python beside kernels: each has the status that it deserves, and disturbs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::place::{Place, code, text};
use crate::support::has_package;

mod audit;
mod autotuned;
mod clocks;
mod cupy;
mod flashinfer;
mod graph;
mod identity;
mod inputs_from;
mod jax;
mod judge;
mod kept;
mod kernelbench;
mod killed;
mod parity;
mod referee;
mod referee_gpu;
mod reference;
mod rounding;
mod state;
mod torch;

/// A function of `f.py` that doubles, whose modules lie in the folder `packages`.
const DOUBLING: &str = "\
schema = 1
[python]
exe  = \"${SWEEPER_PYTHON:-python3}\"
path = [\"packages\"]
[workload.twice]
params    = { n = { int = [1, 1000] } }
inputs.x  = { dtype = \"f32\", shape = [\"n\"] }
outputs.y = { dtype = \"f32\", shape = [\"n\"] }
check     = { reference = { expr = \"2 * x\" } }
[backend.twice]
workload = \"twice\"
python   = \"f.py\"
entry    = \"twice\"
arrays   = \"numpy\"
args     = [\"x\"]
returns  = [\"y\"]
[case.twice]
workload = \"twice\"
grid     = { n = 10 }
[device]
use = \"cpu\"
[measure]
repeats = 3
";

/// A copy of the manifests and sources in a folder of its own, which tests may edit.
fn copied() -> Place {
    let place = Place::new("");
    for entry in fs::read_dir("tests/manifests/python").unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(
                &path,
                place.path(path.file_name().unwrap().to_str().unwrap()),
            )
            .unwrap();
        }
    }
    place
}

/// All files below a folder, with the times when they were last written. Not locks, which some
/// versions of PyTorch write each time.
fn files(folder: &Path) -> BTreeSet<(PathBuf, SystemTime)> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let held = entry.metadata().unwrap();
        if held.is_dir() {
            found.extend(files(&entry.path()));
        } else if entry.path().extension().is_none_or(|kind| kind != "lock") {
            found.insert((entry.path(), held.modified().unwrap()));
        }
    }
    found
}

const TYPES: [(&str, &str); 13] = [
    ("f64", "float64"),
    ("f32", "float32"),
    ("f16", "float16"),
    ("bf16", "bfloat16"),
    ("i64", "int64"),
    ("i32", "int32"),
    ("i16", "int16"),
    ("i8", "int8"),
    ("u64", "uint64"),
    ("u32", "uint32"),
    ("u16", "uint16"),
    ("u8", "uint8"),
    ("bool", "bool"),
];

/// A problem of each type whose right answer is its input, for the function `same` of a source,
/// which is told what a library calls the type.
fn of_all_types(source: &str, has_bf16: bool) -> Place {
    let mut text = "schema = 1\n[python]\nexe = \"${SWEEPER_PYTHON:-python3}\"\n".to_owned();
    for (dtype, name) in TYPES {
        let name = if dtype == "bf16" && !has_bf16 {
            "uint16"
        } else {
            name
        };
        text += &format!(
            "[workload.{dtype}]
params = {{ n = {{ int = [1, 1000000] }} }}
inputs.x = {{ dtype = \"{dtype}\", shape = [\"n\", 2] }}
outputs.y = {{ dtype = \"{dtype}\", shape = [\"n\", 2] }}
check = {{ reference = {{ expr = \"x\" }}, tolerance = \"exact\" }}
[backend.same_{dtype}]
workload = \"{dtype}\"
python = \"{source}\"
entry = \"same\"
args = [\"x\"]
kwargs = {{ dtype = {{ text = \"{name}\" }} }}
returns = [\"y\"]
[case.{dtype}]
workload = \"{dtype}\"
grid = {{ n = 300 }}
"
        );
    }
    let place = Place::new(&(text + "[measure]\nrepeats = 3\n"));
    let held = fs::read_to_string(Path::new("tests/manifests/python").join(source)).unwrap();
    fs::write(place.path(source), held).unwrap();
    place
}

/// The rows of the only run in a folder, by backend.
fn rows(place: &Place) -> BTreeMap<String, BTreeMap<String, String>> {
    let records = place.read("records.csv");
    let mut reader = csv::Reader::from_reader(records.as_bytes());
    let rows = reader.deserialize::<BTreeMap<String, String>>();
    rows.map(Result::unwrap)
        .map(|row| (format!("{} {}", row["backend"], row["phase"]), row))
        .collect()
}

/// Runs the manifest of a folder, whose function `entry` fails: each row has this status, and a
/// reason that begins with the key of the function.
fn assert_failing(place: &Place, entry: &str, status: &str, (key, reason): (&str, &str)) {
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_ne!(code(&ran), 0, "{entry}");
    let rows = rows(place);
    assert!(!rows.is_empty(), "{entry}: {}", text(&ran));
    for row in rows.values() {
        let (was, why) = (&row["status"], &row["reason"]);
        assert_eq!(was, status, "{entry}: {why}");
        assert!(why.starts_with(&format!("`{key}`")), "{entry}: {why}");
        assert!(why.contains(reason), "{entry}: {why}");
    }
}

#[test]
fn adversaries_are_named_and_the_sweep_goes_on() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = copied();
    let ran = folder.sweeper(&["run", "adversaries.toml"]);
    assert_eq!(ran.status.code(), Some(4), "{}", text(&ran));
    let rows = rows(&folder);
    let expected = [
        ("right", "ok", ""),
        ("into", "ok", ""),
        ("scaled{offset=1}", "ok", ""),
        ("scaled{offset=3}", "wrong", "`y` is off by"),
        ("prints", "ok", ""),
        ("forks", "ok", ""),
        ("sleeps", "ok", ""),
        ("native", "ok", ""),
        ("with_copy", "ok", ""),
        ("cached", "wrong", "for inputs that it had not seen"),
        ("by_address", "wrong", "us on inputs that it had not seen"),
        ("by_content", "wrong", "us on inputs that it had not seen"),
        ("by_object", "wrong", "us on inputs that it had not seen"),
        ("in_thread", "wrong", "`y` "),
        ("overwrites", "wrong", "it overwrote the input `x`"),
        ("leaves_tail", "wrong", "`y` is not finite"),
        ("zeros", "wrong", "`y` is off by 1"),
        ("double", "wrong", "`y` is of type f64, and not f32"),
        ("flat_pairs", "wrong", "`y` has shape [500], and not [1000]"),
        ("two", "wrong", "returns 2 values, `returns` has 1"),
        (
            "nothing",
            "wrong",
            "`y` is a NoneType, and no array of numpy",
        ),
        (
            "raises",
            "error",
            "adversaries.py:120: KeyError: 'no such thing'",
        ),
        (
            "takes_more",
            "error",
            "missing 1 required positional argument: 'y'",
        ),
        ("hangs", "timeout", "no answer within 4s"),
        ("shouts", "error", "ValueError: [2JAAAAAAAA"),
        ("exits", "error", "it ended the interpreter with code 3"),
        ("leaves", "error", "it ended the interpreter: exit(done)"),
        ("dies", "crashed", "signal 11 (segmentation fault)"),
        (
            "dies_beside_another",
            "crashed",
            "signal 11 (segmentation fault)",
        ),
        ("greedy", "oom", "MemoryError"),
        (
            "elsewhere",
            "unavailable",
            "NotImplementedError: on another kind of device",
        ),
        ("needs_more", "unavailable", "package_that_is_nowhere"),
        (
            "absent",
            "unavailable",
            "adversaries.py has no `absent`; it has: by_address",
        ),
        ("broken", "compile_error", "broken.py:1: SyntaxError"),
        (
            "module",
            "unavailable",
            "needs the package `package_that_is_nowhere`",
        ),
    ];
    for (backend, status, reason) in expected {
        let row = &rows[&format!("{backend} forward")];
        let (was, why) = (&row["status"], &row["reason"]);
        assert_eq!(was, status, "{backend}: {why}");
        assert!(why.contains(reason), "{backend}: {why}");
    }
    assert_eq!(rows.len(), expected.len());
    let said = text(&ran);
    assert!(
        said.len() < 100_000 && !said.contains(['\u{1b}', '\u{202e}']),
        "{}",
        said.len()
    );
    let slept: f64 = rows["sleeps forward"]["median_ns"].parse().unwrap();
    assert!(slept > 2e6, "{slept} ns for a sleep of 2 ms");
}

#[test]
fn without_an_interpreter_other_backends_are_measured() {
    let folder = copied();
    let mut command = folder.command(&[
        "run",
        "adversaries.toml",
        "--set=case.affine.backends=[\"right\", \"native\"]",
    ]);
    let ran = command
        .env("SWEEPER_PYTHON", "/nowhere/python")
        .output()
        .unwrap();
    assert_eq!(ran.status.code(), Some(4), "{}", text(&ran));
    let rows = rows(&folder);
    assert_eq!(rows["native forward"]["status"], "ok");
    assert_eq!(rows["right forward"]["status"], "unavailable");
    let reason = &rows["right forward"]["reason"];
    assert!(
        reason.contains("`/nowhere/python` can't be started"),
        "{reason}"
    );
}
