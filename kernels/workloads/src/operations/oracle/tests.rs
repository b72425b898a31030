//! The oracle against the graph's value, which shares no code with it.

use super::*;
use crate::graph_problem::judging::misjudged;
use crate::graph_problem::{Computation, GraphProblem};
use crate::operations::SizedOperation;
use crate::operations::tests::every;
use crate::registry::workload;
use sweeper_compiler::graph;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::Problem;

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
        for (form, operation) in every(sizes) {
            let problem = GraphProblem::new("operation", operation).unwrap();
            let inputs = problem.generate(&InputKey([2; 32]));
            problem.validate(&inputs).unwrap();
            let expected = problem.oracle(&inputs, Phase::Both);
            let found = graph::evaluate(&problem.built().graph, &inputs).unwrap();
            for spec in problem.outputs(Phase::Both) {
                let (answer, value) = (&expected[&spec.name], &found[&spec.name]);
                assert_eq!(answer.shape(), spec.shape);
                assert_eq!(value.shape(), spec.shape);
                let spread = Spread::from_tensor(&spec.shape, &expected[&name_of(&spec.name)]);
                let noise = spread.unwrap().whole.mean_square;
                let answer = answer.as_f64().unwrap().iter();
                let places = answer.zip(value.as_f64().unwrap());
                let error = square_sum(places.map(|(answer, value)| answer - value));
                let bound = 1e-12 * noise * spec.elements() as f64;
                let name = &spec.name;
                assert!(error <= bound, "{form} {name}: {error} of {bound}");
            }
        }
    }
}

#[test]
fn phases_have_what_they_yield() {
    for (form, operation) in every([2, 3, 4]) {
        let problem = GraphProblem::new("operation", operation).unwrap();
        let inputs = problem.generate(&InputKey([2; 32]));
        let both = problem.oracle(&inputs, Phase::Both);
        for phase in [Phase::Forward, Phase::Backward] {
            let answers = problem.oracle(&inputs, phase);
            for spec in problem.outputs(phase) {
                assert_eq!(answers[&spec.name], both[&spec.name], "{form} {phase}");
            }
        }
    }
}

#[test]
fn answers_do_not_depend_on_threads() {
    let sizes = [("batch", 3), ("sequence", 100), ("dimension", 70)];
    let layernorm = workload("layernorm").unwrap();
    let problem = layernorm.problem(&sizes.into_iter().collect(), Dtype::F32);
    let problem = problem.unwrap();
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
    for (form, whole) in every([16, 256, 512]) {
        for limit in [1e3, 1e4, 1e5, 1e6, 1e9] {
            match whole.reduced(Phase::Both, limit) {
                Some(reduced) => {
                    assert!(reduced.oracle_operations(Phase::Both) <= limit);
                    assert_eq!(reduced.sizes.dimension, 512);
                    let largest = [reduced.sizes.batch, reduced.sizes.sequence];
                    assert!(largest[0] <= 16 && largest[1] <= 256, "{largest:?}");
                }
                None => assert!(limit < 1e4, "{form}"),
            }
        }
        let same = whole.reduced(Phase::Both, 1e12).unwrap();
        assert_eq!(same.sizes, whole.sizes);
    }
}

/// Whether the result is one number.
fn is_loss(operation: &SizedOperation) -> bool {
    let built = operation.build().unwrap();
    let out = &built.graph.outputs()[0];
    built.graph.node(out.node).shape.is_empty()
}

/// Every formula with one term wrong is judged wrong, at sizes up to those that were published, and
/// what f32 makes of the right one is not.
#[test]
fn wrong_formulas_are_found() {
    // Rows of the published sizes, for sums over rows, and columns, for sums along them.
    let columns = [[1, 6, 8], [2, 16, 256], [1, 8, 1000], [1, 6, 4096]];
    let sizes = columns.into_iter().chain([[1, 16_384, 4]]);
    let mut all: Vec<_> = sizes.flat_map(every).collect();
    let of_more_rows = every([1, 131_072, 4]).into_iter();
    all.extend(of_more_rows.filter(|(_, operation)| is_loss(operation)));
    for (form, operation) in all {
        let problem = GraphProblem::new("operation", operation).unwrap();
        let misjudged = misjudged(&problem, &[Phase::Forward, Phase::Backward], 7);
        assert!(misjudged.is_empty(), "{form}: {misjudged:#?}");
    }
}
