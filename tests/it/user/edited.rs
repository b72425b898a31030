//! An edited source measures the points of its backend again, and no others.

use std::fs;
use std::path::PathBuf;

use super::copied;
use crate::place::{Place, code, column, text};

/// Two backends in C, of which one has a source of its own.
fn two_backends() -> Place {
    let folder = copied();
    let own = fs::read_to_string(folder.path("add.c")).unwrap();
    fs::write(folder.path("other.c"), own.replace("sum.h", "other.h")).unwrap();
    fs::copy(folder.path("sum.h"), folder.path("other.h")).unwrap();
    let manifest = fs::read_to_string(folder.path("add.toml")).unwrap();
    let other = "[backend.other_c]\nworkload = \"vector_add\"\nc = \"other.c\"\nentry = \"vector_add\"\n\
                 args = [\"c\", \"a\", \"b\", { i32 = \"n\" }]\n\n[case.add]";
    fs::write(
        folder.path("add.toml"),
        manifest.replace("[case.add]", other),
    )
    .unwrap();
    folder
}

fn sweeper(folder: &Place, words: &[&str]) -> String {
    let said = folder.sweeper(words);
    assert_eq!(code(&said), 0, "{}", text(&said));
    text(&said)
}

const RUN: [&str; 4] = ["run", "add.toml", "--device", "cpu"];

fn run_folders(folder: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path("results")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Backend and origin of each row of a run.
fn origins(run: &std::path::Path) -> Vec<(String, bool)> {
    let records = fs::read_to_string(run.join("records.csv")).unwrap();
    let taken = column(&records, "reused_from");
    let taken = taken.into_iter().map(|run| !run.is_empty());
    column(&records, "backend").into_iter().zip(taken).collect()
}

#[test]
fn an_edited_include_measures_its_backend_again_and_no_other() {
    let folder = two_backends();
    folder.sweeper(&RUN);
    let first = folder.run_folder();
    assert!(origins(&first).iter().all(|(_, taken)| !taken));
    fs::write(folder.path("other.h"), "#define SUM(x, y) ((y) + (x))\n").unwrap();
    let named = "backend.other_c.digests.other.h";
    let words = ["plan", "add.toml", "--device", "cpu"];
    let planned = sweeper(&folder, &words);
    assert!(
        planned.contains(&format!("edited     {named} changed")),
        "{planned}"
    );
    let why = |backend: &str| {
        let point = format!("n=1000 {backend}");
        sweeper(&folder, &["why", "add.toml", &point, "--device", "cpu"])
    };
    let (edited, other) = (why("other_c"), why("add_c"));
    assert!(
        edited.contains("to be measured: run") && edited.contains(named),
        "{edited}"
    );
    assert!(
        other.contains("not to be measured: taken from run"),
        "{other}"
    );
    let said = text(&folder.sweeper(&RUN));
    assert!(
        said.contains(&format!("{named} changed since run")),
        "{said}"
    );
    assert!(said.contains(": 2 of "), "{said}");
    let runs = run_folders(&folder);
    assert_eq!(runs.len(), 2);
    let second = runs.iter().find(|run| **run != first).unwrap();
    let rows = origins(second);
    assert_eq!(
        rows.iter().filter(|(_, taken)| !taken).count(),
        2,
        "{rows:?}"
    );
    for (backend, taken) in &rows {
        assert_eq!(*taken, backend != "other_c", "{rows:?}");
    }
    // A backend is paired with its edited self.
    let [old, new] = [&first, second].map(|run| run.to_str().unwrap());
    let compared = text(&folder.sweeper(&["compare", old, new]));
    assert!(compared.contains("source other.h of other_c"), "{compared}");
    assert!(!compared.contains("only in"), "{compared}");
    // All is measured where that is asked for.
    let fresh = text(&folder.sweeper(&["run", "add.toml", "--device", "cpu", "--fresh"]));
    assert!(!fresh.contains("changed since run"), "{fresh}");
}

#[test]
fn an_edit_that_was_undone_is_taken_from_the_run_before_it() {
    let folder = two_backends();
    folder.sweeper(&RUN);
    let first = folder.run_folder();
    let text_of = |name: &str| fs::read_to_string(folder.path(name)).unwrap();
    let (header, edited) = (text_of("other.h"), "#define SUM(x, y) ((y) + (x))\n");
    fs::write(folder.path("other.h"), edited).unwrap();
    folder.sweeper(&RUN);
    fs::write(folder.path("other.h"), &header).unwrap();
    fs::write(folder.path("add.c"), text_of("add.c") + "\n").unwrap();
    let point = "n=1000 other_c";
    let why = sweeper(&folder, &["why", "add.toml", point, "--device", "cpu"]);
    let run = first.file_name().unwrap().to_str().unwrap();
    let run = run.rsplit_once('-').unwrap().1;
    let taken = format!("not to be measured: taken from run {run}");
    assert!(why.contains(&taken), "{why}");
    assert!(why.contains("backend.add_c.digests.add.c"), "{why}");
    assert!(!why.contains("other.h"), "{why}");
}

#[test]
fn results_of_an_edited_backend_are_not_reused() {
    let folder = two_backends();
    folder.sweeper(&RUN);
    let first = folder.run_folder();
    fs::write(folder.path("other.h"), "#define SUM(x, y) ((y) + (x))\n").unwrap();
    folder.sweeper(&["run", "add.toml", "--device", "cpu", "--reuse"]);
    let runs = run_folders(&folder);
    let second = runs.iter().find(|run| **run != first).unwrap();
    let rows = origins(second);
    let mut edited = rows.iter().filter(|(backend, _)| backend == "other_c");
    assert!(edited.all(|(_, taken)| !taken), "{rows:?}");
}

/// A kernel includes a file where a condition holds: the compiler says whether it is needed, and a
/// file that appears is part of the kernel.
#[test]
fn an_include_under_a_condition_need_not_be_there() {
    let folder = two_backends();
    let optional = |condition: &str| {
        let own = fs::read_to_string(folder.path("add.c")).unwrap();
        let own = own.replace("sum.h", "other.h");
        let text = format!("#if {condition}\n#include \"optional.h\"\n#endif\n{own}");
        fs::write(folder.path("other.c"), text).unwrap();
    };
    optional("__has_include(\"optional.h\")");
    sweeper(&folder, &RUN);
    fs::write(folder.path("optional.h"), "// nothing\n").unwrap();
    let planned = sweeper(&folder, &["plan", "add.toml", "--device", "cpu"]);
    assert!(planned.contains("backend.other_c.digests"), "{planned}");
    fs::remove_file(folder.path("optional.h")).unwrap();
    optional("1");
    let said = text(&folder.sweeper(&RUN));
    assert!(said.contains("optional.h"), "{said}");
    let runs = run_folders(&folder);
    let records = runs
        .iter()
        .map(|run| fs::read_to_string(run.join("records.csv")).unwrap());
    let failed = records.map(|records| {
        let [status, reason] = ["status", "reason"].map(|name| column(&records, name));
        let mut rows = status.iter().zip(&reason);
        rows.any(|(status, reason)| status == "compile_error" && reason.contains("optional.h"))
    });
    assert_eq!(failed.filter(|failed| *failed).count(), 1);
}
