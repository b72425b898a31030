//! Audits of functions in Python: the time on inputs that a function had not seen.

use std::fs;

use super::{copied, rows};
use crate::place::{Place, code, text};
use crate::support::has_package;

/// A product of a matrix and a vector reads each element once: its time is that of memory.
const PRODUCT: &str = "\
def product(w, x):
    return w @ x
";

const OF_TORCH: &str = "\
import torch

def product(w, x):
    return w @ x

KEPT = {}

def by_version(w, x):
    key = w.data_ptr(), w._version, x.data_ptr(), x._version
    if key not in KEPT:
        KEPT[key] = w @ x
    return KEPT[key]
";

fn products(source: &str, more: &str) -> Place {
    let place = Place::new(&format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[workload.product]
params = {{ n = {{ int = [1, 100000] }} }}
inputs.w = {{ dtype = \"f32\", shape = [\"n\", \"n\"] }}
inputs.x = {{ dtype = \"f32\", shape = [\"n\"] }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
check.reference = {{ python = \"reference.py\", entry = \"product\", args = [\"w\", \"x\"] }}
check.tolerance = 1e-4
[backend.product]
workload = \"product\"
python = \"mine.py\"
entry = \"product\"
args = [\"w\", \"x\"]
returns = [\"y\"]
{more}
[case.products]
workload = \"product\"
grid = {{ n = [700, 1000, 1400] }}
[device]
use = \"cpu\"
[measure]
repeats = 25
"
    ));
    fs::write(place.path("mine.py"), source).unwrap();
    fs::write(place.path("reference.py"), PRODUCT).unwrap();
    place
}

/// New inputs lie in memory that was just written, samples read theirs again and again: that alone
/// makes these products slower by half.
#[test]
fn a_function_bound_by_memory_is_not_taken_for_one_that_keeps_results() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = products(PRODUCT, "");
    for state in ["hot", "cold"] {
        let state = format!("--set=measure.l2=\"{state}\"");
        let ran = place.sweeper(&["run", "m.toml", "--fresh", &state]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
    }
}

/// Where a process's memory lies may make known inputs faster for as long as it lives: as here in
/// the first process, and in all where `is_unlucky` is true.
fn lucky(is_unlucky: &str) -> Place {
    products(
        &format!(
            "\
import os
import time

MARK = os.path.join(os.path.dirname(__file__), \"mark\")
IS_FIRST = not os.path.exists(MARK)
IS_UNLUCKY = {is_unlucky}
open(MARK, \"w\").close()
known = []

def product(w, x):
    known.append(w.ctypes.data)
    if IS_UNLUCKY and w.ctypes.data != known[0]:
        time.sleep(0.01)
    return w @ x
"
        ),
        "",
    )
}

#[test]
fn what_is_the_luck_of_a_process_is_no_sign_of_kept_results() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let n = "--set=case.products.grid.n=700";
    for (is_unlucky, status) in [("IS_FIRST", "ok"), ("True", "wrong")] {
        let place = lucky(is_unlucky);
        let ran = place.sweeper(&["run", "m.toml", n]);
        let rows = rows(&place);
        let row = rows.values().next().unwrap();
        assert_eq!(row["status"], status, "{is_unlucky}: {}", text(&ran));
    }
}

/// It begins to keep results after many calls, in each process.
#[test]
fn results_that_are_kept_late_are_found() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = products(
        "\
calls = 0
kept = {}

def product(w, x):
    global calls
    calls += 1
    key = w.ctypes.data, x.ctypes.data
    if calls < 200 or key not in kept:
        kept[key] = w @ x
    return kept[key]
",
        "",
    );
    let (n, warmup) = (
        "--set=case.products.grid.n=1400",
        "--set=measure.warmup=300",
    );
    let ran = place.sweeper(&["run", "m.toml", n, warmup]);
    let rows = rows(&place);
    let row = rows.values().next().unwrap();
    assert_eq!(row["status"], "wrong", "{}", text(&ran));
    let reason = &row["reason"];
    assert!(
        reason.contains("us on inputs that it had not seen"),
        "{reason}"
    );
}

/// Works in each third call, or for two sets of inputs alone.
#[test]
fn one_honest_call_does_not_vouch_for_others() {
    if !has_package("numpy", "numpy") {
        return;
    }
    for (body, reason) in [
        (
            "    if key not in kept or len(calls) < 12 or len(calls) % 3 == 0:\n        kept[key] = w @ x\n",
            "us on inputs that it had not seen",
        ),
        (
            "    if key not in kept and len(kept) > 1:\n        return x * 0\n    \
             if key not in kept:\n        kept[key] = w @ x\n",
            "inputs that it had not seen",
        ),
    ] {
        let place = products(
            &format!(
                "calls, kept = [], {{}}\n\n\ndef product(w, x):\n    calls.append(1)\n    \
                 key = x[:64].tobytes()\n{body}    return kept[key]\n"
            ),
            "",
        );
        let ran = place.sweeper(&["run", "m.toml", "--set=case.products.grid.n=1400"]);
        let rows = rows(&place);
        let row = rows.values().next().unwrap();
        assert_eq!(row["status"], "wrong", "{body}: {}", text(&ran));
        assert!(row["reason"].contains(reason), "{body}: {}", row["reason"]);
    }
}

/// An allocator may find memory for known inputs, and have none left for others: as here, where it
/// gives all of it back to the system for inputs at a new address.
#[test]
fn page_faults_on_new_inputs_are_no_sign_of_kept_results() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = products(
        "\
import ctypes
import numpy

LIBC = ctypes.CDLL(None)
# From here on, blocks of this size are not mappings of their own.
numpy.ones(1 << 21)
seen = set()

def product(w, x):
    if w.ctypes.data not in seen:
        seen.add(w.ctypes.data)
        LIBC.malloc_trim(0)
    return (w + w) @ x / 2
",
        "",
    );
    let (n, state) = (
        "--set=case.products.grid.n=1000",
        "--set=measure.l2=\"hot\"",
    );
    let ran = place.sweeper(&["run", "m.toml", n, state]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
}

#[test]
fn a_function_of_jax_that_is_bound_by_memory_keeps_no_results_either() {
    if !has_package("jax", "jax") {
        return;
    }
    let place = products(PRODUCT, "arrays = \"jax\"");
    for state in ["hot", "cold"] {
        let state = format!("--set=measure.l2=\"{state}\"");
        let ran = place.sweeper(&["run", "m.toml", "--fresh", &state]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
    }
}

#[test]
fn kept_results_are_found_where_samples_are_hot() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = copied();
    let which = [
        "right",
        "sleeps",
        "cached",
        "by_content",
        "by_address",
        "by_object",
    ];
    let backends = format!("--set=case.affine.backends={which:?}");
    // Arrays of 6 MB: an allocator would hand out their memory again.
    let size = "--set=case.affine.grid.n=1500000";
    let ran = folder.sweeper(&[
        "run",
        "adversaries.toml",
        &backends,
        size,
        "--set=measure.l2=\"hot\"",
        "--set=limits.point_timeout_s=60",
    ]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&folder);
    for (place, backend) in which.into_iter().enumerate() {
        let row = &rows[&format!("{backend} forward")];
        let expected = if place < 2 { "ok" } else { "wrong" };
        let reason = &row["reason"];
        assert_eq!(row["status"], expected, "{backend}: {reason}");
        assert!(
            place < 2 || reason.contains("inputs that it had not seen"),
            "{reason}"
        );
    }
}

/// Whole numbers have none that are near them and are other inputs.
#[test]
fn kept_results_over_whole_numbers_are_found() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = Place::new(
        "schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.squares]
params = { n = { int = [1, 10000000] } }
inputs.x = { dtype = \"i32\", shape = [\"n\"], fill = { integers = [-1000, 1000] } }
outputs.y = { dtype = \"i32\", shape = [\"n\"] }
check.reference = { expr = \"x * x\" }
[backend.squares]
workload = \"squares\"
python = \"mine.py\"
entry = \"squares\"
args = [\"x\"]
returns = [\"y\"]
[backend.by_content]
like = \"squares\"
entry = \"by_content\"
[case.squares]
workload = \"squares\"
grid = { n = 400000 }
[device]
use = \"cpu\"
",
    );
    let source = "KEPT = {}

def squares(x):
    for _ in range(20):
        y = x * x
    return y

def by_content(x):
    key = x[:50].tobytes()
    if key not in KEPT:
        KEPT[key] = squares(x)
    return KEPT[key]
";
    fs::write(place.path("mine.py"), source).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    let rows = rows(&place);
    let (honest, kept) = (&rows["squares forward"], &rows["by_content forward"]);
    assert_eq!(honest["status"], "ok", "{}", text(&ran));
    assert_eq!(kept["status"], "wrong", "{}", text(&ran));
    assert!(
        kept["reason"].contains("inputs that it had not seen"),
        "{}",
        kept["reason"]
    );
}

#[test]
fn results_that_are_kept_by_the_version_of_a_tensor_are_found() {
    if !has_package("torch", "torch") {
        return;
    }
    let more = "[backend.by_version]\nlike = \"product\"\nentry = \"by_version\"\n";
    let place = products(OF_TORCH, more);
    let ran = place.sweeper(&[
        "run",
        "m.toml",
        "--set=backend.product.arrays=\"torch\"",
        "--set=case.products.grid.n=1400",
    ]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    assert_eq!(rows["product forward"]["status"], "ok", "{}", text(&ran));
    let kept = &rows["by_version forward"];
    assert_eq!(kept["status"], "wrong");
    assert!(
        kept["reason"].contains("us on inputs that it had not seen"),
        "{}",
        kept["reason"]
    );
}

/// Published inputs end at 3.5 deviations: a softmax without the maximum is right on them.
#[test]
fn functions_are_judged_on_inputs_that_show_mistakes() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let backend = |name: &str| {
        format!(
            "[backend.{name}]
workload = \"softmax\"
python = \"mine.py\"
entry = \"{name}\"
args = [\"x\"]
returns = [\"out\"]
"
        )
    };
    let place = Place::new(&format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
{}{}[case.rows]
workload = \"softmax\"
backends = [\"right\", \"overflows\"]
phases = [\"forward\"]
grid = {{ batch = 2, sequence = 40, dimension = 300 }}
[device]
use = \"cpu\"
[measure]
repeats = 5
",
        backend("right"),
        backend("overflows")
    ));
    fs::write(
        place.path("mine.py"),
        "\
import numpy as np

def right(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)

def overflows(x):
    with np.errstate(all=\"ignore\"):
        weights = np.exp(x)
        return weights / weights.sum(-1, keepdims=True)
",
    )
    .unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    assert_eq!(rows["right forward"]["status"], "ok");
    let row = &rows["overflows forward"];
    assert_eq!(row["status"], "wrong");
    let reason = &row["reason"];
    assert!(reason.ends_with("and that show mistakes"), "{reason}");
}
