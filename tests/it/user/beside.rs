//! Kernels that write beside their outputs and their scratch memory, with right outputs: found by
//! the bands around them.

use std::collections::BTreeMap;
use std::fs;

use sweeper_program::inputs::InputKey;
use sweeper_program::{CanonicalShape, Phase};

use super::{problem, rows};
use crate::conformance::cuda;
use crate::cuda::gpu;
use crate::place::{Place, code, text};
use crate::shim::{self, Mode};
use crate::support::{self, nvrtc};

/// One text for both languages; in CUDA one thread does it all.
const SOURCE: &str = "\
#ifdef __cplusplus
#define KERNEL extern \"C\" __global__
#else
#define KERNEL
#endif
#define ARGS float *y, signed char *z, float *x, double *partial, int n
#define RIGHT \\
    for (int i = 0; i < n; i++) { \\
        partial[i] = x[i]; y[i] = 2 * (float)partial[i]; z[i] = n % 7; \\
    }
KERNEL void right(ARGS) { RIGHT }
KERNEL void one_past(ARGS) { RIGHT y[n] = 0; }
KERNEL void one_before(ARGS) { RIGHT y[-1] = y[0]; }
KERNEL void byte_past(ARGS) { RIGHT z[n] = 1; }
KERNEL void far_past(ARGS) { RIGHT y[n + 200] = 1; }
KERNEL void through(ARGS) { RIGHT for (int i = 0; i < 1100; i++) y[n + i] = 1; }
KERNEL void scratch(ARGS) { RIGHT partial[n + 1] = 1; partial[-1] = 1; }
KERNEL void copy(ARGS) { RIGHT x[n] = 1; }
KERNEL void shifted(ARGS) { RIGHT for (int i = 0; i < n; i++) y[i + 1] = 2 * x[i]; }
KERNEL void spoils(ARGS) { RIGHT y[0] += 1; x[0] = 1; }
";

/// What is said of each kernel; of `through` for sizes without padding behind `y`.
const EXPECTED: [(&str, &str, &str); 10] = [
    // Its inputs are those that all get, whatever the one before wrote there.
    ("spoils", "wrong", "; it overwrote the input `x`"),
    ("right", "ok", ""),
    ("one_past", "wrong", "it wrote 4 bytes past the end of `y`"),
    (
        "one_before",
        "wrong",
        "it wrote 4 bytes before the beginning of `y`",
    ),
    ("byte_past", "wrong", "it wrote 1 byte past the end of `z`"),
    (
        "far_past",
        "wrong",
        "it wrote 804 bytes past the end of `y`",
    ),
    (
        "through",
        "wrong",
        "it wrote 4096 bytes or more past the end of `y`, and 4096 bytes or more before the \
         beginning of `z`",
    ),
    (
        "scratch",
        "wrong",
        "it wrote 8 bytes before the beginning of `partial`, and 16 bytes past the end of `partial`",
    ),
    ("copy", "wrong", "it wrote 4 bytes past the end of `x.copy`"),
    ("shifted", "wrong", "; it wrote 4 bytes past the end of `y`"),
];

/// A manifest with all kernels, for the device that runs `language`.
fn manifest(language: &str) -> String {
    let (device, mode, geometry) = match language {
        "c" => ("cpu", "", ""),
        _ => (
            "cuda",
            "mode = [\"launch\", \"graph\"]\n",
            "grid = \"1\"\nblock = \"1\"\n",
        ),
    };
    let mut manifest = format!(
        "schema = 1\n[workload.double]\nparams = {{ n = {{ int = [1, 1000000] }} }}\n\
         inputs.x = {{ dtype = \"f32\", shape = [\"n\"] }}\n\
         outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}\n\
         outputs.z = {{ dtype = \"i8\", shape = [\"n\"] }}\n\
         check = {{ reference = {{ expr = {{ y = \"2 * x\", z = \"n % 7\" }} }} }}\n\
         [case.double]\nworkload = \"double\"\ngrid = {{ n = [1000, 1024] }}\n\
         [device]\nuse = \"{device}\"\n[measure]\nrepeats = 3\n{mode}"
    );
    for (name, ..) in EXPECTED {
        let mutates = match name {
            "copy" => "mutates = [\"x\"]\n",
            _ => "",
        };
        manifest += &format!(
            "[backend.{name}]\nworkload = \"double\"\n{language} = \"kernels\"\n\
             entry = \"{name}\"\nargs = [\"y\", \"z\", \"x\", \"partial\", {{ i32 = \"n\" }}]\n\
             scratch = {{ partial = {{ dtype = \"f64\", shape = [\"n\"] }} }}\n{geometry}{mutates}"
        );
    }
    manifest
}

