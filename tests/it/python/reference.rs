//! References that are functions in Python: right, failing, and kept.

use std::fs;

use super::{assert_failing, rows};
use crate::place::{Place, code, text};
use crate::support::has_package;

const SOURCE: &str = "\
import os, time
import numpy as np
from scale import FACTOR

def sums(x, index):
    if COUNTED: open(COUNTED, 'a').write(f'{x.dtype} {index.dtype}\\n')
    return FACTOR * np.sum(x, axis=1), index[::-1]

COUNTED = os.environ.get('COUNTED')

def raises(x, index):
    raise ValueError('no such sum')

def slow(x, index):
    time.sleep(60)

def flat(x, index):
    return np.sum(x), index

def one(x, index):
    return np.sum(x, axis=1)

def overwrites(x, index):
    x += 1
    return np.sum(x, axis=1), index[::-1]

def chance(x, index):
    return np.sum(x, axis=1) * np.random.rand(), index[::-1]
";

const BACKENDS: &str = "\
import numpy as np

def right(x, index):
    return (2 * np.sum(x.astype(np.float64), axis=1)).astype(np.float32), index[::-1].copy()

def wrong(x, index):
    return (2 * np.sum(x[:, 1:], axis=1)).astype(np.float32), index[::-1].copy()

def unordered(x, index):
    return (2 * np.sum(x, axis=1)).astype(np.float32), index.copy()
";

