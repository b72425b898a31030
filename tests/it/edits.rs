//! Each input of each kind of backend: an edit of it measures the points that depend on it again,
//! and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::cases::case;
use crate::place::{Place, code, column, text};
use crate::support::{has_package, nvrtc};

/// What is edited, a file or a variable, and the backends whose results depend on it.
const EDITS: [(&str, &str); 33] = [
    ("c/own.c", "c_own referred_c made_c"),
    ("c/one.h", "c_header"),
    ("inc/two.h", "c_header cu_header"),
    ("outside/option.h", "c_option cu_option"),
    ("outside/forced.h", "c_forced cu_forced"),
    ("outside/blob.txt", "c_embed"),
    ("outside/libfactor.so", "c_library"),
    ("outside/data.txt", "c_data"),
    ("$FACTOR_OF_C", "c_variable"),
    ("cu/own.cu", "cu_own"),
    ("cu/one.cuh", "cu_header"),
    ("py/own.py", "py_own"),
    ("packages/pack/__init__.py", "py_module py_named"),
    ("packages/pack/leaf.py", "py_module"),
    ("packages/pack/named.py", "py_named"),
    ("packages/pack/part.py", "py_named"),
    ("py/late.py", "py_inside"),
    ("py/second.py", "py_line"),
    ("py/third.py", "py_condition"),
    ("py/factor.txt", "py_data"),
    ("outside/code.txt", "py_executed"),
    ("$FACTOR_OF_PYTHON", "py_variable"),
    ("ref/right.py", "referred_c"),
    ("ref/own.py", "referred_c"),
    ("outside/right.txt", "referred_c"),
    ("ref/start.py", "made_c"),
    ("cmd/script.py", "script"),
    ("cmd/part.py", "listed"),
    ("cmd/corpus.txt", "script listed corpus"),
    ("cmd/unrelated.txt", ""),
    ("py/unrelated.py", ""),
    ("c/unrelated.h", ""),
    ("$UNRELATED", ""),
];

/// Backends that the last edits leave as they are, and those that are right after them.
const KEPT: [&str; 2] = ["c_own", "py_variable"];
const RIGHT: [&str; 6] = [
    "c_own",
    "py_variable",
    "made_c",
    "script",
    "listed",
    "corpus",
];

const OF_GPU: [&str; 4] = ["plan", "cu.toml", "--arch", "sm_90"];

/// Runs a command where all variables are 2, but for the edited one.
fn sweeper(place: &Place, args: &[&str], edited: &str) -> String {
    let mut command = place.command(args);
    for (name, _) in EDITS {
        if let Some(variable) = name.strip_prefix('$') {
            command.env(variable, if name == edited { "3" } else { "2" });
        }
    }
    let ran = command.output().unwrap();
    assert!([0, 4].contains(&code(&ran)), "{args:?}: {}", text(&ran));
    text(&ran)
}

/// Edits a file; its factor is 3 then, if it has one.
fn edit(place: &Place, name: &str) {
    if name.ends_with(".so") {
        return build(place, 3);
    }
    let held = fs::read_to_string(place.path(name)).unwrap();
    let edited = match held.contains('2') {
        true => held.replacen('2', "3", 1),
        false => held + "\n",
    };
    fs::write(place.path(name), edited).unwrap();
}

fn build(place: &Place, factor: u32) {
    let source = format!("float factor(void) {{ return {factor}; }}\n");
    fs::write(place.path("factor.c"), source).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]);
    cc.args(["outside/libfactor.so", "factor.c"].map(|name| place.path(name)));
    assert!(cc.status().unwrap().success());
}

/// The backend of each point of both manifests.
fn points(place: &Place, edited: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for plan in [&["plan", "m.toml"][..], &OF_GPU] {
        let said = sweeper(place, &[plan, &["--json"]].concat(), edited);
        let plan: serde_json::Value = serde_json::from_str(&said).unwrap();
        for point in plan["points"].as_array().unwrap() {
            let [id, label] = ["point", "label"].map(|key| point[key].as_str().unwrap());
            // Such as `twice n=64 c_own forward`.
            let backend = label.split(' ').nth(2).unwrap();
            found.insert(id.to_owned(), backend.to_owned());
        }
    }
    found
}

