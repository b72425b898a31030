//! Flags, `--set`, environment, `extends`, and their precedence.

use std::fs;

use sweeper::grid::Grid;
use sweeper::hardware::DeviceKind;
use sweeper::manifest::overrides::FLAGS;
use sweeper::manifest::settings::{Canonical, DeviceUse, Stopping, Threads};
use sweeper::manifest::{Manifest, Origin, OverrideOrigin, Overrides, Sources};
use sweeper_program::{Dtype, Parameters, Phase, Value};

use crate::support::{REGISTRY, manifest, resolve, semicrf, with};

fn base() -> String {
    semicrf(
        "T = [128, 256]\nK = 4\nC = 3",
        "[measure]\nmax_rel_ci = 0.02\n",
    )
}

fn axis(manifest: &Manifest, name: &str) -> Vec<Value> {
    let case = &manifest.cases[0];
    case.values(case.variable(name).unwrap()).cloned().collect()
}

fn set(assignments: &[&str]) -> Overrides {
    let mut overrides = Overrides::new();
    for assignment in assignments {
        overrides.set(assignment).unwrap();
    }
    overrides
}

#[test]
fn lists_need_no_brackets_and_words_no_quotes() {
    for text in [
        "512,1024",
        "[512, 1024]",
        " 512 , 1024 ",
        "{ pow2 = [512, 1024] }",
    ] {
        let manifest = with(&base(), &set(&[&format!("grid.T={text}")]));
        assert_eq!(
            axis(&manifest, "T"),
            [Value::Int(512), Value::Int(1024)],
            "{text}"
        );
    }
    let manifest = with(
        &base(),
        &set(&["grid.semiring=Log,max", "name=other", "about=12"]),
    );
    let words = [Value::from("log"), Value::from("max")];
    assert_eq!(axis(&manifest, "semiring"), words);
    // A shell takes quotes away.
    let without_quotes = with(&base(), &set(&["grid.semiring=[log, max]"]));
    assert_eq!(axis(&without_quotes, "semiring"), words);
    assert_eq!(manifest.name, "other");
    assert_eq!(manifest.about, "12");
}

#[test]
fn flags_win_over_set_and_that_over_the_environment() {
    let mut overrides = Overrides::new();
    assert!(overrides.flag("--repeats", Some("7")));
    overrides.set("measure.repeats=6").unwrap();
    overrides.push(
        "measure.repeats",
        "5",
        OverrideOrigin::Environment("REPEATS".into()),
    );
    overrides.push(
        "cache.dir",
        "/tmp/x",
        OverrideOrigin::Environment("SWEEPER_CACHE_DIR".into()),
    );
    let manifest = with(&base(), &overrides);
    assert_eq!(manifest.measure.stopping, Stopping::Repeats(7));
    let origin = |path: &str| manifest.provenance().origin(path).to_string();
    assert_eq!(origin("measure.repeats"), "--repeats");
    assert_eq!(
        origin("cache.dir"),
        "environment variable SWEEPER_CACHE_DIR"
    );
    assert_eq!(origin("case.semicrf.grid.T"), "test.toml:3");
    assert_eq!(
        manifest.provenance().origin("measure.verify"),
        &Origin::Default
    );
    let shown = manifest.resolved_toml_with_origins();
    assert!(shown.contains("repeats = 7"), "{shown}");
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("verify") && line.ends_with("# default"))
    );
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("T =") && line.ends_with("# test.toml:3"))
    );
}

#[test]
fn a_setting_displaces_what_it_excludes_if_that_is_weaker() {
    // `repeats` on the command line against the adaptive rule of the manifest.
    let manifest = with(&base(), &set(&["measure.repeats=3"]));
    assert_eq!(manifest.measure.stopping, Stopping::Repeats(3));
    let published = base() + "[plan]\ncanonical = \"published\"\nmax_canonical_shapes = 3\n";
    let manifest = with(&published, &set(&["plan.canonical=dominating"]));
    assert_eq!(manifest.plan.canonical, Canonical::Dominating);
    // Two on the command line are a contradiction.
    let both = set(&["measure.repeats=3", "measure.max_rel_ci=0.1"]);
    let sources = Sources::from_text("test.toml", &base());
    let errors = Manifest::resolve(&sources, &both, &REGISTRY)
        .unwrap_err()
        .to_string();
    assert!(errors.contains("E0213"), "{errors}");
}

