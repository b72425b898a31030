//! Functions that change the process in which others are measured, too.

use std::collections::BTreeMap;
use std::fs;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::has_package;

const BAD: &str = "\
import ctypes
import json
import resource
import signal
import threading
import time
import numpy as np


def g(x):
    return np.float32(2) * x + np.float32(1)


def rounding(x):
    y = g(x)
    ctypes.CDLL(\"libm.so.6\").fesetround(0x800)
    return y


def clock(x):
    if not hasattr(time, \"real\"):
        time.real = time.perf_counter_ns
    time.perf_counter_ns = lambda: time.real() // 10
    return g(x)


def patched(x):
    np.frombuffer = None
    json.loads = json.dumps = lambda *_: \"nothing\"
    return g(x)


def nofile(x):
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    return g(x)


def alarm(x):
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return g(x)


def hidden(x):
    global calls
    calls += 1
    if calls == 3:
        raise OSError(\"its own fault\")
    return g(x)


calls = 0


def busy(x):
    if threading.active_count() < 3:
        threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()
    return g(x)
";

const GOOD: &str = "\
import numpy as np


def f(x):
    return np.float32(2) * x + np.float32(1)


def victim(x):
    import sys
    bad = [held for name, held in sys.modules.items() if name.startswith(\"sweeper_user\")]
    if any(getattr(held, \"calls\", 0) for held in bad):
        raise OSError(\"others ran here\")
    return f(x)
";

fn place(bad: &[&str], more: &str) -> Place {
    let mut manifest = "schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.scale]
params    = { n = { int = [1, 100000000] } }
inputs.x  = { dtype = \"f32\", shape = [\"n\"] }
outputs.y = { dtype = \"f32\", shape = [\"n\"] }
check     = { reference = { expr = \"2.0 * x + 1.0\" } }
[case.scale]
workload = \"scale\"
grid = { n = 10000 }
[device]
use = \"cpu\"
[measure]
repeats = 5
"
    .to_owned();
    for (file, entry) in bad
        .iter()
        .map(|entry| ("bad.py", *entry))
        .chain([("good.py", "f"), ("good.py", "victim")])
    {
        manifest += &format!(
            "[backend.{entry}]\nworkload = \"scale\"\npython = \"{file}\"\nentry = \"{entry}\"\n\
             arrays = \"numpy\"\nargs = [\"x\"]\nreturns = [\"y\"]\n"
        );
    }
    let place = Place::new(&(manifest + more));
    fs::write(place.path("bad.py"), BAD).unwrap();
    fs::write(place.path("good.py"), GOOD).unwrap();
    place
}

#[test]
fn what_a_function_changes_is_put_back_and_costs_no_neighbour() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let expected = [
        ("rounding", "floating-point modes"),
        ("clock", "functions of modules"),
        ("patched", "functions of modules"),
        ("nofile", "resource limits"),
        ("alarm", "timers"),
        // It fails in the interpreter of all, and once more in its own.
        ("hidden", ""),
    ];
    let place = place(&expected.map(|(entry, _)| entry), "");
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    for backend in ["f", "victim"] {
        let row = &rows[&format!("{backend} forward")];
        let (status, reason) = (&row["status"], &row["reason"]);
        assert_eq!(status, "ok", "{backend}: {reason}");
        assert_eq!(row["process_changes"], "", "{backend}");
    }
    for (backend, changes) in expected {
        let row = &rows[&format!("{backend} forward")];
        if row["status"] == "ok" {
            assert_eq!(row["process_changes"], changes, "{backend}");
            assert!(row["flags"].contains("changes_process"), "{backend}");
        }
    }
    for backend in ["rounding", "clock", "patched"] {
        assert_eq!(
            rows[&format!("{backend} forward")]["status"],
            "ok",
            "{backend}"
        );
    }
    let hidden = &rows["hidden forward"];
    assert!(hidden["reason"].contains("its own fault"), "{hidden:?}");
}

/// Threads of a function and of kernels, one of which is wrong besides, that never end. The good
/// kernel comes after them, and refuses to be right where they are.
#[test]
fn what_is_left_at_work_is_kept_from_others() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let kernels = ["busy_c", "wrong_c", "good_c"].map(|entry| {
        format!(
            "[backend.{entry}]\nworkload = \"scale\"\nc = \"k.c\"\nentry = \"{entry}\"\n\
             args = [\"y\", \"x\", {{ i32 = \"n\" }}]\n"
        )
    });
    let place = place(&["busy"], &kernels.concat());
    fs::write(
        place.path("k.c"),
        "#include <pthread.h>
#include <stdlib.h>
static void *spin(void *held) { for (volatile int i = 0;; i++) {} return held; }
static void scale(float *restrict y, const float *restrict x, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = 2.0f * x[i] + 1.0f;
}
void good_c(float *restrict y, const float *restrict x, int n)
{
    scale(y, x, getenv(\"A_THREAD_SPINS\") ? 0 : n);
}
void busy_c(float *restrict y, const float *restrict x, int n)
{
    static int started;
    pthread_t thread;
    if (!started++)
        pthread_create(&thread, 0, spin, 0);
    setenv(\"A_THREAD_SPINS\", \"1\", 1);
    scale(y, x, n);
}
void wrong_c(float *restrict y, const float *restrict x, int n)
{
    busy_c(y, x, n - 1);
}
",
    )
    .unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    for (name, row) in rows(&place) {
        let is_wrong = name.starts_with("wrong");
        let (status, reason) = (&row["status"], &row["reason"]);
        assert_eq!(
            status,
            if is_wrong { "wrong" } else { "ok" },
            "{name}: {reason}"
        );
        let is_busy = name.starts_with("busy");
        let changes = &row["process_changes"];
        let expected = if is_busy {
            "threads or processes left at work"
        } else {
            ""
        };
        assert_eq!(changes, expected, "{name}");
    }
}

/// Settings of PyTorch that a file makes when it is imported hold for its own function.
#[test]
fn settings_of_pytorch_are_those_of_one_function() {
    if !has_package("torch", "torch") {
        return;
    }
    let place = place(
        &[],
        "[workload.w]
params = { n = { int = [1, 100000] } }
inputs.x = { dtype = \"f32\", shape = [\"n\"], fill = 1 }
outputs.y = { dtype = \"f32\", shape = [\"n\"] }
check = { reference = { expr = \"x\" } }
[backend.sets]
workload = \"w\"
python = \"sets.py\"
entry = \"one\"
args = [\"x\"]
returns = [\"y\"]
[backend.sees]
like = \"sets\"
python = \"sees.py\"
[case.w]
workload = \"w\"
grid = { n = 64 }
",
    );
    let seen =
        "float(torch.get_num_threads() == {} and torch.get_float32_matmul_precision() == {})";
    let seen = |threads: &str, precision: &str| {
        let seen = seen.replacen("{}", threads, 1).replacen("{}", precision, 1);
        format!("def one(x):\n    return torch.full_like(x, {seen})\n")
    };
    let sets = "import torch\n\ntorch.set_num_threads(2)\n\
                torch.set_float32_matmul_precision(\"medium\")\n\n\n";
    fs::write(
        place.path("sets.py"),
        sets.to_owned() + &seen("2", "\"medium\""),
    )
    .unwrap();
    let sees = seen("1", "\"highest\"");
    fs::write(place.path("sees.py"), format!("import torch\n\n\n{sees}")).unwrap();
    let ran = place.sweeper(&["run", "m.toml", "--case", "w"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let rows = rows(&place);
    let changes = &rows["sets forward"]["process_changes"];
    assert_eq!(changes, "precision of products; threads of PyTorch");
    assert_eq!(rows["sees forward"]["process_changes"], "");
}

/// A sweep of many problems would fill the memory that references share with functions.
#[test]
fn an_interpreter_keeps_no_memory_of_the_problems_before() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place(&[], "");
    let sizes: Vec<String> = (0..12).map(|i| (3_000_000 + i).to_string()).collect();
    let grid = format!("grid.n={}", sizes.join(","));
    let args = [
        "run",
        "m.toml",
        "--backends",
        "f",
        "--repeats",
        "1",
        "--set",
        &format!("case.scale.{grid}"),
    ];
    let ran = place.sweeper(&args);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let records = place.read("records.csv");
    let mut reader = csv::Reader::from_reader(records.as_bytes());
    let rows = reader.deserialize::<BTreeMap<String, String>>();
    let peaks: Vec<u64> = rows
        .map(|row| row.unwrap()["peak_reserved_bytes"].parse().unwrap())
        .collect();
    assert_eq!(peaks.len(), 12);
    // Each problem has 24 MB of inputs and outputs.
    let (least, most) = (peaks.iter().min().unwrap(), peaks.iter().max().unwrap());
    assert!(most - least < 100_000_000, "{peaks:?}");
}