/// A manifest with the reference `entry` for three backends.
fn manifest(entry: &str, more: &str) -> String {
    let mut text = format!(
        "schema = 1
[python]
exe = \"${{SWEEPER_PYTHON:-python3}}\"
[limits]
oracle_s = 3
[workload.sums]
params = {{ n = {{ int = [1, 1000000] }} }}
inputs.x = {{ dtype = \"f32\", shape = [\"n\", 7] }}
inputs.index = {{ dtype = \"i32\", shape = [\"n\"], fill = \"permutation\" }}
outputs.y = {{ dtype = \"f32\", shape = [\"n\"] }}
outputs.back = {{ dtype = \"i32\", shape = [\"n\"] }}
check = {{ reference = {{ python = \"ref.py\", entry = \"{entry}\" }}{more} }}
[case.sums]
workload = \"sums\"
backends = [\"right\", \"wrong\", \"unordered\"]
grid = {{ n = [500] }}
[device]
use = \"cpu\"
[measure]
repeats = 3
"
    );
    for name in ["right", "wrong", "unordered"] {
        text += &format!(
            "[backend.{name}]\nworkload = \"sums\"\npython = \"mine.py\"\nentry = \"{name}\"\n\
             args = [\"x\", \"index\"]\nreturns = [\"y\", \"back\"]\n"
        );
    }
    text
}

fn place(entry: &str, more: &str) -> Place {
    let place = Place::new(&manifest(entry, more));
    fs::write(place.path("ref.py"), SOURCE).unwrap();
    fs::write(place.path("scale.py"), "FACTOR = 2\n").unwrap();
    fs::write(place.path("mine.py"), BACKENDS).unwrap();
    place
}

/// Status and reason of each backend's only row.
fn judged(place: &Place) -> Vec<(String, String)> {
    let rows = rows(place);
    let of = |name| &rows[&format!("{name} forward")];
    let rows = ["right", "wrong", "unordered"].map(of).into_iter();
    rows.map(|row| (row["status"].clone(), row["reason"].clone()))
        .collect()
}

#[test]
fn an_edited_reference_is_named_by_why() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = place("sums", "");
    folder.sweeper(&["run", "m.toml"]);
    fs::write(folder.path("ref.py"), format!("{SOURCE}\n")).unwrap();
    let why = text(&folder.sweeper(&["why", "m.toml", "n=500 right"]));
    assert!(why.contains("has it, but since then"), "{why}");
    assert!(why.contains(".check.reference.digests.ref.py: "), "{why}");
}

#[test]
fn outputs_are_judged_by_a_function_in_f64_whose_answers_are_kept() {
    if !has_package("numpy", "numpy") {
        return;
    }
    // A short function is evaluated twice. A derived tolerance takes eight evaluations with
    // rounding, and one in f32.
    for (more, exact, rounded) in [("", 10, 1), (", tolerance = 1e-6", 2, 0)] {
        let place = place("sums", more);
        for _ in 0..2 {
            let _ = fs::remove_dir_all(place.path("results"));
            let mut command = place.command(&["run", "m.toml"]);
            let ran = command.env("COUNTED", place.path("counted"));
            let ran = ran.output().unwrap();
            assert_eq!(code(&ran), 4, "{}", text(&ran));
        }
        let [right, wrong, unordered] = judged(&place).try_into().unwrap();
        assert_eq!(right.0, "ok", "{right:?}");
        assert_eq!(wrong.0, "wrong");
        assert!(wrong.1.contains("`y` is off by"), "{wrong:?}");
        assert_eq!(unordered.0, "wrong");
        assert!(unordered.1.contains("`back` is off by"), "{unordered:?}");
        let counted = fs::read_to_string(place.path("counted")).unwrap();
        let in_f64 = counted.lines().filter(|line| *line == "float64 int32");
        // Answers for the samples' inputs and for those of audits are kept; an audit tries on as
        // many inputs as the machine's other work makes it.
        let answers = in_f64.count() / exact;
        assert!((2..=13).contains(&answers), "{counted}");
        assert_eq!(
            counted.lines().count(),
            answers * (exact + rounded),
            "{counted}"
        );
    }
}

#[test]
fn a_reference_that_fails_is_named_with_its_key_and_reason() {
    if !has_package("numpy", "numpy") {
        return;
    }
    for (entry, status, reason) in [
        ("raises", "error", "ref.py:12: ValueError: no such sum"),
        ("slow", "timeout", "(`limits.oracle_s = 3`)"),
        ("flat", "error", "`y` "),
        ("one", "error", "returns 1 values, `returns` has 2"),
        ("overwrites", "error", "it overwrote the input `x`"),
        ("chance", "error", "it draws random numbers"),
        ("absent", "unavailable", "ref.py has no `absent`"),
    ] {
        let place = place(entry, "");
        let reason = ("workload.sums.check.reference", reason);
        assert_failing(&place, entry, status, reason);
    }
}

#[test]
fn an_edited_module_of_a_reference_is_another_problem_and_a_run_keeps_it() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = place("sums", ", tolerance = 1e-6");
    let ran = folder.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let run = folder.run_folder();
    assert_eq!(judged(&folder)[0].0, "ok");
    let copy = run.join("sources/sums.reference/scale.py");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "FACTOR = 2\n");
    fs::write(folder.path("scale.py"), "FACTOR = 3\n").unwrap();
    let kept = folder.path("first");
    fs::rename(&run, &kept).unwrap();
    let ran = folder.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    assert_ne!(folder.run_folder(), run, "another run");
    assert_eq!(judged(&folder)[0].0, "wrong");
    fs::remove_dir_all(folder.path("results")).unwrap();
    let (run, copy) = (&kept, kept.join("sources/sums.reference/scale.py"));
    for name in ["m.toml", "ref.py", "scale.py"] {
        fs::remove_file(folder.path(name)).unwrap();
    }
    let again = folder.sweeper(&["rerun", run.to_str().unwrap()]);
    let said = text(&again);
    assert!(said.contains("1 bit-identical, 0 differ"), "{said}");
    fs::write(&copy, "FACTOR = 4\n").unwrap();
    let refused = folder.sweeper(&["rerun", run.to_str().unwrap()]);
    let said = text(&refused);
    assert!(said.contains("`scale.py` is not what was"), "{said}");
}

#[test]
fn another_version_of_a_package_computes_the_answer_again() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place("sums", ", tolerance = 1e-6");
    // A package that says to be another one; the modules are those that are there.
    let told = place.path("told/numpy-99.0.dist-info");
    fs::create_dir_all(&told).unwrap();
    let metadata = "Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n";
    fs::write(told.join("METADATA"), metadata).unwrap();
    let counted = place.path("counted");
    // The first run with each version asks for the answers for the samples' inputs and its audit's.
    for (told, calls) in [("nothing", 2), ("nothing", 2), ("told", 4), ("told", 4)] {
        let mut run = place.command(&["run", "m.toml", "--fresh"]);
        run.env("COUNTED", &counted);
        let ran = run.env("PYTHONPATH", place.path(told)).output().unwrap();
        assert_eq!(code(&ran), 4, "{}", text(&ran));
        let counted = fs::read_to_string(&counted).unwrap();
        // An audit asks for more where other work of the machine makes it try other inputs.
        assert!(counted.lines().count() >= calls, "{told}");
    }
}

/// A problem of KernelBench, whose model computes the expression, and candidates for it. What
/// became of them, if PyTorch is there: status, reason, flags.
fn by_torch<const N: usize>(
    expression: &str,
    candidates: [(&str, &str); N],
) -> Option<[[String; 3]; N]> {
    by_torch_with("f32", expression, candidates)
}

/// As [`by_torch`], with factors of products rounded to a format.
fn by_torch_with<const N: usize>(
    products: &str,
    expression: &str,
    candidates: [(&str, &str); N],
) -> Option<[[String; 3]; N]> {
    if !has_package("torch", "torch") {
        return None;
    }
    let mut text = "schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.norm]
kernelbench = \"problem.py\"
params = { n = { int = [1, 1000000] } }
inputs.x = { dtype = \"f32\", shape = [\"n\", 100] }
outputs.y = { dtype = \"f32\", shape = [\"n\", 100] }
check = { reference = \"model\", products = \"PRODUCTS\" }
[case.norm]
workload = \"norm\"
grid = { n = [50] }
[device]
use = \"cpu\"
[measure]
repeats = 4
"
    .replace("PRODUCTS", products);
    for (name, _) in candidates {
        text += &format!("[backend.{name}]\nworkload = \"norm\"\nkernelbench = \"{name}.py\"\n");
    }
    let place = Place::new(&text);
    let module = |class: &str, expression: &str| {
        format!(
            "import torch\nimport torch.nn.functional as F\nCOIN = torch.Generator()\nn = 50\n\
             def norm(x):\n    return F.layer_norm(x, (x.shape[1],))\n\
             def cut(x, bits):\n    held = x.contiguous().view(torch.int32)\n    \
             return ((held + (1 << (bits - 1))) & -(1 << bits)).view(torch.float32)\n\
             def coins(x):\n    return torch.randint(0, 2, x.shape, generator=COIN)\n\
             class {class}(torch.nn.Module):\n    def forward(self, x):\n        \
             return {expression}\n\
             def get_inputs():\n    return [torch.randn(n, 100)]\n\
             def get_init_inputs():\n    return []\n"
        )
    };
    fs::write(place.path("problem.py"), module("Model", expression)).unwrap();
    for (name, expression) in candidates {
        let path = place.path(&format!("{name}.py"));
        fs::write(path, module("ModelNew", expression)).unwrap();
    }
    place.sweeper(&["run", "m.toml"]);
    let rows = rows(&place);
    Some(candidates.map(|(name, _)| {
        let row = &rows[&format!("{name} forward")];
        // Other tests may have the processor.
        let flags = row["flags"].split(' ').filter(|flag| *flag != "waited");
        let flags: Vec<&str> = flags.collect();
        [
            row["status"].clone(),
            row["reason"].clone(),
            flags.join(" "),
        ]
    }))
}

#[test]
fn a_reference_of_pytorch_says_what_rounding_does() {
    let candidates = [
        ("right", "norm(x)"),
        ("off", "norm(x) * (1 + 1e-5)"),
        ("varying", "norm(x) * (1 + 1.2e-7 * coins(x))"),
    ];
    let Some([right, off, varying]) = by_torch("norm(x)", candidates) else {
        return;
    };
    assert_eq!(right[0], "ok", "{right:?}");
    assert!(!right[2].contains("varying"), "{right:?}");
    assert_eq!(off[0], "wrong", "{off:?}");
    assert!(off[1].contains("`y` is off by"), "{off:?}");
    assert_eq!(varying[0], "ok", "{varying:?}");
    assert!(varying[2].contains("varying"), "{varying:?}");
}

#[test]
fn functions_run_on_inputs_that_show_mistakes_if_their_reference_stands_them() {
    let (stable, naive) = ("F.softplus(x)", "torch.log(1 + torch.exp(x))");
    let candidates = [("stable", stable), ("naive", naive)];
    let Some([right, wrong]) = by_torch(stable, candidates) else {
        return;
    };
    assert_eq!(right[0], "ok", "{right:?}");
    assert_eq!(wrong[0], "wrong", "{wrong:?}");
    assert!(wrong[1].ends_with("and that show mistakes"), "{wrong:?}");
    for found in by_torch(naive, candidates).into_iter().flatten() {
        assert_eq!(found[0], "ok", "{found:?}");
    }
}

/// What follows from a seed of PyTorch is told; what a seeded generator of its own gives is not.
/// Without memory for the judged format the line would be narrower than the reference is exact.
#[test]
fn a_reference_of_pytorch_that_can_judge_nothing_says_why() {
    let seeded = "x + torch.rand(x.shape, generator=COIN.manual_seed(3))";
    let expanded = "x.sum(1, keepdim=True).expand(x.shape)";
    let in_f64 = "norm(x) if x.dtype == torch.float64 else torch.empty(1 << 50)";
    for (reference, candidate, status, reason) in [
        (
            "F.dropout(x, 0.2)",
            "F.dropout(x, 0.2)",
            "error",
            "it draws random numbers",
        ),
        (seeded, seeded, "ok", ""),
        (
            "norm(x.add_(1))",
            "norm(x)",
            "error",
            "it overwrote the input `x`",
        ),
        (expanded, expanded, "ok", ""),
        (in_f64, "norm(x)", "oom", ""),
    ] {
        for row in by_torch(reference, [("same", candidate)])
            .into_iter()
            .flatten()
        {
            assert_eq!(row[0], status, "{reference}: {row:?}");
            assert!(row[1].contains(reason), "{reference}: {row:?}");
        }
    }
}

#[test]
fn a_right_value_below_rounding_is_no_error_of_the_check() {
    let nothing = "(x - x.mean(1, keepdim=True)).sum(1, keepdim=True).expand(x.shape).contiguous()";
    let candidates = [("right", nothing), ("far", "norm(x)")];
    let Some([right, far]) = by_torch(nothing, candidates) else {
        return;
    };
    assert_eq!(right[0], "ok", "{right:?}");
    assert!(right[2].contains("below_rounding"), "{right:?}");
    assert_eq!(far[0], "wrong", "{far:?}");
}

/// Rounded factors are another computation unless the manifest allows them, and then no better than
/// they are said to be.
#[test]
fn products_in_tf32_are_right_where_the_check_says_so() {
    let exact = "x @ x.T @ x";
    let tf32 = "cut(cut(x, 13) @ cut(x.T, 13), 13) @ cut(x, 13)";
    let bf16 = "cut(cut(x, 16) @ cut(x.T, 16), 16) @ cut(x, 16)";
    let candidates = [("exact", exact), ("tf32", tf32), ("bf16", bf16)];
    for (products, expected) in [
        ("f32", ["ok", "wrong", "wrong"]),
        ("tf32", ["ok", "ok", "wrong"]),
    ] {
        let Some(found) = by_torch_with(products, exact, candidates) else {
            return;
        };
        assert_eq!(
            found.each_ref().map(|row| row[0].as_str()),
            expected,
            "{found:?}"
        );
        let is_blamed = |row: &[String; 3]| row[2].contains("changes_process");
        assert!(!found.iter().any(is_blamed), "{found:?}");
    }
}

/// A reference is a function of the library that its file imports; one chain of f32 additions is as
/// right as a sum in any order may be, and said to be worse than sums of blocks.
#[test]
fn a_reference_over_tensors_tells_sums_in_one_chain() {
    if !has_package("torch", "torch") || !has_package("numpy", "numpy") {
        return;
    }
    let place = Place::new(
        "schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.total]
params = { n = { int = [1, 100000000] } }
inputs.x = { dtype = \"f32\", shape = [\"n\"], fill = { uniform = [0, 1] } }
outputs.y = { dtype = \"f32\", shape = [1] }
check = { reference = { python = \"ref.py\", entry = \"total\" } }
[backend.blocks]
workload = \"total\"
python = \"sums.py\"
entry = \"blocks\"
args = [\"x\"]
returns = [\"y\"]
[backend.chain]
like = \"blocks\"
entry = \"chain\"
[case.total]
workload = \"total\"
grid = { n = [4000000] }
[device]
use = \"cpu\"
[measure]
repeats = 4
",
    );
    let reference = "import torch\ndef total(x):\n    return torch.sum(x).reshape(1)\n";
    fs::write(place.path("ref.py"), reference).unwrap();
    let sums = "import numpy\n\
                def blocks(x):\n    return x.reshape(-1, 1000).sum(axis=1).sum(keepdims=True)\n\
                def chain(x):\n    return numpy.add.accumulate(x)[-1:]\n";
    fs::write(place.path("sums.py"), sums).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    let rows = rows(&place);
    for (name, is_inexact) in [("blocks", false), ("chain", true)] {
        let row = &rows[&format!("{name} forward")];
        assert_eq!(row["status"], "ok", "{row:?}\n{}", text(&ran));
        assert_eq!(row["flags"].contains("inexact"), is_inexact, "{row:?}");
    }
}
