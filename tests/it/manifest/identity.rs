//! The changes of a manifest that change its identity, and the changes that do not.

use std::path::Path;

use sweeper::grid::Grid;
use sweeper::identity::{
    CacheState, Conditions, Digest, InputSource, ManifestHash, PointId, ProblemId, point_id,
    problem_id, run_id,
};
use sweeper::manifest::{Manifest, Overrides, Sources, registry};
use sweeper::mode::{Launching, Mode};
use sweeper_program::{CanonicalShape, Dtype, Parameters, Phase};

use crate::support::{REGISTRY, manifest};

const BASE: &str = r#"
schema = 1
name = "base"
about = "?"
seed = 42
[grid]
T = [128, 256, 2048]
K = [4, 8]
C = { values = [3, 6], when = "backend == 'fused'", else = 3 }
[derive]
KC = "K * C"
[[zip]]
axes = { B = [1, 2], semiring = ["log", "max"] }
[[exclude]]
when = "K > T"
reason = "too long"
[[exclude]]
when = "KC > 40 and T == 128"
[[exclude]]
when = "T == 2048 and K != 4"
[[include]]
point = { T = 512, K = 16, C = 3, B = 1, semiring = "log" }
phases = ["both"]
[case.semicrf]
workload = "semicrf"
backends = ["streaming", "fused"]
phases = ["forward", "both"]
lengths = "full"
[plan]
buckets = { T = [128, 2048] }
order = "interleaved"
[measure]
repeats = 5
warmup = "auto"
l2 = "cold"
verify = true
[limits]
max_memory_gb = 4
point_timeout_s = 10
[output]
dir = "a"
[report]
baseline = "fused"
[device]
threads = 1
[null]
time_ns = "100 * T"
outcomes = [{ when = "T > 128", status = "oom" }]
"#;

fn hash(text: &str) -> ManifestHash {
    manifest(text).hash()
}

fn edited(from: &str, to: &str) -> String {
    assert!(BASE.contains(from), "{from}");
    BASE.replacen(from, to, 1)
}

const CHANGES: &[(&str, &str)] = &[
    ("seed = 42", "seed = 43"),
    ("T = [128, 256, 2048]", "T = [128, 256]"),
    ("T = [128, 256, 2048]", "T = [128, 256, 2049]"),
    ("K = [4, 8]", "K = [4, 8, 16]"),
    ("values = [3, 6]", "values = [3, 9]"),
    (
        "when = \"backend == 'fused'\"",
        "when = \"backend == 'streaming'\"",
    ),
    ("else = 3", "else = 4"),
    ("KC = \"K * C\"", "KC = \"K * C * 2\""),
    ("KC = \"K * C\"", "KC = \"K * C\"\nTK = \"T * K\""),
    ("B = [1, 2]", "B = [1, 3]"),
    (
        "semiring = [\"log\", \"max\"]",
        "semiring = [\"max\", \"log\"]",
    ),
    ("when = \"K > T\"", "when = \"K >= T\""),
    ("T == 2048 and K != 4", "T == 2048 and K != 8"),
    ("point = { T = 512", "point = { T = 1024"),
    ("phases = [\"both\"]", "phases = [\"forward\"]"),
    ("phases = [\"both\"]", "backends = [\"fused\"]"),
    (
        "[\"streaming\", \"fused\"]",
        "[\"streaming\", \"fused\", \"fused_reference\"]",
    ),
    (
        "phases = [\"forward\", \"both\"]",
        "phases = [\"forward\", \"backward\", \"both\"]",
    ),
    ("lengths = \"full\"", "lengths = \"random\""),
    (
        "buckets = { T = [128, 2048] }",
        "buckets = { T = [128, 256, 2048] }",
    ),
    (
        "buckets = { T = [128, 2048] }",
        "buckets = { KC = [128, 2048] }",
    ),
    ("order = \"interleaved\"", "canonical = \"published\""),
    (
        "order = \"interleaved\"",
        "canonical = \"published\"\nmax_canonical_shapes = 9",
    ),
    (
        "order = \"interleaved\"",
        "canonical = \"published\"\nsamples_per_shape = 9",
    ),
    ("repeats = 5", "repeats = 6"),
    ("repeats = 5", "max_rel_ci = 0.1"),
    ("repeats = 5", "min_samples = 11"),
    ("repeats = 5", "max_samples = 111"),
    ("repeats = 5", "max_seconds = 111"),
    ("warmup = \"auto\"", "warmup = 3"),
    ("l2 = \"cold\"", "l2 = \"hot\""),
    ("l2 = \"cold\"", "l2 = \"clean\""),
    ("verify = true", "verify = true\nmode = \"graph\""),
    ("verify = true", "verify = false"),
    ("time_ns = \"100 * T\"", "time_ns = \"101 * T\""),
    (
        "time_ns = \"100 * T\"",
        "time_ns = \"100 * T\"\nnoise = 0.1",
    ),
    (
        "time_ns = \"100 * T\"",
        "time_ns = \"100 * T\"\nmemory_bytes = \"8 * T\"",
    ),
    ("status = \"oom\"", "status = \"crashed\""),
];

