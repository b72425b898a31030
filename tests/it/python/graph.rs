//! Functions whose launches are one CUDA graph.

use std::fs;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::has_package;

const MANIFEST: &str = r#"
schema = 1
[python]
exe = "${SWEEPER_PYTHON:-python3}"
[backend.torch]
workload = "softmax"
python   = "f.py"
entry    = "softmax"
args     = ["x"]
returns  = ["out"]
phases   = ["forward", "backward", "both"]
autograd = { of = "out", incoming = "grad_out", by = { x = "grad_x" } }
[backend.writes]
workload = "softmax"
python   = "f.py"
entry    = "writes"
args     = ["x", "out"]
[backend.keeps]
workload = "softmax"
python   = "f.py"
entry    = "keeps"
args     = ["x"]
returns  = ["out"]
[backend.waits]
like  = "keeps"
entry = "waits"
[case.softmax]
workload = "softmax"
backends = ["compiled", "torch", "writes", "keeps", "waits"]
phases   = ["forward", "backward", "both"]
grid     = { batch = 4, sequence = 64, dimension = 1000 }
[measure]
repeats = 5
mode    = "graph"
"#;

const FUNCTIONS: &str = "\
import torch

def softmax(x):
    return torch.softmax(x, -1)

def writes(x, out):
    torch.softmax(x, -1, out=out)

known = []

def keeps(x):
    if not known:
        known.append(torch.softmax(x, -1))
    return known[0]

def waits(x):
    if x.sum().item() > 1e30:
        return x
    return torch.softmax(x, -1)
";

fn place() -> Place {
    let place = Place::new(MANIFEST);
    fs::write(place.path("f.py"), FUNCTIONS).unwrap();
    place
}

#[test]
fn launches_of_a_function_become_a_graph() {
    let Some(_gpu) = crate::cuda::gpu_alone() else {
        return;
    };
    if !has_package("torch", "torch") {
        return;
    }
    let place = place();
    let ran = place.sweeper(&["run", "m.toml", "--device=cuda"]);
    let rows = rows(&place);
    for name in [
        "compiled forward",
        "torch forward",
        "torch both",
        "writes forward",
    ] {
        let row = &rows[name];
        assert_eq!(
            row["status"],
            "ok",
            "{name}: {}\n{}",
            row["reason"],
            text(&ran)
        );
        assert_eq!(
            (&*row["mode"], &*row["checked"]),
            ("graph", "full"),
            "{name}"
        );
    }
    for (name, status, reason) in [
        ("torch backward", "unavailable", "a backward pass alone"),
        ("keeps forward", "wrong", ""),
        (
            "waits forward",
            "error",
            "can't be recorded as a CUDA graph",
        ),
    ] {
        let row = &rows[name];
        assert_eq!(row["status"], status, "{name}: {}", row["reason"]);
        assert!(row["reason"].contains(reason), "{name}: {}", row["reason"]);
    }
    assert_eq!(code(&ran), 4, "{}", text(&ran));
}

/// As kernels, of which no graph is made there either.
#[test]
fn on_a_cpu_a_function_is_called() {
    if !has_package("torch", "torch") {
        return;
    }
    let place = place();
    place.sweeper(&["run", "m.toml", "--device=cpu", "--case=softmax"]);
    let rows = rows(&place);
    for name in [
        "compiled forward",
        "torch both",
        "torch backward",
        "waits forward",
    ] {
        let row = &rows[name];
        assert_eq!(row["status"], "ok", "{name}: {}", row["reason"]);
        assert_eq!(row["mode"], "launch", "{name}");
    }
}
