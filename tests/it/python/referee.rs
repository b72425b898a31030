//! Functions that nobody trusts: each attack, and its row.

use std::fs;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::{has_package, has_sandbox};
use serde_json::json;

/// A backend of each function, beside the honest one.
fn place(functions: &[&str], more: &str) -> Place {
    let backends: String = functions
        .iter()
        .map(|name| format!("[backend.{name}]\nlike = \"honest\"\nentry = \"{name}\"\n"))
        .collect();
    let place = Place::new(&format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[workload.scale]
params    = {{ n = {{ int = [1, 100000000] }} }}
inputs.x  = {{ dtype = \"f32\", shape = [\"n\"] }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
check     = {{ reference = {{ expr = \"2.0 * x + 1.0\" }} }}
[backend.honest]
workload = \"scale\"
python   = \"hacks.py\"
entry    = \"honest\"
arrays   = \"numpy\"
args     = [\"x\"]
returns  = [\"y\"]
trust    = false
{backends}
[case.scale]
workload = \"scale\"
grid     = {{ n = 20000 }}
[device]
use = \"cpu\"
[measure]
repeats = 9
[limits]
point_timeout_s = 8
{more}"
    ));
    let hacks = include_str!("hacks.py").replace("@FOLDER@", place.path(".").to_str().unwrap());
    fs::write(place.path("hacks.py"), hacks).unwrap();
    place
}

/// Whether this machine has what the referee needs.
fn can_referee() -> bool {
    has_sandbox() && has_package("numpy", "numpy")
}

/// Functions, with the status of their rows and a part of the reason.
type Expected = (&'static str, &'static str, &'static str);

fn assert_rows(expected: &[Expected]) {
    let names: Vec<&str> = expected.iter().map(|(name, ..)| *name).collect();
    let place = place(&names, "");
    let ran = place.sweeper(&["run", "m.toml"]);
    assert!([0, 4].contains(&code(&ran)), "{}", text(&ran));
    let rows = rows(&place);
    let honest = &rows["honest forward"];
    assert_eq!(honest["status"], "ok", "{}", honest["reason"]);
    assert!(honest["flags"].contains("refereed"), "{}", honest["flags"]);
    // Not the median: other tests have the processors for most of some functions' samples.
    let least_ns = |row: &std::collections::BTreeMap<String, String>| -> f64 {
        row["min_ns"].parse().unwrap()
    };
    for (name, status, reason) in expected {
        let row = &rows[&format!("{name} forward")];
        assert_eq!(row["status"], *status, "{name}: {}", row["reason"]);
        assert!(row["reason"].contains(reason), "{name}: {}", row["reason"]);
        // Who saves work saves nearly all of it.
        if *status == "ok" {
            let ratio = least_ns(row) / least_ns(honest);
            assert!(ratio > 0.1, "{name} takes {ratio} of the honest time");
        }
    }
}

#[test]
fn work_that_is_left_out_is_wrong_or_gains_nothing() {
    if !can_referee() {
        return;
    }
    assert_rows(&[
        ("by_object", "wrong", "`y` is off by"),
        ("by_address", "wrong", "`y` is off by"),
        ("by_content", "ok", ""),
        ("by_a_few_elements", "ok", ""),
        ("every_second", "wrong", "`y` is off by"),
        ("garbage_after_a_while", "wrong", "`y` is"),
        (
            "works_where_it_is_judged",
            "wrong",
            "of a call that was timed",
        ),
        ("leaves_out_one_of_eight", "wrong", "`y` is"),
        ("in_half_precision", "wrong", "`y` is off by"),
        ("by_frames", "wrong", "`y` is off by"),
    ]);
}

/// Calls before the first sample are many, and none of them vouches for those that are timed.
#[test]
fn a_warm_up_vouches_for_no_sample() {
    if !can_referee() {
        return;
    }
    let place = place(&["tires_late"], "");
    let ran = place.sweeper(&["run", "m.toml", "--set=measure.warmup=200"]);
    let rows = rows(&place);
    let row = &rows["tires_late forward"];
    assert_eq!(row["status"], "wrong", "{}", text(&ran));
    let reason = &row["reason"];
    assert!(reason.contains("of a call that was timed"), "{reason}");
    assert_eq!(rows["honest forward"]["status"], "ok", "{}", text(&ran));
}

#[test]
fn work_outside_the_timed_span_is_wrong_or_gains_nothing() {
    if !can_referee() {
        return;
    }
    assert_rows(&[
        ("in_a_thread", "wrong", "`y` "),
        ("lazy", "wrong", "`y` "),
        ("rings_early", "wrong", "`y` "),
        ("looks_ahead", "ok", ""),
        ("reads_before_the_gate", "ok", ""),
        ("patched_clocks", "ok", ""),
        ("forged_frames", "error", "without results"),
        ("elsewhere", "wrong", "not where it says"),
        ("leaves_a_child", "ok", ""),
        ("hangs", "timeout", "within"),
        ("exits", "error", "ended the interpreter"),
    ]);
}

#[test]
fn what_is_not_theirs_is_out_of_reach() {
    if !can_referee() {
        return;
    }
    assert_rows(&[
        ("more_processors", "error", "Operation not permitted"),
        ("steals_answers", "error", "Permission denied"),
        ("reads_its_parent", "error", "Permission denied"),
        ("reads_its_parents_memory", "error", "Permission denied"),
        ("kills_its_parent", "error", "Operation not permitted"),
        ("opens_a_socket", "error", "Operation not permitted"),
        ("leaves_its_session", "error", "Operation not permitted"),
        ("writes_elsewhere", "error", "Permission denied"),
        ("fills_the_disk", "error", "File too large"),
        ("takes_all_memory", "oom", ""),
        ("cuts_the_page", "ok", ""),
        ("prints_a_lot", "ok", ""),
    ]);
}

/// Candidates as lines, and as files of a folder.
#[test]
fn each_candidate_has_a_verdict_with_a_reason() {
    if !can_referee() {
        return;
    }
    let place = place(&[], "");
    let right =
        "import numpy as np\ndef honest(x):\n    return np.float32(2) * x + np.float32(1)\n";
    let wrong = "import numpy as np\ndef honest(x):\n    return 2 * x\n";
    let broken = "def honest(x:\n";
    let lines = [
        ("right", right),
        ("wrong", wrong),
        ("broken", broken),
        ("../up", right),
    ];
    let lines = lines.map(|(id, code)| json!({ "id": id, "code": code }).to_string());
    let told = place.told(
        &["referee", "m.toml"],
        &format!("{}\nnonsense\n", lines.join("\n")),
    );
    let verdicts: Vec<serde_json::Value> = String::from_utf8_lossy(&told.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let said: Vec<(&str, &str)> = verdicts
        .iter()
        .map(|it| (it["id"].as_str().unwrap(), it["verdict"].as_str().unwrap()))
        .collect();
    let expected = [
        ("right", "ok"),
        ("wrong", "wrong"),
        ("broken", "compile_error"),
        ("../up", "error"),
        ("", "error"),
    ];
    assert_eq!(said, expected, "{verdicts:?}");
    // On a machine with much else to do some samples are too short for a ratio.
    match verdicts[0]["speedup"].as_array() {
        Some(ends) => {
            let ends: Vec<f64> = ends.iter().map(|end| end.as_f64().unwrap()).collect();
            assert!(
                ends.len() == 3 && ends[0] > 0.0 && ends.is_sorted(),
                "{ends:?}"
            );
        }
        None => assert!(
            verdicts[0]["reason"]
                .as_str()
                .unwrap()
                .contains("too short")
        ),
    }
    assert!(
        verdicts[1]["reason"]
            .as_str()
            .unwrap()
            .contains("`y` is off by")
    );
    assert!(
        verdicts[2]["reason"]
            .as_str()
            .unwrap()
            .contains("candidate.py:1")
    );
    fs::create_dir(place.path("tried")).unwrap();
    fs::write(place.path("tried/right.py"), right).unwrap();
    fs::write(place.path("tried/wrong.py"), wrong).unwrap();
    let ran = place.sweeper(&["referee", "m.toml", "--candidates", "tried", "--reuse"]);
    let said = text(&ran);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines[0].starts_with("right") && lines[0].contains("x as fast as honest"),
        "{said}"
    );
    assert!(
        lines[1].starts_with("wrong") && lines[1].contains("`y` is off by"),
        "{said}"
    );
}

#[test]
fn folders_of_a_benchmark_are_problems() {
    if !can_referee() || !has_package("torch", "torch") {
        return;
    }
    let place = Place::new("");
    for (path, text) in [
        (
            "level1/19_ReLU.py",
            "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def __init__(self):\n        \
             super().__init__()\n    def forward(self, x):\n        return torch.relu(x)\nbatch_size = 16\n\
             def get_inputs():\n    return [torch.randn(batch_size, 64)]\ndef get_init_inputs():\n    return []\n",
        ),
        (
            "tried/19_ReLU/right.py",
            "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        \
             return x.clamp(min=0)\n",
        ),
        (
            "tried/20_None/lost.py",
            "import torch\nclass ModelNew(torch.nn.Module):\n    pass\n",
        ),
    ] {
        let path = place.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let args = [
        "level1",
        "--candidates",
        "tried",
        "--reuse",
        "--device",
        "cpu",
    ];
    let ran = place.sweeper(&[&["referee"], &args[..]].concat());
    let said = text(&ran);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(
        lines[0].starts_with("right") && lines[0].contains(" ok "),
        "{said}"
    );
    assert!(lines[1].contains("no case `20_None`"), "{said}");
    let ran = place.sweeper(&["report", "results/level1.verdicts.jsonl"]);
    let said = text(&ran);
    assert!(
        said.contains("19_ReLU") && said.contains("no case `20_None`"),
        "{said}"
    );
}

/// Compilers read the text of a function from its file, and start others, in the sandbox, too.
#[test]
fn a_function_that_compiles_itself_is_refereed() {
    if !can_referee() || !has_package("torch", "torch") {
        return;
    }
    let place = place(&[], "");
    let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
    let manifest = manifest.replace("\"numpy\"", "\"torch\"");
    fs::write(place.path("m.toml"), manifest).unwrap();
    let function = "import os, subprocess, torch\n\
        # As builds start compilers: in a group of their own.\n\
        subprocess.run([\"true\"], process_group=0, check=True)\n\
        assert os.getpgid(0) == os.getpgrp()\n\
        @torch.compile\n\
        def honest(x):\n    return 2.0 * x + 1.0\n";
    fs::write(place.path("hacks.py"), function).unwrap();
    let limit = "--set=limits.point_timeout_s=120";
    let ran = place.sweeper(&["run", "m.toml", limit]);
    let row = &rows(&place)["honest forward"];
    assert_eq!(row["status"], "ok", "{}: {}", row["reason"], text(&ran));
}

#[test]
fn who_can_not_be_refereed_is_told_why() {
    if !can_referee() {
        return;
    }
    let place = place(&[], "");
    let cold = "--set=measure.l2=\"cold\"";
    let ran = place.sweeper(&["run", "m.toml", cold]);
    assert!(text(&ran).contains("caches"), "{}", text(&ran));
    let row = &rows(&place)["honest forward"];
    assert_eq!(row["status"], "unavailable", "{}", row["reason"]);
    let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
    let more = "[workload.none]\n[backend.k]\nworkload = \"none\"\ncommand = [\"true\"]\n\
                trust = false\n";
    fs::write(place.path("m.toml"), format!("{manifest}{more}")).unwrap();
    let ran = place.sweeper(&["check", "m.toml"]);
    let said = text(&ran);
    assert!(said.contains("can't have `trust = false`"), "{said}");
    assert!(said.contains("without a `check` nothing says"), "{said}");
}
