//! Inputs that a function of the user makes: for all backends, digested, made anew for the audit.

use std::collections::BTreeSet;
use std::fs;

use super::{assert_failing, rows};
use crate::place::{Place, code, column, text};
use crate::support::has_package;

/// Rows of different lengths, one behind another: no fill makes such places of beginnings.
const SOURCE: &str = "\
import os, time
import numpy as np
from lengths import MOST

def generate_input(n, total, seed):
    if COUNTED: open(COUNTED, 'a').write(f'{n} {seed}\\n')
    random = np.random.default_rng(seed)
    starts = np.sort(random.integers(0, total + 1, n + 1)).astype(np.int32)
    starts[0], starts[-1] = 0, total
    values = random.uniform(-MOST, MOST, total).astype(np.float32)
    return {'values': values, 'starts': starts}

COUNTED = os.environ.get('COUNTED')

def in_order(n, total, seed):
    made = generate_input(n, total, seed)
    return made['starts'], made['values']

def by_chance(n, total, seed):
    return in_order(n, total, time.time_ns())

def raises(n, total, seed):
    raise ValueError('no such rows')

def slow(n, total, seed):
    time.sleep(60)

def short(n, total, seed):
    starts, values = in_order(n, total, seed)
    return starts[1:], values

def double(n, total, seed):
    starts, values = in_order(n, total, seed)
    return starts, values.astype(np.float64)

def alone(n, total, seed):
    return {'starts': in_order(n, total, seed)[0]}

def unknown(n, total, seed):
    return dict(generate_input(n, total, seed), more=1)

def listed(n, total, seed):
    starts, values = in_order(n, total, seed)
    return starts, values.tolist()

def one(n, total, seed):
    return in_order(n, total, seed)[0]

def fewer(n, seed):
    return None

def later(n, total, seed):
    place = os.path.join(os.path.dirname(__file__), 'made')
    if os.path.exists(place):
        raise ValueError('made before')
    open(place, 'w').close()
    return in_order(n, total, seed)
";

const BACKENDS: &str = "\
import time
import numpy as np

def sums(starts, values):
    ends = np.concatenate([[0.0], np.cumsum(values.astype(np.float64))])
    return (ends[starts[1:]] - ends[starts[:-1]]).astype(values.dtype)

def into(starts, values, y):
    y[...] = sums(starts, values)

KEPT = {}

def kept(starts, values):
    key = starts.tobytes() + values.tobytes()
    if key not in KEPT:
        time.sleep(0.02)
        KEPT[key] = sums(starts, values)
    return KEPT[key]

def reference(starts, values):
    ends = np.concatenate([[0.0], np.cumsum(values)])
    return ends[starts[1:]] - ends[starts[:-1]]
";

const NATIVE: &str = "\
void sums(float *y, const int *starts, const float *values, int n)
{
    for (int row = 0; row < n; row++) {
        double sum = 0;
        for (int at = starts[row]; at < starts[row + 1]; at++)
            sum += values[at];
        y[row] = (float)sum;
    }
}
";

