//! What autotuners chose stands in the row, and a comparison says where it was another choice.

use std::collections::BTreeSet;
use std::fs;
use std::process::Output;

use super::rows;
use crate::place::{Place, code, column, text};
use crate::support::has_package;

const MANIFEST: &str = r#"
schema = 1
[python]
exe  = "${SWEEPER_PYTHON:-python3}"
path = ["packages"]
[workload.twice]
params    = { n = { int = [1, 1000000] } }
inputs.x  = { dtype = "f32", shape = ["n"] }
outputs.y = { dtype = "f32", shape = ["n"] }
check     = { reference = { expr = "2 * x" } }
[backend.tuned]
workload = "twice"
python   = "f.py"
entry    = "tuned"
arrays   = "numpy"
args     = ["x"]
returns  = ["y"]
[backend.again]
like  = "tuned"
entry = "again"
[backend.later]
like  = "tuned"
entry = "later"
[backend.compiled]
like  = "tuned"
entry = "compiled"
[backend.plain]
like  = "tuned"
entry = "plain"
[case.twice]
workload = "twice"
backends = ["tuned", "again", "later", "compiled", "plain"]
grid     = { n = 1000 }
[device]
use = "cpu"
[measure]
repeats = 5
"#;

/// A stand-in for Triton's module, with the fields that the real one has. It finds the fastest
/// configuration in a variable, and keeps choices in files as the real one does.
const TRITON: &str = r#"
import os

class Config:
    def __init__(self, kwargs, num_warps=4, num_stages=3, num_ctas=1, maxnreg=None):
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages
        self.num_ctas, self.maxnreg = num_ctas, maxnreg

class Autotuner:
    def __init__(self, fn, configs, fastest):
        self.fn = self.base_fn = fn
        self.configs, self.fastest = configs, fastest
        self.cache = {}

    def prune_configs(self, kwargs):
        return self.configs

    def run(self, *args, key):
        config = self.configs[0]
        if len(self.configs) > 1:
            if key not in self.cache:
                self.cache[key] = self.choose(self.prune_configs({}), key)
            config = self.cache[key]
        self.best_config = config
        self.fn(*args)

    def choose(self, configs, key):
        assert os.environ["TRITON_CACHE_AUTOTUNING"] == "1"
        folder = os.environ["TRITON_CACHE_DIR"]
        path = os.path.join(folder, f"{self.fn.__name__}-{key}")
        if not os.path.exists(path):
            os.makedirs(folder, exist_ok=True)
            with open(path, "w") as file:
                file.write(str(self.fastest(key)))
        with open(path) as file:
            block = int(file.read())
        return next(config for config in configs if config.kwargs["BLOCK"] == block)
"#;

/// A stand-in for the module of PyTorch's compiler, with the fields that the real one has.
const INDUCTOR: &str = r#"
class Launcher:
    def __init__(self, config):
        self.config = config

class CachingAutotuner:
    def __init__(self, name, configs):
        self.inductor_meta = {"kernel_name": name}
        self.compile_results = configs
        self.launchers = [Launcher(config) for config in configs]

    def autotune_to_one_config(self):
        self.launchers = self.launchers[1:]

    def run(self):
        if len(self.launchers) > 1:
            self.autotune_to_one_config()
"#;

const FUNCTIONS: &str = r#"
import os
import numpy as np
from triton.runtime.autotuner import Autotuner, Config

# How fast the machine is today, which is not part of an identity as a variable that is named in the text would be.
FASTEST = "_".join(["STAND", "IN", "FASTEST"])
CONFIGS = [Config({"SPLIT": True, "BLOCK": 256}), Config({"SPLIT": False, "BLOCK": 1024}, 8, num_ctas=2)]

def twice_kernel(x, y):
    np.multiply(x, 2, out=y)

def later_kernel(x, y):
    np.multiply(x, 2, out=y)

kernel = Autotuner(twice_kernel, CONFIGS, lambda key: int(os.environ.get(FASTEST, "256")))
by_key = Autotuner(later_kernel, CONFIGS, lambda key: 256 if key == "first" else 1024)
single = Autotuner(twice_kernel, CONFIGS[:1], None)

def tuned(x):
    y = np.empty_like(x)
    kernel.run(x, y, key=len(x))
    return y

called = []

