//! Files of FlashInfer-Bench: imported, measured, refused with reasons.

use std::fs;
use std::path::Path;

use super::rows;
use crate::place::{Place, code, text};
use crate::support::has_package;

/// A folder with a dataset in it.
fn place() -> Place {
    let place = Place::new("");
    copy(
        Path::new("tests/manifests/flashinfer"),
        &place.path("traces"),
    );
    place
}

fn copy(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

/// The manifest of a dataset.
fn imported(place: &Place) -> String {
    let imported = place.sweeper(&["import", "flashinfer", "traces", "-o", "all.toml"]);
    assert_eq!(code(&imported), 0, "{}", text(&imported));
    fs::read_to_string(place.path("all.toml")).unwrap()
}

#[test]
fn a_dataset_becomes_a_manifest_and_what_is_left_out_is_named() {
    let place = place();
    let manifest = imported(&place);
    for line in [
        "params.batch = { int = [1, 2147483647] }",
        "params.width = { int = [24, 24], default = 24 }",
        "inputs.x = { dtype = \"f32\", shape = [\"batch\", \"width\"] }",
        "outputs.top = { dtype = \"i32\", shape = [\"batch\"] }",
        "check.reference = { python = \"all_sources/scaled_rows/reference.py\", entry = \"run\", args = \
         [\"x\", \"weight\", \"scale\"] }",
        "check.tolerance = { out = 1e-2 }   # ? in FlashInfer-Bench the absolute",
        "params.eps = { float = [-3.4e38, 3.4e38], default = 1e-6 }",
        "args     = [\"x\", \"weight\", \"scale\", \"out\", \"top\"]   # ? the file does not say",
        "python   = \"all_sources/scaled_rows/rows_returned.py\"",
        "returns  = [\"out\", \"top\"]",
        "grid.batch_size = [1, 4, 33]",
        "[[case.scaled_rows.zip]]\naxes.batch = [8, 40, 40]\naxes.scale = [0.5, 0.5, 3.0]",
        "require  = [\"width % 8 == 0\"]",
        "# ? left out, there is no function `len`",
        "#   traces/definitions/quantized.json: the definition `quantized`: `A` is float8_e4m3fn, a \
         type that is not known here",
        "#   traces/solutions/native.json: `rows_native` is host code in cuda with the binding torch, \
         which nothing here compiles; for a kernel of its `main.cu` alone",
        "#   traces/solutions/orphan.json: its definition `quantized` was not imported",
        "#   traces/workloads/results.jsonl: 2 results of solutions",
        "#   traces/workloads/scaled_rows.jsonl, line 6: the axis `batch` has no value",
        "#   traces/workloads/scaled_rows.jsonl, line 7: the number `scale` has no value",
    ] {
        assert!(manifest.contains(line), "{line}\n{manifest}");
    }
    let checked = place.sweeper(&["check", "all.toml"]);
    assert_eq!(code(&checked), 0, "{}", text(&checked));
    let again = place.sweeper(&["import", "flashinfer", "traces", "-o", "all.toml"]);
    assert_eq!(code(&again), 6, "{}", text(&again));
    let nothing = place.sweeper(&["import", "flashinfer", "traces/solutions"]);
    assert_eq!(code(&nothing), 3, "{}", text(&nothing));
    assert!(text(&nothing).contains("nothing to import: no file has a definition"));
    assert!(!place.path("traces/solutions_sources").exists());
}

/// The status of each backend's rows of a case.
fn measured(place: &Place, case: &str) -> Vec<(String, String, String)> {
    let ran = place.sweeper(&[
        "run",
        "all.toml",
        "--case",
        case,
        "--device=cpu",
        "--set=measure.repeats=25",
    ]);
    let found = rows(place);
    let said = text(&ran);
    let found = found.into_values();
    found
        .map(|row| {
            let found = (row["backend"].clone(), row["status"].clone());
            (found.0, found.1, format!("{}\n{said}", row["reason"]))
        })
        .collect()
}

#[test]
fn solutions_are_judged_by_the_reference_of_their_definition() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place();
    imported(&place);
    let found = measured(&place, "scaled_rows");
    assert_eq!(found.len(), 4, "{found:?}");
    for (backend, status, reason) in found {
        let wanted = match backend.as_str() {
            "rows_unscaled" => "wrong",
            _ => "ok",
        };
        assert_eq!(status, wanted, "{backend}: {reason}");
    }
}

#[test]
fn a_reference_in_pytorch_gets_tensors_of_the_definitions_types() {
    if !has_package("torch", "torch") {
        return;
    }
    let place = place();
    imported(&place);
    let found = measured(&place, "rmsnorm_h64");
    assert_eq!(found.len(), 2, "{found:?}");
    for (backend, status, reason) in found {
        assert_eq!(status, "ok", "{backend}: {reason}");
    }
}