fn manifest(entry: &str) -> String {
    format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[limits]
oracle_s = 3
[workload.rows]
params = {{ n = {{ int = [1, 1000000] }}, total = {{ int = [1, 1000000], default = 4000 }} }}
inputs.starts = {{ dtype = \"i32\", shape = [\"n + 1\"] }}
inputs.values = {{ dtype = \"f32\", shape = [\"total\"] }}
inputs_from = \"inputs.py:{entry}\"
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
check = {{ reference = {{ python = \"mine.py\", entry = \"reference\" }}, tolerance = 1e-5 }}
[backend.sums]
workload = \"rows\"
python = \"mine.py\"
entry = \"sums\"
args = [\"starts\", \"values\"]
returns = [\"y\"]
[backend.into]
workload = \"rows\"
python = \"mine.py\"
entry = \"into\"
args = [\"starts\", \"values\", \"y\"]
[backend.kept]
like = \"sums\"
entry = \"kept\"
[backend.native]
workload = \"rows\"
c = \"native.c\"
entry = \"sums\"
args = [\"y\", \"starts\", \"values\", {{ i32 = \"n\" }}]
[case.rows]
workload = \"rows\"
backends = [\"sums\", \"into\", \"native\"]
grid = {{ n = [100, 300] }}
[device]
use = \"cpu\"
[measure]
repeats = 25
"
    )
}

fn place(entry: &str) -> Place {
    let place = Place::new(&manifest(entry));
    fs::write(place.path("inputs.py"), SOURCE).unwrap();
    fs::write(place.path("lengths.py"), "MOST = 1.0\n").unwrap();
    fs::write(place.path("mine.py"), BACKENDS).unwrap();
    fs::write(place.path("native.c"), NATIVE).unwrap();
    place
}

/// Values of a column of the only run.
fn columns(place: &Place, name: &str) -> Vec<String> {
    column(&place.read("records.csv"), name)
}

#[test]
fn all_backends_get_the_inputs_that_a_function_makes_once_for_a_problem() {
    if !has_package("numpy", "numpy") {
        return;
    }
    for entry in ["generate_input", "in_order"] {
        let place = place(entry);
        let mut command = place.command(&["run", "m.toml"]);
        let ran = command.env("COUNTED", place.path("counted"));
        let ran = ran.output().unwrap();
        assert_eq!(code(&ran), 0, "{}", text(&ran));
        assert_eq!(columns(&place, "checked"), ["full"; 6]);
        // One digest for a problem, whatever the backend.
        let digests = columns(&place, "input_digest");
        let sizes = columns(&place, "axis_n");
        let of_size: BTreeSet<(&String, &String)> = sizes.iter().zip(&digests).collect();
        assert_eq!(of_size.len(), 2, "{of_size:?}");
        assert!(
            digests.iter().all(|digest| digest.len() == 64),
            "{digests:?}"
        );
        // The samples have a seed of their own, and so have the audits.
        let counted = fs::read_to_string(place.path("counted")).unwrap();
        for size in ["100 ", "300 "] {
            let calls: Vec<&str> = counted
                .lines()
                .filter(|line| line.starts_with(size))
                .collect();
            let seeds: BTreeSet<&&str> = calls.iter().collect();
            // All backends are audited on inputs of the first other seed, and on further ones as
            // long as they are slower there.
            assert!(seeds.len() >= 2 && calls.len() >= 2, "{counted}");
            assert_eq!(
                calls.iter().filter(|call| *call == &calls[0]).count(),
                1,
                "{counted}"
            );
        }
    }
}

#[test]
fn results_that_are_kept_by_contents_are_found_by_other_seeds() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place("generate_input");
    let ran = place.sweeper(&[
        "run",
        "m.toml",
        "--set=case.rows.backends=[\"sums\", \"kept\"]",
    ]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    let (sums, kept) = (&rows["sums forward"], &rows["kept forward"]);
    assert_eq!(sums["status"], "ok", "{}", sums["reason"]);
    assert_eq!(kept["status"], "wrong");
    let reason = &kept["reason"];
    assert!(
        reason.contains("us on inputs that it had not seen"),
        "{reason}"
    );
}

#[test]
fn a_function_that_makes_no_inputs_of_the_problem_is_named_with_its_key() {
    if !has_package("numpy", "numpy") {
        return;
    }
    for (entry, status, reason) in [
        ("raises", "error", "inputs.py:23: ValueError: no such rows"),
        ("slow", "timeout", "(`limits.oracle_s = 3`)"),
        (
            "short",
            "error",
            "`starts` has shape [100], and the manifest says [101]",
        ),
        (
            "double",
            "error",
            "`values` is of type f64, and the manifest says f32",
        ),
        ("alone", "error", "it returns no `values`"),
        (
            "unknown",
            "error",
            "it returns `more`, which is not an input: starts values",
        ),
        ("listed", "error", "`values` is a list, and no array"),
        (
            "one",
            "error",
            "it returns 1 values, and there are 2 inputs: starts values",
        ),
        ("fewer", "error", "unexpected keyword argument 'total'"),
        ("absent", "unavailable", "inputs.py has no `absent`"),
    ] {
        let place = place(entry);
        let one_size = manifest(entry).replace("[100, 300]", "[100]");
        fs::write(place.path("m.toml"), one_size).unwrap();
        let reason = ("workload.rows.inputs_from", reason);
        assert_failing(&place, entry, status, reason);
    }
}

#[test]
fn a_function_that_fails_for_another_seed_fails_the_backends_that_are_audited() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place("later");
    let ran = place.sweeper(&["run", "m.toml", "--set=case.rows.grid.n=100"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    for backend in ["sums forward", "into forward", "native forward"] {
        let row = &rows[backend];
        assert_eq!(row["status"], "error", "{backend}");
        let reason = &row["reason"];
        assert!(
            reason.starts_with("`workload.rows.inputs_from`: inputs.py:"),
            "{reason}"
        );
        assert!(reason.ends_with("ValueError: made before"), "{reason}");
    }
}

#[test]
fn types_that_numpy_lacks_are_rounded_and_a_case_says_its_type() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let text_of = "\
import numpy as np
def make(n, dtype, seed):
    assert dtype == 'bf16' and isinstance(seed, int)
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)
def twice(x):
    return (2 * (x.astype(np.uint32) << 16).view(np.float32)).view(np.uint32).__rshift__(16).astype(np.uint16)
";
    let place = Place::new(
        "schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.twice]
params.n = { int = [1, 1000000] }
inputs.x = { shape = [\"n\"] }
inputs_from = { python = \"make.py\", entry = \"make\" }
outputs.y = { shape = [\"n\"] }
check = { reference = { expr = \"2 * x\" }, tolerance = \"exact\" }
[backend.twice]
workload = \"twice\"
python = \"make.py\"
entry = \"twice\"
args = [\"x\"]
returns = [\"y\"]
[case.twice]
workload = \"twice\"
dtype = \"bf16\"
grid.n = 1000
[device]
use = \"cpu\"
[measure]
repeats = 25
",
    );
    fs::write(place.path("make.py"), text_of).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    assert_eq!(columns(&place, "checked"), ["full"]);
}

#[test]
fn tensors_of_pytorch_are_inputs_as_well() {
    if !has_package("torch", "torch") {
        return;
    }
    let source = "\
import torch
def make(n, seed):
    random = torch.Generator().manual_seed(seed)
    kept = torch.rand(n, generator=random) < 0.5
    return torch.randn(n, generator=random).to(torch.bfloat16), kept
def masked(x, kept):
    return torch.where(kept, x, 0)
";
    let place = Place::new(
        "schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.masked]
params.n = { int = [1, 1000000] }
inputs.x = { dtype = \"bf16\", shape = [\"n\"] }
inputs.kept = { dtype = \"bool\", shape = [\"n\"] }
inputs_from = \"make.py:make\"
outputs.y = { dtype = \"bf16\", shape = [\"n\"] }
check = { reference = { expr = \"x * kept\" }, tolerance = \"exact\" }
[backend.masked]
workload = \"masked\"
python = \"make.py\"
entry = \"masked\"
args = [\"x\", \"kept\"]
returns = [\"y\"]
[case.masked]
workload = \"masked\"
grid.n = 1000
[device]
use = \"cpu\"
[measure]
repeats = 25
",
    );
    fs::write(place.path("make.py"), source).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    assert_eq!(columns(&place, "checked"), ["full"]);
}

#[test]
fn the_source_is_part_of_the_problem_and_other_inputs_are_told_by_a_rerun() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = place("generate_input");
    let only = [
        "run",
        "m.toml",
        "--set=case.rows.grid.n=100",
        "--set=case.rows.backends=[\"sums\"]",
    ];
    let ran = folder.sweeper(&only);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let run = folder.run_folder();
    let kept = folder.path("first");
    let (problem, digest) = (
        columns(&folder, "problem"),
        columns(&folder, "input_digest"),
    );
    fs::rename(&run, &kept).unwrap();
    fs::write(folder.path("lengths.py"), "MOST = 2.0\n").unwrap();
    let ran = folder.sweeper(&only);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    assert_ne!(columns(&folder, "problem"), problem);
    assert_ne!(columns(&folder, "input_digest"), digest);
    fs::remove_dir_all(folder.path("results")).unwrap();
    for name in ["m.toml", "inputs.py", "lengths.py", "mine.py"] {
        fs::remove_file(folder.path(name)).unwrap();
    }
    let again = folder.sweeper(&["rerun", kept.to_str().unwrap()]);
    let said = text(&again);
    assert!(said.contains("1 bit-identical, 0 differ"), "{said}");
    let copy = kept.join("sources/rows.inputs_from/lengths.py");
    fs::write(&copy, "MOST = 3.0\n").unwrap();
    let refused = folder.sweeper(&["rerun", kept.to_str().unwrap()]);
    let said = text(&refused);
    assert!(said.contains("`lengths.py` is not what was"), "{said}");

    let folder = place("by_chance");
    let ran = folder.sweeper(&only);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let run = folder.run_folder();
    // Nothing is measured.
    let refused = folder.sweeper(&["rerun", run.to_str().unwrap()]);
    let said = text(&refused);
    assert_eq!(code(&refused), 7, "{said}");
    let words = "input_digest of rows n=100 total=4000 differs: here ";
    assert!(said.contains(words) && said.contains("--anyway"), "{said}");
    assert!(!run.join("attempt-1").exists());
    let again = folder.sweeper(&["rerun", run.to_str().unwrap(), "--anyway"]);
    let said = text(&again);
    assert_eq!(code(&again), 5, "{said}");
    assert!(said.contains("input_digest differs: here "), "{said}");
}

#[test]
fn a_comparison_names_other_inputs_first_and_judges_none_of_their_points() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = place("by_chance");
    for side in ["a", "b"] {
        let ran = folder.sweeper(&["run", "m.toml", "--output-dir", side]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
    }
    let compared = folder.sweeper(&["compare", "a", "b", "--fail-on", "digest"]);
    let said = text(&compared);
    assert_eq!(code(&compared), 5, "{said}");
    let (first, listed) = (
        "changed\n  input_digest of 6 points",
        "nor outputs are compared: 6 points",
    );
    assert!(said.contains(first) && said.contains(listed), "{said}");
    assert!(said.contains("\n6 not compared, of other inputs"), "{said}");
    // A function that was edited is named, too.
    let edited = SOURCE.replace("uniform(-MOST", "uniform(0");
    fs::write(folder.path("inputs.py"), edited).unwrap();
    let ran = folder.sweeper(&["run", "m.toml", "--output-dir", "c"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let said = text(&folder.sweeper(&["compare", "a", "c"]));
    assert!(said.contains(first), "{said}");
    assert!(
        said.contains("  source inputs.py of rows.inputs_from  "),
        "{said}"
    );
}
