//! Attention in f32: blocks of a GPU that share one tile of queries, and scores that are far apart.

use sweeper_program::inputs::InputKey;
use sweeper_program::workload::Problem;
use sweeper_program::{CanonicalShape, Phase, Program, Tensor};

use crate::conformance::{Case, gpu, problem};
use crate::shim::{self, Blocks, Mode};

/// Parts of keys that are whole and that are not, one part a tile and several, also in a causal
/// attention; rows of no tile; columns that are float4 and that are not. Without the logarithms of
/// sums, and with gradients, which need them.
const SIZES: [(&str, Phase, &str); 10] = [
    ("sm_90a", Phase::Forward, "batch=1 sequence=300 dimension=7"),
    (
        "sm_90a",
        Phase::Both,
        "batch=2 sequence=257 dimension=33 mask=causal",
    ),
    (
        "sm_90a",
        Phase::Both,
        "batch=1 sequence=400 dimension=64 heads=2",
    ),
    (
        "sm_90a",
        Phase::Both,
        "batch=1 sequence=385 dimension=100 mask=causal",
    ),
    (
        "sm_90a",
        Phase::Forward,
        "batch=1 sequence=256 dimension=128",
    ),
    // Two tiles of keys a part.
    (
        "sm_90a",
        Phase::Forward,
        "batch=16 sequence=300 dimension=5",
    ),
    (
        "sm_90a",
        Phase::Forward,
        "batch=30 sequence=384 dimension=8 mask=causal",
    ),
    // Half as many keys a tile as queries.
    ("sm_80", Phase::Both, "batch=1 sequence=300 dimension=64"),
    (
        "sm_80",
        Phase::Forward,
        "batch=2 sequence=270 dimension=20 mask=causal",
    ),
    // 99 KiB of shared memory: two warps forward, and four that compute gradients.
    (
        "sm_86",
        Phase::Both,
        "batch=1 sequence=300 dimension=33 mask=causal",
    ),
];

fn compiled(problem: &dyn Problem, arch: &str, phase: Phase) -> Program {
    let canonical = CanonicalShape::default();
    let program = problem.program("compiled", phase, &canonical, &gpu(arch));
    program.unwrap()
}

fn is_split(program: &Program) -> bool {
    let mut titles = program.compiled().map(|source| source.title());
    titles.any(|title| title.contains("IS_SPLIT=1"))
}

/// Whichever block of a tile is done last combines the parts, in one order.
#[test]
fn blocks_that_share_keys_agree_with_the_oracle_in_any_order() {
    if !shim::is_here() {
        return;
    }
    for (arch, phase, sizes) in SIZES {
        let what = format!("{arch} {sizes} {phase}");
        let (problem, _) = problem(&format!("attention {sizes}"));
        let inputs = problem.generate(&InputKey([8; 32]));
        let program = compiled(&*problem, arch, phase);
        assert!(is_split(&program), "{what}: one block a tile");
        let outputs = |blocks| {
            let specs = problem.outputs(phase);
            shim::run_blocks(&program, &inputs, &specs, Mode::Fast, blocks)
        };
        let found = outputs(Blocks::Ascending);
        let expected = problem.oracle(&inputs, phase);
        let check = problem.check(&inputs, &found, &expected, phase);
        assert!(check.passed(), "{what}: {:?}", check.tensors);
        assert!(found == outputs(Blocks::Descending), "{what}");
    }
}

#[test]
fn only_few_tiles_of_several_keys_are_shared() {
    for (sizes, is_shared) in [
        // One tile of keys, and tiles for more than half of a large GPU.
        ("batch=1 sequence=128 dimension=64", false),
        ("batch=67 sequence=128 dimension=64", false),
        ("batch=8 sequence=8192 dimension=64", false),
        ("batch=8 sequence=2048 dimension=128", false),
        ("batch=8 sequence=1024 dimension=128", true),
        ("batch=8 sequence=256 dimension=64 mask=causal", true),
        // A causal attention of few keys for most queries.
        ("batch=8 sequence=1536 dimension=128", false),
        ("batch=8 sequence=1536 dimension=128 mask=causal", true),
    ] {
        let (problem, _) = problem(&format!("attention {sizes}"));
        let program = compiled(&*problem, "sm_90a", Phase::Forward);
        assert_eq!(is_split(&program), is_shared, "{sizes}");
    }
}

