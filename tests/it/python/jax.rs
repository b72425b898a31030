//! Functions of JAX, on a CPU and on a GPU: right ones, those that fail or cheat, types, gradients,
//! and code that is compiled once.

use std::fs;
use std::process::Command;

use super::{copied, files, of_all_types, rows};
use crate::cuda::gpu_alone;
use crate::place::{Place, code, text};
use crate::support::{has_package, python, skip};

fn has_jax() -> bool {
    has_package("jax", "jax")
}

/// This machine's GPU for this test alone, if JAX has it.
fn gpu_of_jax() -> Option<impl Drop> {
    let gpu = gpu_alone()?;
    if !has_jax() {
        return None;
    }
    let asked = Command::new(python())
        .args(["-c", "import jax; jax.devices('gpu')"])
        .output()
        .unwrap();
    if !asked.status.success() {
        skip("jax-cuda", "JAX has no plug-in for the GPU");
    }
    asked.status.success().then_some(gpu)
}

const OK: [&str; 7] = [
    "jitted",
    "plain",
    "makes",
    "waits",
    "dispatches",
    "sleeps",
    "with_copy",
];

const FAILING: [(&str, &str, &str); 11] = [
    ("donates", "wrong", "it overwrote the input `x`"),
    ("host", "wrong", "`y` is a ndarray, and no array of jax"),
    ("half", "wrong", "`y` is of type f16, and not f32"),
    ("flat_pairs", "wrong", "`y` has shape [500], and not [1000]"),
    ("off", "wrong", "`y` is off by"),
    (
        "branches",
        "error",
        "of_jax.py:71: TracerBoolConversionError",
    ),
    // On a GPU the call has returned by then: no line is known.
    ("greedy", "oom", "JaxRuntimeError: RESOURCE_"),
    ("elsewhere", "unavailable", "of_jax.py:79: RuntimeError"),
    ("cached", "wrong", "for inputs that it had not seen"),
    ("by_object", "wrong", "us on inputs that it had not seen"),
    (
        "into",
        "error",
        "arrays of jax can't be written: let it return `y`",
    ),
];

/// Runs the manifest of all functions: each has the status that it deserves, and the time of all
/// that it has started.
fn functions_are_judged(device: &str) {
    let folder = copied();
    let ran = folder.sweeper(&["run", "of_jax.toml", &format!("--device={device}")]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&folder);
    let is_gpu = device == "cuda";
    let others = ["softmax", "series"].map(|name| format!("{name} forward"));
    let gradients = ["softmax_backward backward", "softmax_both both"].map(str::to_owned);
    let named = OK.map(|name| format!("{name} forward"));
    for name in named.iter().chain(&others).chain(&gradients) {
        let row = &rows[name];
        assert_eq!(row["status"], "ok", "{name}: {}", row["reason"]);
        assert_eq!(row["checked"], "full", "{name}");
        assert_eq!(row["flags"].contains("ungated"), is_gpu, "{name}");
    }
    for name in ["of_numpy forward", "native forward"] {
        let expected = if is_gpu { "unavailable" } else { "ok" };
        assert_eq!(rows[name]["status"], expected, "{name}");
    }
    for (name, status, reason) in FAILING {
        let row = &rows[&format!("{name} forward")];
        assert_eq!(row["status"], status, "{name}: {}", row["reason"]);
        assert!(row["reason"].contains(reason), "{name}: {}", row["reason"]);
    }
    let number = |name: &str, column: &str| -> f64 { rows[name][column].parse().unwrap() };
    let median = |name: &str| number(name, "median_ns");
    assert!(median("sleeps forward") > 2e6);
    // What a function leaves to be waited for belongs to its time, in whatever it returns.
    let ratio = median("dispatches forward") / median("waits forward");
    assert!((0.5..2.0).contains(&ratio), "{ratio}");
    // A sample has no compilation in it.
    assert!(number("jitted forward", "first_call_ns") > 3.0 * median("jitted forward"));
}

#[test]
fn functions_of_jax_are_judged_on_a_cpu() {
    if has_jax() {
        functions_are_judged("cpu");
    }
}

#[test]
fn functions_of_jax_are_judged_on_a_gpu() {
    if let Some(_gpu) = gpu_of_jax() {
        functions_are_judged("cuda");
    }
}

#[test]
fn arrays_of_jax_have_the_types_of_the_manifest() {
    if !has_jax() {
        return;
    }
    let place = of_all_types("of_jax.py", true);
    let ran = place.sweeper(&["run", "m.toml", "--device=cpu"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    if let Some(_gpu) = gpu_of_jax() {
        let ran = place.sweeper(&["run", "m.toml", "--device=cuda"]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
    }
}

/// Types of 64 bits are those of a program of its own: off, unless its text switches them.
#[test]
fn a_file_of_jax_may_switch_types_of_64_bits_on() {
    if !has_jax() {
        return;
    }
    let folder = copied();
    let held = fs::read_to_string(folder.path("of_jax.py")).unwrap();
    let switch = "\njax.config.update(\"jax_enable_x64\", True)\n";
    fs::write(folder.path("wide.py"), held + switch).unwrap();
    let held = fs::read_to_string(folder.path("of_jax.toml")).unwrap();
    let wide = "[backend.wide]\nlike = \"makes\"\npython = \"wide.py\"\n";
    fs::write(folder.path("m.toml"), held + wide).unwrap();
    let which = "--set=case.affine.backends=[\"wide\", \"makes\"]";
    let ran = folder.sweeper(&["run", "m.toml", "--device=cpu", "--case=affine", which]);
    let rows = rows(&folder);
    let [wide, makes] = ["wide", "makes"].map(|name| &rows[&format!("{name} forward")]);
    assert_eq!(makes["status"], "ok", "{}", text(&ran));
    let reason = &wide["reason"];
    assert!(
        reason.contains("`y` is of type f64, and not f32"),
        "{reason}"
    );
}

#[test]
fn a_second_run_compiles_nothing_by_jax() {
    if !has_jax() {
        return;
    }
    let place = copied();
    let run = || {
        let which = "--set=case.affine.backends=[\"jitted\", \"plain\", \"dispatches\"]";
        let ran = place.sweeper(&["run", "of_jax.toml", "--device=cpu", "--fresh", which]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
        files(&place.path("cache/foreign"))
    };
    let before = run();
    assert!(before.len() > 5, "{before:?}");
    assert_eq!(before, run());
}

#[test]
fn without_its_device_jax_is_unavailable() {
    let Some(_gpu) = gpu_of_jax() else { return };
    let place: Place = copied();
    let mut command =
        place.command(&["run", "of_jax.toml", "--device=cuda", "--case=matmul_chain"]);
    let ran = command.env("JAX_PLATFORMS", "cpu").output().unwrap();
    let row = &rows(&place)["series forward"];
    assert_eq!(row["status"], "unavailable", "{}", text(&ran));
    assert!(row["reason"].contains("JAX has no such device"), "{row:?}");
}
