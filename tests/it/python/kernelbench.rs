//! Problems of KernelBench: imported, measured beside candidates, refused with reasons.

use std::fs;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::{has_package, python};

/// A folder with the problems and candidates.
fn place(manifest: &str) -> Place {
    let place = Place::new(manifest);
    fs::create_dir(place.path("kb")).unwrap();
    for entry in fs::read_dir("tests/manifests/kernelbench").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::copy(&path, place.path(&format!("kb/{name}"))).unwrap();
    }
    place
}

/// A manifest by hand: a wider grid than the file's, a candidate whose constant is tuned. Samples
/// are many: beside other tests calls are slow at times, and one on unseen inputs may not be slower
/// than all of them.
const BY_HAND: &str = "\
schema = 1
[python]
exe = \"${SWEEPER_PYTHON:-python3}\"
[workload.rows]
kernelbench = \"kb/rows.py\"
params = { batch = { int = [1, 4096] }, features = { int = [1, 4096] }, \
         scale = { float = [0, 10], default = 0.5 } }
inputs.rows = { shape = [\"batch\", \"features\"] }
outputs.out = { shape = [\"batch\", \"2 * features\"] }
[backend.eager]
workload = \"rows\"
kernelbench = \"model\"
[backend.pieces]
workload = \"rows\"
kernelbench = \"pieces.py\"
tune = { PIECE = [3, 16] }
[case.rows]
workload = \"rows\"
dtype = \"bf16\"
grid = { batch = [5, 32], features = 12, scale = 3 }
[device]
use = \"cpu\"
[measure]
repeats = 25
";

/// A candidate that goes over the batch in pieces, and checks its constants.
const PIECES: &str = "\
import torch
PIECE = 8
batch = 1
class ModelNew(torch.nn.Module):
    def __init__(self, features, scale):
        super().__init__()
        self.layer = torch.nn.Linear(features, 2 * features)
        self.scale = scale
    def forward(self, rows):
        assert PIECE in (3, 16) and len(rows) == batch
        parts = [self.layer(part) for part in rows.split(PIECE)]
        return self.scale * torch.relu(torch.cat(parts))
if __name__ == '__main__':
    raise SystemExit('a test of its own')
";

#[test]
fn problems_are_imported_and_measured_beside_candidates() {
    let place = place("");
    // An interpreter that is not there is named, and nothing is written.
    let without = ["import", "kernelbench", "kb", "--python", "/nowhere/python"];
    let refused = place.sweeper(&without);
    assert_eq!(code(&refused), 3, "{}", text(&refused));
    assert!(text(&refused).contains("`/nowhere/python` can't be started"));
    // Without it no interpreter gets so far as to look for PyTorch.
    if !has_package("numpy", "numpy") {
        return;
    }
    if !has_package("torch", "torch") {
        let mut command = place.command(&["import", "kernelbench", "kb"]);
        let refused = command.env("SWEEPER_PYTHON", python()).output().unwrap();
        assert!(
            text(&refused).contains("the package `torch`"),
            "{}",
            text(&refused)
        );
        return;
    }
    let imported = place.sweeper(&["import", "kernelbench", "kb", "-o", "all.toml"]);
    assert_eq!(code(&imported), 0, "{}", text(&imported));
    let manifest = fs::read_to_string(place.path("all.toml")).unwrap();
    for line in [
        "kernelbench = \"kb/rows.py\"",
        "params = { batch = { int = [1, 2147483647], default = 32 }, \
         features = { int = [1, 2147483647], default = 64 } }",
        "inputs.rows = { shape = [\"batch\", \"features\"], fill = { uniform = [0, 1] } }",
        "outputs.out = { shape = [\"batch\", \"2 * features\"] }",
        "inputs.x = { shape = [\"count\", \"length\"] }",
        "inputs.classes = { dtype = \"i64\", shape = [\"count\"] }",
        "outputs.out1 = { shape = [\"count\", \"(length - 1) // 2\"] }",
        "outputs.out2 = { dtype = \"bool\", shape = [\"count\"] }",
        "check = { reference = \"model\" }   # ? the model draws random numbers (dropout): no two \
         calls agree, its rows will be `error`",
        "grid = { batch = 32, features = 64 }",
        "args = [\"x\", 3.5]",
        "#   kb/tools.py: it has no class `Model` or `ModelNew`",
    ] {
        assert!(manifest.contains(line), "{line}\n{manifest}");
    }
    // The file's own function makes inputs that the manifest has no fill for.
    let pool = [
        "--case",
        "pool",
        "--set=case.pool.backends=[\"pool_eager\"]",
    ];
    let model = fs::read_to_string(place.path("kb/pool.py")).unwrap();
    let model = model.replace("nn.Dropout(0.5)", "nn.Identity()");
    fs::write(place.path("kb/pool.py"), model).unwrap();
    let pool_only = [&["run", "all.toml", "--device=cpu"][..], &pool].concat();
    let said = text(&place.sweeper(&pool_only));
    assert!(said.contains("1 point"), "{said}");
    let found = rows(&place);
    let digest = &found["pool_eager forward"]["input_digest"];
    assert_eq!(digest.len(), 64, "{said}");
    fs::remove_dir_all(place.path("results")).unwrap();
    let rows_only = ["--case", "rows", "--device=cpu", "--set=measure.repeats=25"];
    let compiled = "--set=case.rows.backends=[\"rows_eager\", \"rows_by_hand\", \"rows_unscaled\"]";
    let ran = place.sweeper(&[&["run", "all.toml", compiled][..], &rows_only].concat());
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let found = rows(&place);
    fs::remove_dir_all(place.path("results")).unwrap();
    let number_only = [
        "--case=number",
        "--set=case.number.backends=[\"number_eager\"]",
    ];
    let ran = place.sweeper(&[&["run", "all.toml", "--device=cpu"][..], &number_only].concat());
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    for (backend, status) in [
        ("rows_eager", "ok"),
        ("rows_by_hand", "ok"),
        ("rows_unscaled", "wrong"),
    ] {
        let row = &found[&format!("{backend} forward")];
        assert_eq!(row["status"], status, "{backend}: {}", row["reason"]);
    }
    assert_eq!(found["rows_by_hand forward"]["checked"], "full");
}

#[test]
fn constants_of_a_problem_are_parameters_and_its_model_is_the_reference() {
    let place = place(BY_HAND);
    fs::write(place.path("pieces.py"), PIECES).unwrap();
    // Nothing of this needs an interpreter.
    let checked = place.sweeper(&["check", "m.toml"]);
    assert_eq!(code(&checked), 0, "{}", text(&checked));
    assert!(
        text(&checked).contains("rows: 6 points"),
        "{}",
        text(&checked)
    );
    if !has_package("torch", "torch") {
        return;
    }
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    // From the copies in the run's folder.
    fs::remove_dir_all(place.path("kb")).unwrap();
    fs::remove_file(place.path("pieces.py")).unwrap();
    let folder = place.run_folder();
    let again = place.sweeper(&["rerun", folder.to_str().unwrap()]);
    assert_eq!(code(&again), 0, "{}", text(&again));
}

#[test]
fn mistakes_of_models_are_named_at_their_keys() {
    let mistake = |old: &str, new: &str, words: &[&str]| {
        let place = place(&BY_HAND.replacen(old, new, 1));
        fs::write(place.path("pieces.py"), PIECES).unwrap();
        let checked = place.sweeper(&["check", "m.toml"]);
        assert_eq!(code(&checked), 3, "{}", text(&checked));
        for word in words {
            assert!(text(&checked).contains(word), "{word}\n{}", text(&checked));
        }
    };
    mistake(
        "outputs.out = { shape = [\"batch\", \"2 * features\"] }\n",
        "",
        &[
            "`workload.rows` has no `outputs`",
            "sweeper import kernelbench FILE",
        ],
    );
    mistake(
        "features = { int = [1, 4096] }",
        "features = { int = [1, 4096] }, width = { int = [1, 2], default = 1 }",
        &["`rows.py` has no constant `width`"],
    );
    mistake("PIECE", "TILE", &["`pieces.py` has no constant `TILE`"]);
    mistake(
        "kernelbench = \"kb/rows.py\"\n",
        "check = { reference = \"model\" }\n",
        &[
            "this workload has no model",
            "the workload of this backend has no model",
        ],
    );
    mistake(
        "kernelbench = \"pieces.py\"",
        "kernelbench = \"nowhere.py\"",
        &["can't use the source", "nowhere.py"],
    );
}