#[test]
fn an_edit_measures_what_depends_on_it_and_nothing_else() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = case("edited");
    let root = place.path("m.toml").parent().unwrap().display().to_string();
    for name in [
        "m.toml",
        "cu.toml",
        "c/embed.c",
        "c/data.c",
        "py/executed.py",
        "ref/right.py",
    ] {
        let held = fs::read_to_string(place.path(name)).unwrap();
        fs::write(place.path(name), held.replace("ROOT", &root)).unwrap();
    }
    build(&place, 2);
    sweeper(&place, &["run", "m.toml"], "");
    let first = place.run_folder();
    let records = fs::read_to_string(first.join("records.csv")).unwrap();
    let statuses = column(&records, "status");
    assert!(statuses.iter().all(|status| status == "ok"), "{records}");
    let known = points(&place, "");
    // What a function writes is none of its inputs, and a run can do without what it has copied.
    let measured = column(&records, "point");
    assert!(measured.iter().all(|point| known.contains_key(point)));
    for folder in ["py", "packages", "c"] {
        fs::rename(place.path(folder), place.path("aside")).unwrap();
        let rerun = sweeper(&place, &["rerun", first.to_str().unwrap()], "");
        assert!(
            rerun.contains("0 differ, 0 rows of another status"),
            "{rerun}"
        );
        fs::rename(place.path("aside"), place.path(folder)).unwrap();
    }
    for (name, expected) in EDITS {
        let held = fs::read(place.path(name)).ok();
        if held.is_some() {
            edit(&place, name);
        }
        let new = points(&place, name).into_iter();
        let new = new.filter(|(id, _)| !known.contains_key(id));
        let new: BTreeSet<String> = new.map(|(_, backend)| backend).collect();
        let expected: BTreeSet<&str> = expected.split_whitespace().collect();
        assert!(new.iter().eq(&expected), "{name}: {new:?}");
        // The run that would start takes the others from the first one.
        let count = expected
            .iter()
            .filter(|name| !name.starts_with("cu"))
            .count();
        let told = format!(": {count} of {} points are to be measured", statuses.len());
        let said = sweeper(&place, &["plan", "m.toml"], name);
        assert!(said.contains(&told) || count == 0, "{name}: {said}");
        if let Some(held) = held {
            fs::write(place.path(name), held).unwrap();
        }
    }

    // Results are those of what is there now, and not of compiled code or answers that were kept.
    let compile = ["compile", "cu.toml", "--arch", "sm_90"];
    let compiled = || nvrtc().map(|_| sweeper(&place, &compile, ""));
    compiled();
    let files = EDITS[1..].iter().filter(|(name, _)| !name.starts_with('$'));
    files.for_each(|(name, _)| edit(&place, name));
    assert!(compiled().is_none_or(|said| said.contains(": 4 compiled")));
    let said = sweeper(&place, &["run", "m.toml"], "$FACTOR_OF_C");
    let mut runs = fs::read_dir(place.path("results")).unwrap();
    let second = runs.find_map(|run| Some(run.unwrap().path()).filter(|run| *run != first));
    let records = fs::read_to_string(second.unwrap().join("records.csv")).unwrap();
    let [statuses, from] = ["status", "reused_from"].map(|name| column(&records, name));
    for (at, backend) in column(&records, "backend").iter().enumerate() {
        let [is_kept, is_right] = [&KEPT[..], &RIGHT].map(|all| all.contains(&&**backend));
        assert_eq!(!from[at].is_empty(), is_kept, "{backend}: {said}");
        assert_eq!(statuses[at] == "ok", is_right, "{backend}: {said}");
    }
}
