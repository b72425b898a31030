//! Workloads and kernels that a manifest declares.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sweeper::manifest::{Manifest, Overrides};
use sweeper_program::inputs::InputKey;
use sweeper_program::{
    CanonicalShape, Data, Dtype, Parameters, Phase, Problem, Refusal, Target, Tensors,
};

use crate::conformance::cuda;
use crate::place::{Place, text};
use crate::shim::{self, Mode};
use crate::support::resolve;

mod adversaries;
mod audit;
mod beside;
mod checks;
mod commands;
mod constants;
mod definition;
mod edited;
mod mutants;
mod racing;
mod untrusted;

fn declared(name: &str) -> PathBuf {
    Path::new("tests/manifests/declared").join(name)
}

fn manifest(name: &str) -> Manifest {
    match resolve(&declared(name), &Overrides::new()) {
        Ok(manifest) => manifest,
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

/// The problem of a manifest's first case with these sizes.
fn problem(manifest: &Manifest, sizes: &[(&str, i64)]) -> Box<dyn Problem> {
    let workload = manifest.cases[0].workload.workload().unwrap();
    let parameters: Parameters = sizes.iter().copied().collect();
    workload.problem(&parameters, Dtype::F32).unwrap()
}

fn backends(manifest: &Manifest) -> Vec<&'static str> {
    let backends = manifest.cases[0].backends.iter();
    backends.map(|backend| backend.0.name).collect()
}

/// The rows of the only run in a folder, by name of column.
fn rows(place: &Place) -> Vec<BTreeMap<String, String>> {
    let records = place.read("records.csv");
    let mut reader = csv::Reader::from_reader(records.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

/// A copy of the declared manifests in a folder of its own, which tests may edit.
fn copied() -> Place {
    let place = Place::new("");
    for entry in fs::read_dir("tests/manifests/declared").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::copy(&path, place.path(name)).unwrap();
    }
    place
}

#[test]
fn configurations_are_backends_with_one_family() {
    let manifest = manifest("add.toml");
    assert_eq!(
        backends(&manifest),
        [
            "add_cuda{block_size_x=64}",
            "add_cuda{block_size_x=256}",
            "add_cuda{block_size_x=2048}",
            "add_instance{block_size_x=128}",
            "add_c",
        ]
    );
    let mut overrides = Overrides::new();
    overrides.set("case.add.backends=add_cuda").unwrap();
    let chosen = resolve(&declared("add.toml"), &overrides).unwrap();
    assert_eq!(backends(&chosen), backends(&manifest)[..3]);
}

#[test]
fn spaces_are_pruned_and_sampled() {
    let folder = copied();
    let with = |tune: &str| {
        let text = fs::read_to_string(folder.path("add.toml")).unwrap();
        let tuned = "tune     = { block_size_x = [64, 256, 2048] }";
        assert!(text.contains(tuned));
        let path = folder.path("space.toml");
        fs::write(&path, text.replace(tuned, tune)).unwrap();
        let mut overrides = Overrides::new();
        overrides.set("case.add.backends=add_cuda").unwrap();
        backends(&resolve(&path, &overrides).unwrap())
    };
    let axes = "tune     = { a = [1, 2, 3], block_size_x = [64, 128] }\n";
    assert_eq!(with(axes).len(), 6);
    // A condition over tuned values alone leaves nothing behind.
    let rule = "require  = [{ that = \"block_size_x <= device.max_threads\", reason = \"more threads than a block has\" }]";
    let text = fs::read_to_string(folder.path("add.toml")).unwrap();
    let more = text.replace(rule, "require  = [\"a * 64 < block_size_x\"]");
    fs::write(folder.path("add.toml"), more).unwrap();
    assert_eq!(with(axes), ["add_cuda{a=1,block_size_x=128}"]);
    fs::write(folder.path("add.toml"), text).unwrap();
    let sampled = with(&format!("{axes}sample   = 3"));
    assert_eq!(sampled.len(), 3);
    assert_eq!(sampled[0], "add_cuda{a=1,block_size_x=64}");
    assert_eq!(with(&format!("{axes}sample   = 3")), sampled);
    let larger = with(&format!("{axes}sample   = 4"));
    assert!(sampled.iter().all(|name| larger.contains(name)));
}

#[test]
fn kernels_in_cuda_compute_the_problem() {
    if !shim::is_here() {
        return;
    }
    let manifest = manifest("add.toml");
    for n in [1, 1000, 4096] {
        let problem = problem(&manifest, &[("n", n)]);
        let inputs = problem.generate(&InputKey([3; 32]));
        let expected = problem.oracle(&inputs, Phase::Forward);
        for backend in &backends(&manifest)[..4] {
            let program =
                problem.program(backend, Phase::Forward, &CanonicalShape::default(), &cuda());
            if backend.contains("2048") {
                let reason = "more threads than a block has".to_owned();
                assert_eq!(program, Err(Refusal::Undefined(reason)));
                continue;
            }
            let program = program.unwrap();
            program.validate().unwrap();
            let specs = problem.outputs(Phase::Forward);
            let outputs = shim::run(&program, &inputs, &specs, Mode::Sanitized);
            let check = problem.check(&inputs, &outputs, &expected, Phase::Forward);
            assert!(check.passed(), "{backend} {n}: {:?}", check.tensors);
        }
    }
}

#[test]
fn a_device_gets_kernels_of_its_language() {
    let manifest = manifest("add.toml");
    let problem = problem(&manifest, &[("n", 8)]);
    let refusal = |backend, target: &Target| {
        let canonical = CanonicalShape::default();
        let program = problem.program(backend, Phase::Forward, &canonical, target);
        program.unwrap_err()
    };
    assert_eq!(
        refusal("add_cuda{block_size_x=64}", &Target::Cpu),
        Refusal::Unavailable("a CUDA kernel needs a GPU".to_owned())
    );
    assert_eq!(
        refusal("add_c", &cuda()),
        Refusal::Unavailable("a kernel in C runs on CPUs".to_owned())
    );
}

#[test]
fn a_run_is_checked_and_found_again() {
    let folder = copied();
    let ran = folder.sweeper(&["run", "add.toml", "--device", "cpu"]);
    let said = text(&ran);
    assert!(said.contains("2 ok"), "{said}");
    let rows = rows(&folder);
    let own: Vec<_> = rows
        .iter()
        .filter(|row| row["backend"] == "add_c")
        .collect();
    assert_eq!(own.len(), 2);
    for row in own {
        assert_eq!((&*row["status"], &*row["checked"]), ("ok", "full"));
        assert_eq!(row["flops"], format!("{}.0", row["axis_n"]));
    }
    let again = text(&folder.sweeper(&["run", "add.toml", "--device", "cpu"]));
    assert!(again.contains("nothing to do"), "{again}");
    // The run's folder has what a rerun needs, without the manifest and the sources.
    for file in ["add.toml", "add.c", "add.cu", "sum.h"] {
        fs::remove_file(folder.path(file)).unwrap();
    }
    let run = folder.run_folder();
    let id = run.to_str().unwrap().rsplit('-').next().unwrap().to_owned();
    let rerun = folder.sweeper(&["rerun", &id]);
    assert!(
        text(&rerun).contains("2 bit-identical, 0 differ"),
        "{}",
        text(&rerun)
    );
}

#[test]
fn an_edited_byte_is_another_run() {
    let folder = copied();
    let hash = || {
        let manifest = resolve(&folder.path("add.toml"), &Overrides::new()).unwrap();
        manifest.hash()
    };
    let before = hash();
    assert_eq!(before, hash());
    for (file, text) in [
        ("sum.h", "#define SUM(x, y) ((y) + (x))\n"),
        (
            "add.c",
            "/* */\n#include \"sum.h\"\nvoid vector_add(float *c, const float *a, const float *b, int n) { }\n",
        ),
    ] {
        let path = folder.path(file);
        let held = fs::read_to_string(&path).unwrap();
        fs::write(&path, text).unwrap();
        assert_ne!(before, hash(), "{file}");
        fs::write(&path, held).unwrap();
    }
    assert_eq!(before, hash());
}

/// The changed file is named first, by `compare` and by `why`, and a copy that was edited is
/// refused.
#[test]
fn changed_sources_are_named() {
    let folder = copied();
    let run = || text(&folder.sweeper(&["run", "add.toml", "--device", "cpu"]));
    run();
    let path = folder.path("sum.h");
    fs::write(&path, "#define SUM(x, y) ((y) + (x))\n").unwrap();
    let why = ["why", "add.toml", "n=1000 add_c", "--device", "cpu"];
    let why = text(&folder.sweeper(&why));
    assert!(why.contains("backend.add_c.digests.sum.h"), "{why}");
    run();
    let results = folder.path("results");
    let mut runs: Vec<PathBuf> = fs::read_dir(&results)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    runs.sort_by_key(|run| {
        fs::metadata(run.join("manifest.toml"))
            .unwrap()
            .modified()
            .unwrap()
    });
    let [old, new] = runs.as_slice() else {
        panic!("{runs:?}");
    };
    let [old, new] = [old, new].map(|run| run.to_str().unwrap());
    let compared = text(&folder.sweeper(&["compare", old, new]));
    let at = |words: &str| {
        compared
            .find(words)
            .unwrap_or_else(|| panic!("{words}: {compared}"))
    };
    assert!(
        at("source sum.h of add_c") < at("manifest hash"),
        "{compared}"
    );
    assert!(compared.contains("add_c"), "{compared}");
    let copy = Path::new(old).join("sources/add_c/sum.h");
    fs::write(copy, "#define SUM(x, y) 0\n").unwrap();
    let id = old.rsplit('-').next().unwrap();
    let rerun = text(&folder.sweeper(&["rerun", id]));
    assert!(
        rerun.contains("`sum.h` is not what was compiled for this run"),
        "{rerun}"
    );
}
