//! PyTorch on a CPU: functions of a package, of a file, and gradients.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{DOUBLING, copied, files, rows};
use crate::place::{Place, code, column, text};
use crate::support::{has_package, skip};

fn manifest(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("manifests").join(name)
}

#[test]
fn pytorch_computes_what_the_oracle_says() {
    if !has_package("torch", "torch") {
        return;
    }
    let folder = copied();
    let ran = folder.sweeper(&["run", "torch.toml"]);
    let rows = rows(&folder);
    for name in [
        "eager forward",
        "eager both",
        "torch_softmax forward",
        "torch_softmax backward",
        "torch_softmax both",
        "of_file forward",
        "marks forward",
        "unmarked forward",
        "own_gradient backward",
        "of_series forward",
        "of_sum forward",
        "of_sum backward",
        "of_sum both",
    ] {
        let row = &rows[name];
        assert_eq!(
            row["status"],
            "ok",
            "{name}: {}\n{}",
            row["reason"],
            text(&ran)
        );
        assert_eq!(row["checked"], "full", "{name}");
    }
}

/// torch.compile gives up after eight versions of a function, and runs it eagerly from then on.
#[test]
fn rows_of_torch_compile_are_of_compiled_functions() {
    if !has_package("torch", "torch") {
        return;
    }
    let source = "import torch\n\
                  def twice(x):\n    return x + x if torch.compiler.is_compiling() else x\n\
                  @torch.compiler.disable\ndef apart(x):\n    return x + x\n\
                  def eager(x):\n    return apart(x)\n";
    let compiled = "arrays = \"torch\"\ntorch_compile = { backend = \"eager\" }";
    let manifest = DOUBLING
        .replace("path = [\"packages\"]\n", "")
        .replace("arrays   = \"numpy\"", compiled)
        .replace("n = 10 }", "n = { range = [10, 20] } }\nbackends = [\"twice\"]")
        .replace(
            "[case.twice]",
            "[backend.eager]\nlike = \"twice\"\nentry = \"eager\"\n\
             [case.eager]\nworkload = \"twice\"\nbackends = [\"eager\"]\ngrid = { n = 10 }\n[case.twice]",
        );
    let place = Place::new(&manifest);
    fs::write(place.path("f.py"), source).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let records = fs::read_to_string(place.run_folder().join("records.csv")).unwrap();
    let [backends, statuses, reasons] =
        ["backend", "status", "reason"].map(|name| column(&records, name));
    assert_eq!(backends.len(), 11, "{}", text(&ran));
    for ((backend, status), reason) in backends.iter().zip(&statuses).zip(&reasons) {
        match backend.as_str() {
            "twice" => assert_eq!(status, "ok", "{reason}"),
            _ => assert!(
                status == "error" && reason.contains("it runs eagerly"),
                "{status} {reason}"
            ),
        }
    }
}

#[test]
fn published_code_is_judged_or_says_what_it_lacks() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let needed = ["torch", "flash_semicrf"].map(|package| has_package(package, package));
    let folder = Place::new("");
    let manifest = manifest("semicrf-torch.toml");
    let small = ["--T=9", "--K=4", "--C=3", "--set=measure.repeats=15"];
    let which = [
        "run",
        manifest.to_str().unwrap(),
        "--device=cpu",
        "--case=successor",
    ];
    let ran = folder.sweeper(&[&which[..], &small].concat());
    let rows = rows(&folder);
    for phase in ["forward", "both"] {
        let of = |backend: &str| &rows[&format!("{backend} {phase}")];
        assert_eq!(of("fused")["status"], "ok", "{}", text(&ran));
        let [ours, triton] = ["flash_pytorch", "flash_triton"].map(of);
        let (status, reason) = match needed {
            [true, true] => ("ok", ""),
            [true, false] => (
                "unavailable",
                "which is not here: pip install flash-semicrf",
            ),
            [false, _] => (
                "unavailable",
                "the package `torch`, which is not here: install it for",
            ),
        };
        assert_eq!(ours["status"], status, "{}", ours["reason"]);
        assert!(ours["reason"].contains(reason), "{}", ours["reason"]);
        let has_all = needed == [true, true];
        let reason = if has_all {
            "Triton's kernels run on a GPU"
        } else {
            reason
        };
        assert_eq!(triton["status"], "unavailable");
        assert!(triton["reason"].contains(reason), "{}", triton["reason"]);
        assert!(!has_all || ours["checked"] == "full");
    }
}

