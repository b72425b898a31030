//! What people tripped over, as they would meet it again: each case is a folder of `tests/cases`.

use std::fs;
use std::path::Path;

use crate::place::{Place, code, column, text};
use crate::support::{has_package, nvrtc, python};

/// A copy of a case, with the interpreter of the tests.
pub(super) fn case(name: &str) -> Place {
    let place = Place::new("");
    copy(&Path::new("tests/cases").join(name), &place.path(""));
    let manifest = place.path("m.toml");
    let held = fs::read_to_string(&manifest).unwrap();
    if held.is_empty() {
        fs::remove_file(manifest).unwrap();
        return place;
    }
    let exe = format!("exe = {:?}", python());
    fs::write(manifest, held.replace("exe = \"python3\"", &exe)).unwrap();
    place
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy(&path, &to);
        } else {
            fs::copy(path, to).unwrap();
        }
    }
}

/// Runs a command of a case, which has to end with a status and to say something.
fn says(place: &Place, args: &str, status: i32, wanted: &str) {
    let args: Vec<&str> = args.split_whitespace().collect();
    let ran = place.sweeper(&args);
    let said = text(&ran);
    assert_eq!(code(&ran), status, "{args:?}: {said}");
    assert!(said.contains(wanted), "{args:?} {wanted}: {said}");
}

/// A column of a case's only run.
fn column_of(place: &Place, name: &str) -> Vec<String> {
    let records = fs::read_to_string(place.run_folder().join("records.csv")).unwrap();
    column(&records, name)
}

fn replace(place: &Place, file: &str, from: &str, to: &str) {
    let held = fs::read_to_string(place.path(file)).unwrap();
    assert!(held.contains(from), "{file}: {held}");
    fs::write(place.path(file), held.replace(from, to)).unwrap();
}

#[test]
fn imports_are_whole_and_check() {
    let import = "import t1 t1.json -o m.toml";
    let place = case("t1-generator-if");
    says(&place, import, 0, "wrote m.toml");
    let fill = "fill = { expr = \"1 + i if i % 4 < 3 else 0.5 * i\" }";
    replace(&place, "m.toml", fill, fill);
    let place = case("t1-reference");
    says(&place, import, 0, "wrote m.toml");
    let left_out = "? its reference is left out (y by 2 * i)";
    replace(&place, "m.toml", left_out, left_out);
    let place = case("t1-conditions");
    for (file, points) in [("bool", 3), ("words", 7)] {
        let import = format!("import t1 {file}.json -o {file}.toml");
        says(&place, &import, 0, "wrote");
        let check = format!("check {file}.toml");
        says(&place, &check, 0, &format!("twice: {points} points"));
    }
    let place = case("t4-slow");
    let rows = fs::read_to_string(place.path("row.json")).unwrap();
    let rows: Vec<String> = (0..10_000)
        .map(|at| rows.replace("AT", &at.to_string()))
        .collect();
    let t4 = format!(
        "{{\"metadata\": {{\"timeunit\": \"milliseconds\"}}, \"results\": [{}]}}",
        rows.join(",")
    );
    fs::write(place.path("t4.json"), t4).unwrap();
    says(&place, "import t4 t4.json -o out", 0, "10000 rows");
    // A folder with a link to itself ends.
    let place = case("flashinfer-older");
    std::os::unix::fs::symlink(".", place.path("again")).unwrap();
    says(&place, "import flashinfer . -o m.toml", 0, "wrote m.toml");
    let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
    let has = |text: &str| assert!(manifest.contains(text), "{text}: {manifest}");
    has("grid.M = [16, 33]");
    has("[backend.scale_python]");
}

#[test]
fn drafts_are_manifests() {
    for (name, source) in [
        ("new-hangs", "default.cu"),
        ("new-hangs", "static.c"),
        ("new-bad-toml", "k.c"),
        ("new-block-size", "k.cu"),
    ] {
        let place = case(name);
        says(
            &place,
            &format!("new {source} -o m.toml"),
            0,
            "wrote m.toml",
        );
        if name != "new-hangs" {
            says(&place, "check m.toml", 0, "fine");
        }
        if source == "k.cu" {
            let said = "a CUDA kernel needs a GPU";
            says(&place, "run m.toml --device cpu", 7, said);
            says(&place, "run m.toml --device cpu", 7, "nothing to do");
        }
    }
}