def again(x):
    """Launches a kernel for which `tuned` has chosen. Its samples launch it by Triton's own method."""
    called.append(Autotuner.run.__code__.co_filename.endswith("autotuner.py"))
    if called != [False] and not called[-1]:
        raise ValueError(f"launched by another method in one of its samples: {called}")
    return tuned(x)

keys = ["first"]

def later(x):
    """Its second call has another key."""
    y = np.empty_like(x)
    by_key.run(x, y, key=keys.pop() if keys else "second")
    return y

def compiled(x):
    """Its first call imports what launches."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    if not hasattr(compiled, "kernels"):
        compiled.kernels = [CachingAutotuner("triton_poi_fused_mul_0", CONFIGS),
                            CachingAutotuner("triton_poi_fused_mul_1", CONFIGS[:1])]
    for held in compiled.kernels:
        held.run()
    return x * 2

def plain(x):
    y = np.empty_like(x)
    single.run(x, y, key=0)
    return y
"#;

const SMALL: &str = "BLOCK=256 SPLIT=True num_warps=4 num_stages=3";
const LARGE: &str = "BLOCK=1024 SPLIT=False num_warps=8 num_stages=3 num_ctas=2";

fn place() -> Place {
    let place = Place::new(MANIFEST);
    fs::write(place.path("f.py"), FUNCTIONS).unwrap();
    for (module, source) in [
        ("triton/runtime/autotuner", TRITON),
        ("torch/_inductor/runtime/triton_heuristics", INDUCTOR),
    ] {
        let path = place.path(&format!("packages/{module}.py"));
        let mut folder = path.parent().unwrap().to_owned();
        fs::create_dir_all(&folder).unwrap();
        fs::write(path, source).unwrap();
        while !folder.ends_with("packages") {
            fs::write(folder.join("__init__.py"), "").unwrap();
            folder.pop();
        }
    }
    place
}

/// The program's end, where this configuration is the fastest.
fn ran(place: &Place, fastest: &str, args: &[&str]) -> Output {
    let mut command = place.command(args);
    let ran = command.env("STAND_IN_FASTEST", fastest).output().unwrap();
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    ran
}

#[test]
fn a_row_has_the_choices_for_the_kernels_that_its_function_launched() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place();
    let said = text(&ran(&place, "1024", &["run", "m.toml"]));
    let rows = rows(&place);
    let first_and_second = format!("later_kernel: {LARGE}; later_kernel: {SMALL}");
    for (backend, expected) in [
        ("tuned", format!("twice_kernel: {LARGE}")),
        // Chosen by another function of the interpreter.
        ("again", format!("twice_kernel: {LARGE}")),
        // Chosen once before its samples, and once in them.
        ("later", first_and_second),
        // Of two kernels, one has a choice.
        ("compiled", format!("triton_poi_fused_mul_0: {LARGE}")),
        ("plain", String::new()),
    ] {
        let row = &rows[&format!("{backend} forward")];
        assert_eq!(row["status"], "ok", "{backend}: {}\n{said}", row["reason"]);
        assert_eq!(row["autotuned"], expected, "{backend}");
    }
}

#[test]
fn a_choice_that_a_cache_kept_is_noted_and_another_one_is_told() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place();
    let only = "--set=case.twice.backends=[\"tuned\", \"plain\"]";
    ran(&place, "256", &["run", "m.toml", only]);
    let run = place.run_folder();
    let rerun = |fastest: &str| text(&ran(&place, fastest, &["rerun", run.to_str().unwrap()]));
    let choices = |file: &str| column(&place.read(file), "autotuned");
    let (small, large) = (
        format!("twice_kernel: {SMALL}"),
        format!("twice_kernel: {LARGE}"),
    );
    assert_eq!(choices("records.csv"), [&small, ""]);
    // Another one would be faster, but a file has the choice.
    let said = rerun("1024");
    assert_eq!(choices("attempt-1/records.csv"), [&small, ""]);
    assert!(!said.contains("autotune"), "{said}");
    fs::remove_dir_all(place.path("cache/foreign")).unwrap();
    let said = rerun("1024");
    assert_eq!(choices("attempt-2/records.csv"), [&large, ""]);
    let line = format!(": autotuned was {small}, is {large}: time and bits may differ by that\n");
    assert!(said.contains(&line), "{said}");
    assert!(
        said.contains("\nautotuners: 1 rows of another choice\n"),
        "{said}"
    );
    assert!(said.contains("2 bit-identical, 0 differ"), "{said}");
    let other = run.join("attempt-2");
    let sides = [run.to_str().unwrap(), other.to_str().unwrap()];
    let said = text(&ran(&place, "256", &["compare", sides[0], sides[1]]));
    let declared = "changed\n  autotuned of 1 point";
    let listed = format!("tuned: {small} -> {large}\n");
    assert!(said.contains(declared) && said.contains(&listed), "{said}");
    // The choice is a reason, and the point is judged.
    assert!(!said.contains("not compared"), "{said}");
}

const ON_GPU: &str = r#"
schema = 1
[python]
exe = "${SWEEPER_PYTHON:-python3}"
[backend.triton]
workload = "softmax"
python   = "f.py"
entry    = "softmax"
args     = ["x[batch * sequence, dimension]"]
returns  = ["out"]
[backend.max_autotune]
workload = "softmax"
module   = "torch"
entry    = "softmax"
args     = ["x"]
kwargs   = { dim = -1 }
returns  = ["out"]
phases   = ["forward", "backward", "both"]
autograd = { of = "out", incoming = "grad_out", by = { x = "grad_x" } }
torch_compile = { mode = "max-autotune-no-cudagraphs", dynamic = false }
[case.softmax]
workload = "softmax"
backends = ["triton", "max_autotune"]
phases   = ["forward", "both"]
grid     = { batch = 4, sequence = 512, dimension = 1000 }
[measure]
repeats = 5
"#;

const KERNEL: &str = r#"
import torch
import triton
import triton.language as tl

@triton.autotune([triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 4) for warps in (4, 8)],
                 key=["columns"])
@triton.jit
def softmax_kernel(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < columns)
    held = tl.load(x + row * columns + column, mask=inside, other=-float("inf"))
    held = tl.exp(held - tl.max(held, 1)[:, None])
    tl.store(out + row * columns + column, held / tl.sum(held, 1)[:, None], mask=inside)

def softmax(x):
    out = torch.empty_like(x)
    rows, columns = x.shape
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
    softmax_kernel[grid](x, out, rows, columns, BLOCK=triton.next_power_of_2(columns))
    return out
"#;

#[test]
fn triton_and_the_compiler_of_pytorch_tell_their_choices() {
    let has_all = || has_package("torch", "torch") && has_package("triton", "triton");
    let Some(_gpu) = crate::cuda::gpu_alone() else {
        return;
    };
    if !has_all() {
        return;
    }
    for mode in ["launch", "graph"] {
        let place = Place::new(ON_GPU);
        fs::write(place.path("f.py"), KERNEL).unwrap();
        let mode = format!("--set=measure.mode=\"{mode}\"");
        let said = text(&place.sweeper(&["run", "m.toml", "--device=cuda", &mode]));
        let rows = rows(&place);
        let choices = |name: &str| -> Vec<&str> {
            let row = &rows[name];
            assert_eq!(row["status"], "ok", "{name}: {}\n{said}", row["reason"]);
            row["autotuned"].split("; ").collect()
        };
        let triton = choices("triton forward");
        let [choice] = &triton[..] else {
            panic!("{triton:?}")
        };
        assert!(choice.starts_with("softmax_kernel: ROWS="), "{choice}");
        assert!(choice.contains(" num_warps="), "{choice}");
        let [forward, both] = ["forward", "both"].map(|phase| {
            let chosen = choices(&format!("max_autotune {phase}"));
            // Each kernel once, and no candidates: the compiler launches those to time them.
            let names: BTreeSet<&str> = chosen
                .iter()
                .filter_map(|choice| choice.split(':').next())
                .collect();
            assert_eq!(names.len(), chosen.len(), "{chosen:?}");
            for choice in &chosen {
                assert!(choice.starts_with("triton_"), "{chosen:?}");
                assert!(choice.contains(" num_warps="), "{chosen:?}");
            }
            chosen.len()
        });
        assert!(forward > 0 && both > forward, "{forward} {both}");
        // A file has Triton's choice. PyTorch's compiler may time some of its kernels once more.
        let run = place.run_folder();
        let said = text(&place.sweeper(&["rerun", run.to_str().unwrap()]));
        let before = column(&place.read("records.csv"), "autotuned");
        let again = column(&place.read("attempt-1/records.csv"), "autotuned");
        assert!(again.iter().any(|held| held == choice), "{again:?}");
        assert_eq!(said.contains("autotuned was"), again != before, "{said}");
    }
}
