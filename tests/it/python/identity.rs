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
fn folders_of_modules_must_be_there() {
    let missing = Place::new(DOUBLING).sweeper(&["check", "m.toml"]);
    assert_eq!(code(&missing), 3, "{}", text(&missing));
}

/// The file that is imported as a module is that of the module.
#[test]
fn a_file_and_its_module_are_one() {
    let file = "python   = \"packages/pkg/other.py\"\nmodule   = \"pkg.inner\"";
    let place = Place::new(&DOUBLING.replace("python   = \"f.py\"", file));
    fs::create_dir_all(place.path("packages")).unwrap();
    let refused = text(&place.sweeper(&["check", "m.toml"]));
    assert!(
        refused.contains("is not the file of `pkg.inner`"),
        "{refused}"
    );
}

/// The same package that fails is not half there for the next point.
#[test]
fn a_failed_import_leaves_nothing_behind() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = Place::new(
        &DOUBLING
            .replace("python   = \"f.py\"", "module   = \"pkg.inner\"")
            .replace("n = 10 }", "n = [10, 20, 30] }"),
    );
    fs::create_dir_all(place.path("packages/pkg")).unwrap();
    let outer = "from . import inner\nimport no_such_package\n";
    fs::write(place.path("packages/pkg/__init__.py"), outer).unwrap();
    let inner = "def twice(x):\n    return 2 * x\n";
    fs::write(place.path("packages/pkg/inner.py"), inner).unwrap();
    let ran = place.sweeper(&["run", "m.toml"]);
    assert!(text(&ran).contains("(3 unavailable)"), "{}", text(&ran));
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

    // Each row that depends on it says so: of other sizes, of other backends of the file, and of
    // other files that import it.
    let place = Place::new(&DOUBLING.replace("n = 10 }", "n = [10, 20] }").replace(
        "[case.twice]",
        "[backend.same]\nlike = \"twice\"\n[backend.other]\nlike = \"twice\"\npython = \"g.py\"\n\
                 [backend.apart]\nlike = \"twice\"\npython = \"h.py\"\n[case.twice]",
    ));
    for folder in ["packages", "beside"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    let double = "def double(x):\n    return x + x\n";
    fs::write(place.path("beside/inner.py"), double).unwrap();
    let here = "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + '/beside')\n";
    let late = "def twice(x):\n    from inner import double\n    return double(x)\n";
    for (name, function) in [
        ("f.py", late),
        ("g.py", late),
        ("h.py", "def twice(x):\n    return 2 * x\n"),
    ] {
        fs::write(place.path(name), format!("{here}{function}")).unwrap();
    }
    let ran = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let records = fs::read_to_string(place.run_folder().join("records.csv")).unwrap();
    let named = column(&records, "unlisted_sources");
    for (backend, files) in column(&records, "backend").iter().zip(&named) {
        assert_eq!(
            files.ends_with("beside/inner.py"),
            backend != "apart",
            "{backend}: {files}"
        );
    }

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