#[test]
fn every_key_that_changes_what_rows_mean_changes_the_hash() {
    let base = hash(BASE);
    for (from, to) in CHANGES {
        assert_ne!(hash(&edited(from, to)), base, "{from} -> {to}");
    }
}

#[test]
fn what_does_not_change_what_rows_mean_does_not_change_the_hash() {
    let base = hash(BASE);
    for (from, to) in [
        ("name = \"base\"", "name = \"other\"\ntags = [\"x\"]"),
        ("about = \"?\"", "about = \"!\" # a comment"),
        (
            "T = [128, 256, 2048]\nK = [4, 8]",
            "K = [8, 4]\nT = [2048, 128, 256]",
        ),
        ("T = [128, 256, 2048]", "T = { values = [128, 256, 2048] }"),
        (
            "B = [1, 2], semiring = [\"log\", \"max\"]",
            "semiring = [\"max\", \"log\"], B = [2, 1]",
        ),
        ("KC = \"K * C\"", "KC = \"(K) *  C\""),
        (
            "when = \"K > T\"\nreason = \"too long\"",
            "when = \"(K > T)\"",
        ),
        (
            "[\"streaming\", \"fused\"]",
            "[\"triton\", \"linear_scan_streaming\"]",
        ),
        ("[\"forward\", \"both\"]", "[\"both\", \"forward\"]"),
        ("[case.semicrf]", "[case.another]"),
        ("lengths = \"full\"\n", ""),
        ("order = \"interleaved\"", "order = \"random\""),
        (
            "max_memory_gb = 4",
            "max_memory_gb = 5\nskip_adjacent_oom = true\nmax_points = 7\nsample_configs = 3",
        ),
        (
            "point_timeout_s = 10",
            "point_timeout_s = 11\ncompile_timeout_s = 11\noracle_s = 1\nanchor_s = 9",
        ),
        ("dir = \"a\"", "dir = \"b\"\nexports = [\"heatmap_data\"]"),
        (
            "baseline = \"fused\"",
            "plots = [\"throughput\"]\nformat = \"svg\"",
        ),
        ("threads = 1", "threads = 2\nuse = \"cpu\""),
        (
            "[device]",
            "[cache]\ndir = \"/x\"\nsize_gb = 1\ncompile_threads = 3\n[device]",
        ),
    ] {
        assert_eq!(hash(&edited(from, to)), base, "{from} -> {to}");
    }
}

/// A manifest that sets every key, with the hash that it has had since there are manifests.
#[test]
fn every_setting_is_hashed_as_it_was() {
    let path = Path::new("tests/manifests/every_setting.toml");
    let sources = Sources::read(path).unwrap();
    let hash = |overrides: &Overrides| {
        let manifest = Manifest::resolve(&sources, overrides, &registry());
        manifest.unwrap_or_else(|errors| panic!("{errors}")).hash()
    };
    assert_eq!(hash(&Overrides::new()).to_string(), "b48a1f82c808");
    let mut repeats = Overrides::new();
    repeats.set("measure.repeats=5").unwrap();
    assert_eq!(hash(&repeats).to_string(), "c8086f725805");
}

#[test]
fn cases_are_a_set() {
    let case = |name: &str, backend: &str| {
        format!("[case.{name}]\nworkload = \"semicrf\"\nbackends = [\"{backend}\"]\n")
    };
    let head = "schema = 1\n[grid]\nT = 4\nK = 2\nC = 3\n";
    let one = format!("{head}{}{}", case("a", "fused"), case("b", "streaming"));
    let other = format!(
        "{head}{}{}",
        case("a", "streaming"),
        case("b", "fused") + "needs = [\"a\"]\n"
    );
    assert_eq!(hash(&one), hash(&other));
}

fn parameters() -> Parameters {
    [("T", 4), ("K", 2)].into_iter().collect()
}

#[test]
fn a_problem_is_its_workload_parameters_type_and_inputs() {
    let seed = InputSource::Seed(42);
    let base = problem_id("semicrf", &parameters(), Dtype::F32, seed);
    assert_eq!(problem_id("semicrf", &parameters(), Dtype::F32, seed), base);
    let mut longer = parameters();
    longer.set("T", 5);
    let mut more = parameters();
    more.set("C", 5);
    let file = |byte| InputSource::File(Digest::from_bytes([byte; 32]));
    let others = [
        problem_id("copy", &parameters(), Dtype::F32, seed),
        problem_id("semicrf", &longer, Dtype::F32, seed),
        problem_id("semicrf", &more, Dtype::F32, seed),
        problem_id("semicrf", &parameters(), Dtype::F64, seed),
        problem_id("semicrf", &parameters(), Dtype::F32, InputSource::Seed(43)),
        problem_id("semicrf", &parameters(), Dtype::F32, file(1)),
        problem_id("semicrf", &parameters(), Dtype::F32, file(2)),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(*other, base);
        assert!(!others[..index].contains(other));
    }
    // The encoding is frozen: another digest means that every recorded id changes.
    assert_eq!(base.to_string(), "6a40987dac20");
}

