//! The identity of a run of functions in Python, and the copies that the run keeps of them.

use std::fs;

use super::{DOUBLING, copied, rows};
use crate::place::{Place, code, column, text};
use crate::support::has_package;

const ONLY: &str = "--set=case.affine.backends=[\"right\", \"native\"]";

/// A run of two backends of the manifest.
fn measured() -> Place {
    let folder = copied();
    let ran = folder.sweeper(&["run", "adversaries.toml", ONLY]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    folder
}

#[test]
fn a_run_keeps_its_modules_and_is_repeated_without_the_files() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = measured();
    let copy = fs::read_to_string(folder.run_folder().join("sources/right/helper.py")).unwrap();
    assert_eq!(copy, include_str!("../../manifests/python/helper.py"));
    for name in ["adversaries.toml", "adversaries.py", "helper.py"] {
        fs::remove_file(folder.path(name)).unwrap();
    }
    let run = folder.run_folder();
    let again = folder.sweeper(&["rerun", run.to_str().unwrap()]);
    assert_eq!(code(&again), 0, "{}", text(&again));
    // A copy that was edited is refused by its name.
    let helper = run.join("sources/right/helper.py");
    fs::write(&helper, format!("{copy}\n# edited\n")).unwrap();
    let refused = folder.sweeper(&["rerun", run.to_str().unwrap()]);
    assert_ne!(code(&refused), 0);
    let said = text(&refused);
    assert!(said.contains("`helper.py` is not what was"), "{said}");
}

#[test]
fn a_run_is_repeated_without_the_folder_of_its_modules() {
    let place = Place::new(DOUBLING);
    let missing = place.sweeper(&["check", "m.toml"]);
    assert_eq!(code(&missing), 3, "{}", text(&missing));
    if !has_package("numpy", "numpy") {
        return;
    }
    fs::write(place.path("f.py"), "from doubling import twice\n").unwrap();
    fs::create_dir(place.path("packages")).unwrap();
    let module = "def twice(x):\n    return 2 * x\n";
    fs::write(place.path("packages/doubling.py"), module).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    fs::remove_dir_all(place.path("packages")).unwrap();
    let again = place.sweeper(&["rerun", place.run_folder().to_str().unwrap()]);
    assert_eq!(code(&again), 0, "{}", text(&again));
}

#[test]
fn an_edited_module_measures_its_backend_again_and_no_other() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = measured();
    let first = folder.run_folder();
    let path = folder.path("helper.py");
    let edited = fs::read_to_string(&path).unwrap().replace("x * 2", "x + x");
    fs::write(&path, edited).unwrap();
    let ran = folder.sweeper(&["run", "adversaries.toml", ONLY]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let said = text(&ran);
    assert!(said.contains(".digests.helper.py and"), "{said}");
    let runs: Vec<_> = fs::read_dir(folder.path("results")).unwrap().collect();
    assert_eq!(runs.len(), 2, "an edited file is another run");
    let second = runs.into_iter().map(|run| run.unwrap().path());
    let second = second.filter(|run| *run != first).collect::<Vec<_>>();
    let records = fs::read_to_string(second[0].join("records.csv")).unwrap();
    let taken = column(&records, "reused_from");
    for (backend, from) in column(&records, "backend").iter().zip(&taken) {
        assert_eq!(from.is_empty(), backend == "right", "{backend}: {said}");
    }
    let compared = folder.sweeper(&[
        "compare",
        first.to_str().unwrap(),
        second[0].to_str().unwrap(),
    ]);
    let said = text(&compared);
    assert!(said.contains("helper.py"), "{said}");
}

/// A module that no scan of imports sees.
#[test]
fn files_beside_the_identity_are_told() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = copied();
    let path = folder.path("helper.py");
    let dynamic = format!(
        "import importlib, sys\nsys.path.append({:?})\nfactor = importlib.import_module(\"hid\" + \"den\").FACTOR\n\
         def twice(x):\n    return x * factor\n",
        folder.path("").to_str().unwrap()
    );
    fs::write(&path, dynamic).unwrap();
    fs::write(folder.path("hidden.py"), "FACTOR = 2\n").unwrap();
    let ran = folder.sweeper(&["run", "adversaries.toml", ONLY]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let rows = rows(&folder);
    let (own, other) = (&rows["right forward"], &rows["native forward"]);
    assert_eq!(own["status"], "ok", "{}", own["reason"]);
    assert!(own["flags"].contains("unlisted_source"), "{}", own["flags"]);
    assert!(own["unlisted_sources"].ends_with("hidden.py"));
    assert!(
        !own["unlisted_sources"].contains(';'),
        "{}",
        own["unlisted_sources"]
    );
    assert!(!other["flags"].contains("unlisted_source"));

    let others = measured();
    assert_eq!(
        super::rows(&others)["right forward"]["unlisted_sources"],
        ""
    );
}

#[test]
fn another_interpreter_is_another_run_and_a_rerun_says_so() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let folder = measured();
    let run = folder.run_folder();
    let mut command = folder.command(&["rerun", run.to_str().unwrap()]);
    let refused = command.env("OMP_SCHEDULE", "static").output().unwrap();
    assert_ne!(code(&refused), 0);
    let said = text(&refused);
    assert!(said.contains("interpreters differs"), "{said}");
    assert!(said.contains("OMP_SCHEDULE=static"), "{said}");
    let row = &rows(&folder)["right forward"];
    assert_eq!(row["status"], "ok");
}

#[test]
fn a_folder_that_a_variable_names_stays_where_it_is() {
    let folder = copied();
    let manifest = folder.path("torch.toml");
    let held = fs::read_to_string(&manifest).unwrap();
    let held = held.replace("[python]", "[python]\npath = [\"${PACKAGES:-packages}\"]");
    fs::write(&manifest, held).unwrap();
    fs::create_dir(folder.path("packages")).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().to_str().unwrap();
    for (value, expected) in [
        (elsewhere, &*format!("path = [\"{elsewhere}\"]")),
        ("", "/${PACKAGES:-packages}\"]"),
    ] {
        let mut check = folder.command(&["check", "--resolved", "torch.toml"]);
        let shown = check.env("PACKAGES", value).output().unwrap();
        let shown = text(&shown);
        let line = shown.lines().find(|line| line.starts_with("path = "));
        assert!(line.is_some_and(|line| line.contains(expected)), "{shown}");
    }
}
