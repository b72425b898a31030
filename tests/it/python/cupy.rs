//! Functions of CuPy on a GPU: right ones, those that fail or cheat, types, and code that is
//! compiled once.

use std::process::Command;

use super::{copied, files, of_all_types, rows};
use crate::cuda::gpu_alone;
use crate::place::{code, text};
use crate::support::{has_package, python};

/// This machine's GPU for this test alone, if CuPy is here.
fn gpu_of_cupy() -> Option<impl Drop> {
    let gpu = gpu_alone()?;
    has_package("cupy", "cupy-cuda13x").then_some(gpu)
}

const OK: [&str; 7] = [
    "right",
    "into",
    "raw",
    "roomy",
    "reads",
    "blocking",
    "with_copy",
];

const FAILING: [(&str, &str, &str); 13] = [
    ("overwrites", "wrong", "it overwrote the input `x`"),
    ("large_block", "launch_error", "invalid argument"),
    ("fails_to_compile", "compile_error", "CompileException"),
    ("leaves_tail", "wrong", "`y` is not finite"),
    ("non_blocking", "wrong", "it works outside the timed stream"),
    ("beside", "wrong", "it works outside the timed stream"),
    ("host", "wrong", "`y` is a ndarray, and no array of cupy"),
    ("half", "wrong", "`y` is of type f16, and not f32"),
    (
        "flat_pairs",
        "wrong",
        "`y` has shape [50000], and not [100000]",
    ),
    ("greedy", "oom", "OutOfMemoryError"),
    ("raises", "error", "of_cupy.py:105: AttributeError"),
    // Its earlier result is there while the stream stands still.
    ("cached", "wrong", "`y` "),
    ("by_object", "wrong", "us on inputs that it had not seen"),
];

#[test]
fn functions_of_cupy_are_judged() {
    let Some(_gpu) = gpu_of_cupy() else { return };
    let folder = copied();
    let ran = folder.sweeper(&["run", "of_cupy.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&folder);
    for name in OK {
        let row = &rows[&format!("{name} forward")];
        assert_eq!(row["status"], "ok", "{name}: {}", row["reason"]);
        assert_eq!(row["checked"], "full", "{name}");
    }
    // One that waits for the device can't be measured behind a gate. Those of others may come too
    // late where other tests keep the host busy.
    let is_ungated = |name: &str| rows[&format!("{name} forward")]["flags"].contains("ungated");
    assert!(is_ungated("reads"));
    assert!(OK.iter().filter(|name| is_ungated(name)).count() < OK.len() / 2);
    for (name, status, reason) in FAILING {
        let row = &rows[&format!("{name} forward")];
        assert_eq!(row["status"], status, "{name}: {}", row["reason"]);
        assert!(row["reason"].contains(reason), "{name}: {}", row["reason"]);
    }
    let number = |name: &str, column: &str| -> f64 {
        rows[&format!("{name} forward")][column].parse().unwrap()
    };
    // Samples have no compilation in them, and memory of a call that is free again counts.
    assert!(number("raw", "first_call_ns") > 10.0 * number("raw", "median_ns"));
    let temporary =
        number("roomy", "peak_allocated_bytes") - number("right", "peak_allocated_bytes");
    assert!(temporary > 6e7, "{temporary}");
}

#[test]
fn arrays_of_cupy_have_the_types_of_the_manifest() {
    let Some(_gpu) = gpu_of_cupy() else { return };
    let asked = "import cupy, ml_dtypes; assert int(cupy.__version__.split('.')[0]) >= 14";
    let asked = Command::new(python()).args(["-c", asked]).output().unwrap();
    let place = of_all_types("of_cupy.py", asked.status.success());
    let ran = place.sweeper(&["run", "m.toml", "--device=cuda"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
}

#[test]
fn a_second_run_compiles_nothing_by_cupy() {
    let Some(_gpu) = gpu_of_cupy() else { return };
    let place = copied();
    let run = || {
        let which = "--set=case.affine.backends=[\"right\", \"into\", \"raw\"]";
        let ran = place.sweeper(&["run", "of_cupy.toml", "--fresh", which]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
        files(&place.path("cache/foreign"))
    };
    let before = run();
    assert!(
        before
            .iter()
            .any(|(path, _)| path.iter().any(|part| part == "cupy"))
    );
    assert_eq!(before, run());
}
