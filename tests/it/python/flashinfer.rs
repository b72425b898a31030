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
        "inputs_from = \"all_sources/sampling_v16/inputs.py:generate_input\"",
        "check = { reference = \"none\" }   # ? results are drawn",
        "[[case.scaled_rows.zip]]\naxes.batch = [8, 40, 40]\naxes.scale = [0.5, 0.5, 3.0]",
        "require  = [\"width % 8 == 0\"]",
        "# ? left out, there is no function `len`",
        "#   traces/definitions/quantized.json: the definition `quantized`: `A` is float8_e4m3fn, a \
         type that is not known here",
        "#   traces/solutions/native.json: `rows_native` is host code in cuda with the binding torch, \
         which nothing here compiles; for a kernel of its `main.cu` alone",
        "#   traces/solutions/orphan.json: its definition `quantized` was not imported",
        "#   traces/workloads/results.jsonl: 2 results of solutions",
        "#   traces/workloads/scaled_rows.jsonl, line 5: the file of its input `x`: it is in no folder \
         around this one",
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
fn results_that_are_drawn_have_no_reference_and_probabilities_sum_up_to_1() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = place();
    imported(&place);
    let found = measured(&place, "sampling_v16");
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].1, "ok", "{}", found[0].2);
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

/// A file of safetensors with the tensor `x` of 7 rows.
fn stored() -> Vec<u8> {
    let head = "{\"x\":{\"dtype\":\"F32\",\"shape\":[7,24],\"data_offsets\":[0,672]}}";
    let elements = (0..7 * 24).flat_map(|at| (at as f32 - 80.0).to_le_bytes());
    let length = (head.len() as u64).to_le_bytes();
    let head = length.into_iter().chain(head.bytes());
    head.chain(elements).collect()
}

#[test]
fn inputs_in_files_are_read_by_a_function_and_others_are_drawn() {
    let place = place();
    fs::create_dir(place.path("traces/blob")).unwrap();
    let file = place.path("traces/blob/x.safetensors");
    fs::write(&file, "version https://git-lfs.github.com/spec/v1\n").unwrap();
    let manifest = imported(&place);
    assert!(manifest.contains("is a pointer of Git LFS"), "{manifest}");
    fs::remove_file(place.path("all.toml")).unwrap();
    fs::remove_dir_all(place.path("all_sources")).unwrap();
    fs::write(&file, stored()).unwrap();
    let manifest = imported(&place);
    for line in [
        "params.line = { int = [0, 1] }",
        "inputs_from = \"all_sources/scaled_rows/inputs.py:generate_input\"",
        "axes.batch = [8, 40, 40, 7]",
        "axes.scale = [0.5, 0.5, 3.0, 2.0]",
        "axes.line = [0, 0, 0, 1]",
    ] {
        assert!(manifest.contains(line), "{line}\n{manifest}");
    }
    let checked = place.sweeper(&["check", "all.toml"]);
    assert_eq!(code(&checked), 0, "{}", text(&checked));
    if !has_package("numpy", "numpy") {
        return;
    }
    let saved = [
        "run",
        "all.toml",
        "--case=scaled_rows",
        "--device=cpu",
        "--save-tensors=kept",
    ];
    let ran = place.sweeper(&saved);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    assert!(text(&ran).contains("(12 ok, 4 wrong)"), "{}", text(&ran));
    let kept: Vec<Vec<u8>> = files_of(&place.path("kept"))
        .filter(|path| path.ends_with("inputs.safetensors"))
        .map(|path| fs::read(path).unwrap())
        .collect();
    let elements = &stored()[stored().len() - 672..];
    let with_file = kept
        .iter()
        .filter(|held| held.windows(672).any(|part| part == elements));
    assert_eq!((kept.len(), with_file.count()), (4, 1));
}

/// All files below a folder.
fn files_of(folder: &Path) -> Box<dyn Iterator<Item = std::path::PathBuf>> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    Box::new(entries.flat_map(|path| -> Box<dyn Iterator<Item = _>> {
        match path.is_dir() {
            true => files_of(&path),
            false => Box::new(std::iter::once(path)),
        }
    }))
}