#[test]
fn kernels_of_users_are_tuned_and_compiled() {
    let place = case("huge-space");
    says(&place, "run m.toml", 0, "best of 20 configurations");
    let place = case("tuned-options");
    says(&place, "run m.toml", 0, "8 of 8 results checked");
    let place = case("zero-size");
    says(&place, "run m.toml", 0, "2 of 2 results checked");
    let place = case("report-panic");
    says(&place, "run m.toml", 0, "best of 3 configurations");
    let run = place.run_folder();
    says(&place, &format!("report {}", run.display()), 0, "");
    if nvrtc().is_some() {
        let place = case("spills-of-another");
        let ran = text(&place.sweeper(&["compile", "m.toml", "--arch", "sm_90"]));
        let line = ran.lines().find(|line| line.contains("k.cu twice"));
        let line = line.unwrap_or_else(|| panic!("{ran}"));
        assert!(
            line.contains("registers") && !line.contains("spilled"),
            "{line}"
        );
    }
}

#[test]
fn programs_are_started_as_often_as_they_are_measured() {
    let place = case("metric-time-iterations");
    says(&place, "run m.toml", 0, "1 points");
    assert_eq!(column_of(&place, "iterations"), ["1"]);
    assert!(!column_of(&place, "flags")[0].contains("coarse_clock"));
    let place = case("target-name-is-a-file");
    says(&place, "run m.toml", 0, "(1 ok)");
    says(&place, "run m.toml", 0, "nothing to do");
    says(&case("extends-backend"), "check m.toml", 0, "fine");
    let place = case("backward-loop");
    says(&place, "run m.toml --device cpu", 0, "(3 skipped)");
}

#[test]
fn functions_are_what_their_text_says() {
    if !has_package("numpy", "numpy") {
        return;
    }
    // Nobody compiled, so that nothing tells a cold start from a warm one.
    let place = case("economics-cold-warm");
    says(&place, "run m.toml", 0, "(2 ok, 2 skipped)");
    says(&place, "runs", 0, "4/4 rows");
    let run = place.run_folder();
    says(
        &place,
        &format!("report {} --no-plots", run.display()),
        0,
        "other",
    );
    let economics = fs::read_to_string(run.join("report/economics.csv")).unwrap();
    assert_eq!(column(&economics, "start"), ["seen", "seen"], "{economics}");
    says(&case("half-imported"), "run m.toml", 4, "(3 unavailable)");
    says(&case("definitions-after-loops"), "run m.toml", 0, "(1 ok)");
    let place = case("unlisted-second-backend");
    says(&place, "run m.toml", 0, "(4 ok)");
    for files in column_of(&place, "unlisted_sources") {
        assert!(files.ends_with("pkg/inner.py"), "{files}");
    }
}

#[test]
fn functions_of_pytorch_are_what_their_rows_say() {
    if !has_package("torch", "torch") {
        return;
    }
    says(&case("global-flags-leak"), "run m.toml", 0, "(3 ok)");
    says(&case("recompile-limit"), "run m.toml", 0, "(12 ok)");
    let place = case("cpu-peak-of-function");
    says(&place, "run m.toml", 0, "(2 ok)");
    let peaks = column_of(&place, "peak_allocated_bytes");
    let peaks: Vec<u64> = peaks.iter().map(|peak| peak.parse().unwrap()).collect();
    assert!((8_000_000..12_000_000).contains(&peaks[0]), "{peaks:?}");
    assert!(peaks[1] > 400_000_000, "{peaks:?}");
    let place = case("kernelbench-computed-inputs");
    says(
        &place,
        "import kernelbench 1_divergence.py -o m.toml",
        0,
        "wrote",
    );
    replace(
        &place,
        "m.toml",
        "${SWEEPER_PYTHON:-python3}",
        &python().to_string_lossy(),
    );
    says(
        &place,
        "run m.toml --device cpu --backends eager",
        0,
        "1 of 1 results checked",
    );
}