/// Scores by the key's place among `keys`, without their random part.
type ByPlace = fn(key: usize, keys: usize) -> f32;

/// Scores whose greatest comes late or early. Weights relative to the small ones overflow.
const BY_PLACE: [(&str, ByPlace); 5] = [
    ("rising", |key, _| 0.2 * key as f32),
    ("falling", |key, _| -0.2 * key as f32),
    ("one great", |key, keys| f32::from(key == keys / 2) * 15.0),
    ("the first small", |key, _| f32::from(key == 0) * -120.0),
    ("many small", |key, _| f32::from(key < 70) * -120.0),
];

/// The first column of queries is 1, and that of keys their score.
fn with_scores(case: &mut Case, by_place: ByPlace) {
    for input in ["q", "k"] {
        let tensor = &case.inputs[input];
        let [_, keys, columns] = *tensor.shape() else {
            panic!("{:?}", tensor.shape());
        };
        let mut values = tensor.as_f32().unwrap().to_vec();
        for (row, first) in values.iter_mut().step_by(columns).enumerate() {
            let score = by_place(row % keys, keys) * (columns as f32).sqrt();
            *first = if input == "q" { 1.0 } else { score };
        }
        let changed = Tensor::f32(tensor.shape(), values);
        case.inputs.insert(input.to_owned(), changed);
    }
    case.ask();
}

/// Weights are kept relative to a score, which changes where later ones are far beyond it. Queries
/// that see small scores alone have gradients by a logarithm of few digits behind the point: only
/// without a mask are gradients asked for.
#[test]
fn scores_that_are_far_apart_conform() {
    for (mask, phases) in [("none", &Phase::ALL[..]), ("causal", &[Phase::Forward])] {
        let words = format!("attention batch=2 sequence=150 dimension=20 mask={mask}");
        for (what, by_place) in BY_PLACE {
            let name = format!("{words}, {what}");
            let mut case = Case::new(name, problem(&words).0, phases, &["eager", "compiled"]);
            with_scores(&mut case, by_place);
            case.conforms_on_cpu(&CanonicalShape::default());
            if shim::is_here() {
                let whole = Phase::covering(phases.iter().copied());
                case.conforms_on_shim(&[whole], &CanonicalShape::default(), Mode::Fast);
            }
        }
    }
}

/// Queries and keys times a factor: scores are as large as its square times a few.
fn with_large_scores(case: &mut Case, factor: f32) {
    for input in ["q", "k"] {
        let tensor = &case.inputs[input];
        let values = tensor
            .as_f32()
            .unwrap()
            .iter()
            .map(|x| factor * x)
            .collect::<Vec<_>>();
        let changed = Tensor::f32(tensor.shape(), values);
        case.inputs.insert(input.to_owned(), changed);
    }
    case.ask();
}

/// Scores of 900, 30,000 and a million: gradients compute weights again, from numbers that have no
/// fewer digits than scores have.
#[test]
fn gradients_by_large_scores_conform() {
    for mask in ["none", "causal"] {
        for (factor, dimension) in [(30.0, 16), (173.0, 16), (1000.0, 16), (30.0, 70)] {
            let words = format!("attention batch=2 sequence=140 dimension={dimension} mask={mask}");
            let name = format!("{words}, scores of {}", factor * factor);
            let backends = &["eager", "compiled"];
            let mut case = Case::new(name, problem(&words).0, &Phase::ALL, backends);
            with_large_scores(&mut case, factor);
            case.conforms_on_cpu(&CanonicalShape::default());
            if shim::is_here() {
                case.conforms_on_shim(&[Phase::Both], &CanonicalShape::default(), Mode::Fast);
            }
        }
    }
}