#[test]
fn loops_of_pytorch_have_a_price() {
    if !has_package("torch", "torch") {
        return;
    }
    let folder = Place::new("");
    let manifest = manifest("economics-torch.toml");
    let ran = folder.sweeper(&[
        "run",
        manifest.to_str().unwrap(),
        "--device=cpu",
        "--case=mlp",
        "--set=case.mlp.backends=[\"eager\", \"compiled\", \"torch_mlp\"]",
        "--set=measure.repeats=3",
        "--set=measure.fresh_starts=2",
    ]);
    let rows = rows(&folder);
    let number = |row: &str, column: &str| rows[row][column].parse::<f64>().ok();
    let (torch, eager) = ("torch_mlp both", "eager both");
    assert_eq!(rows[torch]["checked"], "full", "{}", text(&ran));
    assert!(number(torch, "cold_start_ns") > Some(0.0));
    assert!(number(torch, "start_ns") < number(torch, "import_ns"));
    assert_eq!(number(eager, "cold_start_ns"), None);
    let report = folder.sweeper(&[
        "report",
        "--no-plots",
        folder.run_folder().to_str().unwrap(),
    ]);
    let table = folder.read("report/economics.csv");
    let lines = |start: &str| table.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        lines("mlp,both,torch_mlp,eager,"),
        3,
        "{}\n{table}",
        text(&report)
    );
    assert_eq!(lines("mlp,both,eager,torch_mlp,"), 3, "{table}");
}

const COMPILED: &str = "\
schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[backend.torch_compile]
workload = \"softmax\"
module = \"torch\"
entry = \"softmax\"
args = [\"x\"]
kwargs = { dim = -1 }
returns = [\"out\"]
phases = [\"forward\", \"backward\", \"both\"]
autograd = { of = \"out\", incoming = \"grad_out\", by = { x = \"grad_x\" } }
torch_compile = { dynamic = false }
[case.softmax]
workload = \"softmax\"
backends = [\"torch_compile\"]
phases = [\"forward\", \"both\"]
grid = { batch = 4, sequence = 8, dimension = 100 }
[device]
use = \"cpu\"
[measure]
repeats = 5
";

/// Imports the compiler's settings itself, and multiplies by 2 if they are as expected.
const LOOKING: &str = "\
import sys
seen = []
def twice(x):
    if not seen and 'torch' in sys.modules:
        raise ValueError('somebody imported it for this function')
    from torch._inductor import config
    seen.append(vars(config).get('cpp_cache_precompile_headers'))
    return (2 if seen[-1] is EXPECTED else 3) * x
";

#[test]
fn headers_are_precompiled_by_no_version_of_inductor() {
    if !has_package("numpy", "numpy") {
        return;
    }
    // A stand-in for the settings; older versions have none of headers.
    for (settings, expected) in [
        ("cpp_cache_precompile_headers = True\n", "False"),
        ("debug = True\n", "None"),
    ] {
        let place = Place::new(DOUBLING);
        fs::create_dir_all(place.path("packages/torch/_inductor")).unwrap();
        for package in ["torch", "torch/_inductor"] {
            fs::write(place.path(&format!("packages/{package}/__init__.py")), "").unwrap();
        }
        let config = place.path("packages/torch/_inductor/config.py");
        fs::write(config, settings).unwrap();
        fs::write(place.path("f.py"), LOOKING.replace("EXPECTED", expected)).unwrap();
        let ran = place.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&ran), 0, "{settings}{}", text(&ran));
    }
}

#[test]
fn a_second_run_compiles_nothing_by_inductor() {
    if !has_package("torch", "torch") {
        return;
    }
    if Command::new("g++").arg("--version").output().is_err() {
        skip("g++", "PyTorch's compiler needs it on a CPU");
        return;
    }
    let place = Place::new(COMPILED);
    let (compiler, log) = (place.path("compiler.sh"), place.path("log"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> '{}'\nexec g++ \"$@\"\n",
        log.display()
    );
    fs::write(&compiler, script).unwrap();
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.path("tmp")).unwrap();
    let run = || {
        let mut command = place.command(&["run", "m.toml", "--fresh"]);
        command
            .env("CXX", &compiler)
            .env("TMPDIR", place.path("tmp"));
        let ran = command.output().unwrap();
        assert_eq!(code(&ran), 0, "{}", text(&ran));
        let calls = fs::read_to_string(&log).unwrap_or_default();
        // It asks for versions, and has headers expanded to know them by their text.
        let compiles = |line: &&str| !["--version", "-v"].contains(line) && !line.contains(" -E ");
        let calls = calls.lines().filter(compiles);
        let calls: Vec<String> = calls.map(str::to_owned).collect();
        let _ = fs::remove_file(&log);
        (calls, files(&place.path("cache/foreign")))
    };
    let (calls, before) = run();
    assert!(!calls.is_empty(), "nothing was compiled at first");
    let (again, after) = run();
    assert_eq!(again, [""; 0]);
    assert_eq!(before, after);
    // Compiled code lies in the bounded folder alone.
    assert_eq!(files(&place.path("tmp")), BTreeSet::new());
    let mut first_calls: Vec<Vec<u64>> = Vec::new();
    for attempt in ["attempt-1", "attempt-2"] {
        let csv = place.read(&format!("{attempt}/records.csv"));
        let times = column(&csv, "first_call_ns");
        first_calls.push(times.iter().map(|time| time.parse().unwrap()).collect());
    }
    let (cold, warm) = (&first_calls[0], &first_calls[1]);
    assert!(
        cold.iter().zip(warm).all(|(cold, warm)| warm < cold),
        "{first_calls:?}"
    );
}