/// A folder with the manifest and the kernels.
fn place(language: &str) -> Place {
    let place = Place::new(&manifest(language));
    fs::write(place.path("kernels"), SOURCE).unwrap();
    place
}

/// Runs all kernels and compares what is said of them, `times` for each size.
fn judge(language: &str, times: usize) -> Vec<BTreeMap<String, String>> {
    let folder = place(language);
    let ran = folder.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&folder);
    for (backend, status, reason) in EXPECTED {
        let own: Vec<_> = rows
            .iter()
            .filter(|row| row["backend"] == backend)
            .collect();
        assert_eq!(own.len(), 2 * times, "{}", text(&ran));
        for row in own {
            let (was, why) = (&*row["status"], &*row["reason"]);
            assert_eq!(was, status, "{backend}: {why}");
            if backend != "through" || row["axis_n"] == "1024" {
                let is_it = match reason.strip_prefix("; ") {
                    // Wrong outputs are told first.
                    Some(_) => why.starts_with("`y` is off by") && why.contains(reason),
                    None => why == reason,
                };
                assert!(is_it, "{backend}: {why}");
            }
            assert!(!row["flags"].contains("memory_mismatch"), "{row:?}");
        }
    }
    rows
}

#[test]
fn kernels_in_c_that_write_beside_their_outputs_are_wrong() {
    let rows = judge("c", 1);
    let right = |row: &&BTreeMap<String, String>| row["backend"] == "right";
    let allocated: BTreeMap<&str, &str> = rows
        .iter()
        .filter(right)
        .map(|row| (&*row["axis_n"], &*row["peak_allocated_bytes"]))
        .collect();
    // `x`, then `y`, `z` and `partial`, which begin at multiples of 64 bytes; no bands.
    let of_1000 = (4000 + 4032 + 1024 + 8000).to_string();
    let of_1024 = (1024 * (4 + 4 + 1 + 8)).to_string();
    assert_eq!(
        allocated,
        BTreeMap::from([("1000", &*of_1000), ("1024", &*of_1024)])
    );
}

#[test]
fn kernels_in_cuda_that_write_beside_their_outputs_are_wrong_on_a_gpu() {
    if let Some(_gpu) = gpu() {
        judge("cuda", 2);
    }
}

#[test]
fn the_same_text_is_right_in_cuda() {
    let place = place("cuda");
    if nvrtc().is_some() {
        let compiled = place.sweeper(&["compile", "m.toml", "--arch", "sm_90"]);
        assert_eq!(code(&compiled), 0, "{}", text(&compiled));
    }
    if !shim::is_here() {
        return;
    }
    let manifest = support::resolve(&place.path("m.toml"), &Default::default());
    let problem = problem(&manifest.unwrap(), &[("n", 1000)]);
    let inputs = problem.generate(&InputKey([3; 32]));
    let expected = problem.oracle(&inputs, Phase::Forward);
    let canonical = CanonicalShape::default();
    let program = problem.program("right", Phase::Forward, &canonical, &cuda());
    let specs = problem.outputs(Phase::Forward);
    let outputs = shim::run(&program.unwrap(), &inputs, &specs, Mode::Sanitized);
    let check = problem.check(&inputs, &outputs, &expected, Phase::Forward);
    assert!(check.passed(), "{:?}", check.tensors);
}