#[test]
fn every_flag_of_the_guide_sets_something() {
    let mut overrides = Overrides::new();
    for (flag, value) in [
        ("--device", "cuda:0"),
        ("--T", "64,128"),
        ("--K", "8"),
        ("--C", "3,6"),
        ("--B", "2"),
        ("--phases", "forward,both"),
        ("--backends", "triton,linear_scan_streaming"),
        ("--semirings", "Log,Max"),
        ("--max-canonical-shapes", "4"),
        ("--samples-per-shape", "1"),
        ("--compile-cache-dir", "/scratch/x"),
        ("--compile-cache-size-gb", "50.0"),
        ("--compile-threads", "8"),
        ("--output-dir", "out"),
        ("--repeats", "9"),
    ] {
        assert!(overrides.flag(flag, Some(value)), "{flag}");
    }
    assert!(overrides.flag("--compile-friendly", None));
    assert!(!overrides.flag("--frobnicate", None));
    let manifest = with(&base(), &overrides);
    let case = &manifest.cases[0];
    assert_eq!(
        manifest.device.use_,
        DeviceUse::Listed(DeviceKind::Cuda, vec![0])
    );
    let backends: Vec<&str> = case.backends.iter().map(|backend| backend.name).collect();
    assert_eq!(backends, ["fused", "streaming"]);
    assert_eq!(case.phases, [Phase::Forward, Phase::Both]);
    let published = Canonical::Published {
        max_canonical_shapes: 4,
        samples_per_shape: 1,
    };
    assert_eq!(manifest.plan.canonical, published);
    assert_eq!(manifest.cache.size_bytes, 50 << 30);
    assert_eq!(manifest.cache.compile_threads, Threads::Count(8));
    assert_eq!(manifest.output.dir.to_str(), Some("out"));
    assert_eq!(Grid::new(&manifest).points().len(), 2 * 2 * 2 * 2 * 2);
}

#[test]
fn checkpointing_replaces_the_fused_backend() {
    let text = base().replace("[\"fused\"]", "[\"streaming\", \"triton\"]");
    let mut overrides = Overrides::new();
    overrides.flag("--no-use-compile", None);
    let manifest = with(&text, &overrides);
    let names: Vec<&str> = manifest.cases[0]
        .backends
        .iter()
        .map(|each| each.name)
        .collect();
    assert_eq!(names, ["streaming", "fused_checkpointing"]);
}

#[test]
fn flags_are_listed_once() {
    let mut all: Vec<&str> = FLAGS.iter().flat_map(|flag| flag.flags).copied().collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert!(all.iter().all(|flag| flag.starts_with("--")));
}

#[test]
fn a_shared_axis_from_outside_wins_over_the_axis_of_a_case() {
    let text = semicrf("T = 64\nK = 4\nC = 3", "grid = { T = [1, 2] }\nB = 7");
    let manifest = with(&text, &set(&["grid.T=512", "grid.B=3"]));
    assert_eq!(axis(&manifest, "T"), [Value::Int(512)]);
    assert_eq!(axis(&manifest, "B"), [Value::Int(3)]);
}

#[test]
fn what_is_wrong_with_a_setting_names_it() {
    let mut overrides = set(&[
        "grid.T=256,abc",
        "measure.repeets=3",
        "plan..x=1",
        "seed.x=1",
    ]);
    overrides.flag("--backends", Some("fused,cudnn"));
    overrides.flag("--phases", Some("[\"forward\""));
    overrides.flag("--K", Some("0"));
    let sources = Sources::from_text("test.toml", &base());
    let errors = Manifest::resolve(&sources, &overrides, &REGISTRY).unwrap_err();
    let text = errors.to_string();
    let path = std::path::Path::new("tests/golden/overrides.stderr");
    crate::support::golden(path, &text).unwrap_or_else(|error| panic!("{error}"));
    assert!(set_error("grid.T").contains("E0219"));
}

fn set_error(assignment: &str) -> String {
    Overrides::new().set(assignment).unwrap_err().to_string()
}

#[test]
fn a_manifest_is_laid_over_the_one_it_extends() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let bottom = semicrf(
        "T = [128, 256]\nK = 4\nC = 3",
        "[measure]\nrepeats = 5\n[limits]\nmax_memory_gb = 2\n[[exclude]]\nwhen = \"T > 128 and C == 6\"\n",
    );
    fs::write(path("bottom.toml"), bottom).unwrap();
    let middle =
        "schema = 1\nextends = \"bottom.toml\"\n[grid]\nC = { range = [3, 9], step = 3 }\n";
    fs::write(path("middle.toml"), middle).unwrap();
    let top = "schema = 1\nextends = \"middle.toml\"\n[measure]\nmax_rel_ci = 0.5\n\
               [[exclude]]\nwhen = \"T == 128 and C == 3\"\n[case.semicrf]\nphases = [\"both\"]\n";
    fs::write(path("top.toml"), top).unwrap();
    let manifest = resolve(&path("top.toml"), &Overrides::new()).unwrap();
    assert_eq!(manifest.name, "top");
    let case = &manifest.cases[0];
    assert_eq!(case.exclude.len(), 2);
    assert_eq!(case.phases, [Phase::Both]);
    assert_eq!(case.backends.len(), 1);
    assert_eq!(manifest.limits.max_memory_bytes, Some(2 << 30));
    assert!(matches!(
        manifest.measure.stopping,
        Stopping::Adaptive { .. }
    ));
    assert_eq!(Grid::new(&manifest).points().len(), 2);
    let origin = manifest
        .provenance()
        .origin("case.semicrf.grid.C")
        .to_string();
    assert!(origin.ends_with("middle.toml:4"), "{origin}");
}