#[test]
fn a_point_is_a_problem_and_how_it_is_measured() {
    let problem = |seed| {
        problem_id(
            "semicrf",
            &parameters(),
            Dtype::F32,
            InputSource::Seed(seed),
        )
    };
    let shape = |bound| CanonicalShape::new([("T".to_owned(), bound)]);
    let conditions = Conditions {
        cache: CacheState::Cold,
        mode: Mode::Each(Launching::Launch),
        threads: 1,
    };
    let id = |backend, phase, bound, conditions| {
        point_id(problem(1), backend, phase, &shape(bound), conditions)
    };
    let base = id("fused", Phase::Forward, 64, conditions);
    let [hot, clean] = [CacheState::Hot, CacheState::Clean].map(|cache| Conditions {
        cache,
        ..conditions
    });
    let graph = Conditions {
        mode: Mode::Each(Launching::Graph),
        ..conditions
    };
    let [short, long] = [1, 100].map(|iterations| Conditions {
        mode: Mode::Loop(iterations),
        ..conditions
    });
    let threads = Conditions {
        threads: 2,
        ..conditions
    };
    let others = [
        point_id(problem(2), "fused", Phase::Forward, &shape(64), conditions),
        id("streaming", Phase::Forward, 64, conditions),
        id("fused", Phase::Both, 64, conditions),
        id("fused", Phase::Forward, 128, conditions),
        point_id(
            problem(1),
            "fused",
            Phase::Forward,
            &CanonicalShape::default(),
            conditions,
        ),
        id("fused", Phase::Forward, 64, hot),
        id("fused", Phase::Forward, 64, clean),
        id("fused", Phase::Forward, 64, graph),
        id("fused", Phase::Forward, 64, short),
        id("fused", Phase::Forward, 64, long),
        id("fused", Phase::Forward, 64, threads),
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(*other, base);
        assert!(!others[..index].contains(other));
    }
    assert_eq!(base.to_string(), "b7bb695dcdf7");
}

#[test]
fn a_run_is_a_manifest_an_engine_and_a_device() {
    let run = |m, e, k, device, toolchain| run_with(m, e, k, device, toolchain, "");
    fn run_with(
        m: u8,
        e: u8,
        k: u8,
        device: &str,
        toolchain: &str,
        interpreters: &str,
    ) -> sweeper::identity::RunId {
        let digest = |byte| Digest::from_bytes([byte; 32]);
        run_id(
            ManifestHash(digest(m)),
            &digest(e),
            &digest(k),
            device,
            toolchain,
            interpreters,
        )
    }
    let base = run(1, 2, 3, "cpu", "gcc");
    for other in [
        run_with(1, 2, 3, "cpu", "gcc", "CPython 3.12"),
        run(9, 2, 3, "cpu", "gcc"),
        run(1, 9, 3, "cpu", "gcc"),
        run(1, 2, 9, "cpu", "gcc"),
        run(1, 2, 3, "gpu", "gcc"),
        run(1, 2, 3, "cpu", "cc"),
        // Lengths are encoded: moving a letter from one field to the next is another run.
        run(1, 2, 3, "cpug", "cc"),
    ] {
        assert_ne!(other, base);
    }
}

#[test]
fn ids_print_short_and_are_found_by_prefix() {
    let id = PointId(Digest::from_bytes([0xab; 32]));
    assert_eq!(id.to_string(), "abababababab");
    assert!(id.has_prefix("abab") && id.has_prefix("ABAB"));
    assert!(!id.has_prefix("abc") && !id.has_prefix(""));
    let json = serde_json::to_string(&id).unwrap();
    assert_eq!(json, format!("\"{}\"", "ab".repeat(32)));
    assert_eq!(serde_json::from_str::<PointId>(&json).unwrap(), id);
    assert_eq!(id.0.hex().parse::<PointId>().unwrap(), id);
    assert!("ab".parse::<ProblemId>().is_err());
    assert!(serde_json::from_str::<PointId>("\"ab\"").is_err());
}

#[test]
fn grids_and_single_problems_agree_on_ids() {
    let manifest = manifest(BASE);
    let grid = Grid::new(&manifest);
    for (index, point) in grid.points().iter().enumerate() {
        let source = InputSource::Seed(manifest.seed);
        let expected = problem_id("semicrf", &grid.parameters(*point), Dtype::F32, source);
        assert_eq!(grid.problem_id(index), expected, "{}", grid.label(*point));
    }
}

#[test]
fn the_resolved_form_keeps_everything() {
    let original = manifest(BASE);
    let text = original.resolved_toml();
    let sources = Sources::from_text("base.toml", &text);
    let again = Manifest::resolve(&sources, &Overrides::new(), &REGISTRY);
    let again = again.unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    assert!(again == original, "{text}");
    assert_eq!(again.resolved_toml(), text);
    let (one, other) = (Grid::new(&original), Grid::new(&again));
    assert_eq!(one.points(), other.points());
    assert_eq!(one.skips(), other.skips());
}
