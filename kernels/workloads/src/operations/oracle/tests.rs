//! The oracle against the graph's value, which shares no code with it.

use super::*;
use crate::graph_problem::judging::misjudged;
use crate::graph_problem::{Computation, GraphProblem};
use crate::operations::problem::Operation;
use sweeper_compiler::graph;
use sweeper_program::inputs::InputKey;
use sweeper_program::workload::Problem;

const KINDS: [Kind; 8] = [
    Kind::LayerNorm,
    Kind::RmsNorm,
    Kind::Softmax,
    Kind::GeluErf,
    Kind::GeluTanh,
    Kind::Swish,
    Kind::Mse,
    Kind::CrossEntropy,
];

fn operation(kind: Kind, [batch, sequence, dimension]: [usize; 3]) -> Operation {
    let sizes = Sizes {
        batch,
        sequence,
        dimension,
    };
    Operation {
        name: "operation",
        kind,
        sizes,
    }
}

#[test]
fn the_graph_has_the_same_value() {
    for sizes in [
        [1, 1, 1],
        [2, 3, 5],
        [1, 7, 2],
        [3, 1, 64],
        [2, 40, 300],
        [1, 2, 20_000],
        [5, 1000, 3],
    ] {
        for kind in KINDS {
            let operation = operation(kind, sizes);
            let problem = GraphProblem::new(operation).unwrap();
            let inputs = problem.generate(&InputKey([2; 32]));
            problem.validate(&inputs).unwrap();
            let expected = problem.oracle(&inputs, Phase::Both);
            let found = graph::evaluate(&problem.built().graph, &inputs).unwrap();
            for spec in problem.outputs(Phase::Both) {
                let (answer, value) = (&expected[&spec.name], &found[&spec.name]);
                assert_eq!(answer.shape(), spec.shape);
                assert_eq!(value.shape(), spec.shape);
                let spread = expected[&spread_of(&spec.name)].as_f64().unwrap()[0];
                let difference: Vec<f64> = answer
                    .as_f64()
                    .unwrap()
                    .iter()
                    .zip(value.as_f64().unwrap())
                    .map(|(answer, value)| answer - value)
                    .collect();
                let error = norm_of(&difference);
                let name = &spec.name;
                assert!(
                    error <= 1e-6 * spread,
                    "{kind:?} {sizes:?} {name}: {error} of {spread}"
                );
            }
        }
    }
}

#[test]
fn phases_have_what_they_yield() {
    for kind in KINDS {
        let problem = GraphProblem::new(operation(kind, [2, 3, 4])).unwrap();
        let inputs = problem.generate(&InputKey([2; 32]));
        let both = problem.oracle(&inputs, Phase::Both);
        for phase in [Phase::Forward, Phase::Backward] {
            let answers = problem.oracle(&inputs, phase);
            for spec in problem.outputs(phase) {
                assert_eq!(answers[&spec.name], both[&spec.name], "{kind:?} {phase}");
            }
        }
    }
}

#[test]
fn answers_do_not_depend_on_threads() {
    let problem = GraphProblem::new(operation(Kind::LayerNorm, [3, 100, 70])).unwrap();
    let inputs = problem.generate(&InputKey([2; 32]));
    let answers = [1, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| problem.oracle(&inputs, Phase::Both))
    });
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn smaller_problems_cost_no_more_than_asked() {
    for kind in KINDS {
        let whole = operation(kind, [16, 256, 512]);
        for limit in [1e3, 1e4, 1e5, 1e6, 1e9] {
            match whole.reduced(Phase::Both, limit) {
                Some(reduced) => {
                    assert!(reduced.oracle_operations(Phase::Both) <= limit);
                    assert_eq!(reduced.sizes.dimension, 512);
                    let largest = [reduced.sizes.batch, reduced.sizes.sequence];
                    assert!(largest[0] <= 16 && largest[1] <= 256, "{largest:?}");
                }
                None => assert!(limit < 1e4, "{kind:?}"),
            }
        }
        let same = whole.reduced(Phase::Both, 1e12).unwrap();
        assert_eq!(same.sizes, whole.sizes);
    }
}

/// Every formula with one term wrong is judged wrong, at sizes up to those that were published, and
/// what f32 makes of the right one is not.
#[test]
fn wrong_formulas_are_found() {
    for kind in KINDS {
        // Rows of the published sizes, for sums over rows, and columns, for sums along them.
        let mut sizes = vec![[1, 6, 8], [2, 16, 256], [1, 8, 1000], [1, 6, 4096]];
        sizes.push([1, if kind.is_loss() { 131_072 } else { 16_384 }, 4]);
        for sizes in sizes {
            let problem = GraphProblem::new(operation(kind, sizes)).unwrap();
            let misjudged = misjudged(&problem, &[Phase::Forward, Phase::Backward], 7);
            assert!(misjudged.is_empty(), "{kind:?} {sizes:?}: {misjudged:#?}");
        }
    }
}