/// As sections of settings, workloads and backends keep the keys that nothing is laid over.
#[test]
fn declared_workloads_and_backends_are_laid_over_key_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let bottom = "schema = 1\n[workload.w]\nparams = { n = { int = [1, 9] } }\n\
                  inputs.x = { dtype = \"f32\", shape = [\"n\"] }\n\
                  outputs.y = { dtype = \"f32\", shape = [\"n\"] }\n\
                  check = { reference = { expr = \"x\" }, tolerance = 1e-3 }\n\
                  [backend.a]\nworkload = \"w\"\nc = \"a.c\"\nentry = \"f\"\nargs = [\"x\", \"y\"]\n\
                  [case.w]\nworkload = \"w\"\ngrid = { n = 3 }\n";
    fs::write(path("a.c"), "void f(const float *x, float *y) {}\n").unwrap();
    fs::write(path("bottom.toml"), bottom).unwrap();
    let top = "schema = 1\nextends = \"bottom.toml\"\n[workload.w]\ncheck = { tolerance = 1e-2 }\n\
               require = \"own kernels\"\n\
               [backend.a]\noptions = [\"-O1\"]\n[backend.b]\nlike = \"a\"\ndefines = { N = 1 }\nlibraries = true\n";
    fs::write(path("top.toml"), top).unwrap();
    let manifest = resolve(&path("top.toml"), &Overrides::new()).unwrap();
    let names = manifest.cases[0].backends.iter().map(|held| held.0.name);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b"]);
    let resolved = manifest.resolved_toml();
    let printed = [
        "expr = \"x\"",
        "0.01",
        "-O1",
        "a.c",
        "require = \"own kernels\"",
        "libraries = true",
    ];
    for kept in printed {
        assert!(resolved.contains(kept), "{kept}: {resolved}");
    }
    // It holds for all backends of the problem but those that are exempt.
    let case = &manifest.cases[0];
    let parameters: Parameters = [("n", 3)].into_iter().collect();
    let problem = case
        .workload
        .workload()
        .unwrap()
        .problem(&parameters, Dtype::F32)
        .unwrap();
    assert!(problem.requires_own_kernels("a") && !problem.requires_own_kernels("b"));
}

#[test]
fn variables_are_expanded_in_paths_and_thread_counts() {
    let text = base()
        + "[cache]\ndir = \"${SCRATCH:-/tmp}/x\"\nupstream = [\"${A}/y\"]\n\
           compile_threads = \"${CPUS:-all}\"\n[device]\nthreads = \"${THREADS:-2}\"\n";
    let mut sources = Sources::from_text("test.toml", &text);
    sources.set_variable("A", "/a");
    sources.set_variable("SCRATCH", "");
    let resolve = |sources: &Sources| {
        Manifest::resolve(sources, &Overrides::new(), &REGISTRY).unwrap_or_else(|e| panic!("{e}"))
    };
    let manifest = resolve(&sources);
    assert_eq!(
        manifest.cache.dir.as_ref().unwrap().to_str(),
        Some("/tmp/x")
    );
    assert_eq!(manifest.cache.upstream[0].to_str(), Some("/a/y"));
    assert_eq!(manifest.cache.compile_threads, Threads::All);
    assert_eq!(manifest.device.threads, 2);
    sources.set_variable("SCRATCH", "/scratch");
    sources.set_variable("CPUS", "12");
    let other = resolve(&sources);
    assert_eq!(other.cache.compile_threads, Threads::Count(12));
    assert_eq!(other.hash(), manifest.hash());
}

#[test]
fn a_point_is_what_the_manifest_says() {
    let manifest = manifest(&base());
    let grid = Grid::new(&manifest);
    let parameters = grid.parameters(grid.points()[1]);
    assert_eq!(parameters.get("T"), Some(&Value::Int(256)));
    assert_eq!(parameters.get("B"), Some(&Value::Int(4)));
    assert_eq!(parameters.get("semiring"), Some(&Value::from("log")));
    assert_eq!(parameters.iter().len(), 9);
}
