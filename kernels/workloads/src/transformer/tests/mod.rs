//! The graph against a model by plain loops, differences of it, and AdamW by hand; sizes, and what
//! is refused.

mod checkpoint;
mod depth;
mod plain;
mod refusals;
mod training;

use super::*;
use crate::graph_problem::judging::misjudged;
use crate::graph_problem::{Computation, GraphProblem};
use plain::{Plain, Weights};
use sweeper_program::check;
use sweeper_program::inputs::InputKey;
use sweeper_program::parameters::Value;
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::Problem;

const TINY: Plain = Plain {
    batch: 2,
    context: 5,
    vocabulary: 7,
    d_model: 12,
    d_ff: 10,
    layers: 2,
    heads: 3,
};

/// Parameters in words: `size=small context=128`.
fn parameters(words: &str) -> Parameters {
    let pairs = words.split(' ').map(|word| {
        let (name, value) = word.split_once('=').unwrap();
        let number = value.parse().map(Value::Int);
        let number = number.or_else(|_| value.parse().map(Value::Float));
        (name, number.unwrap_or_else(|_| Value::from(value)))
    });
    pairs.collect()
}

fn transformer(words: &str) -> Result<Transformer, ParameterError> {
    WORKLOAD.at(&parameters(words))
}

fn problem(transformer: Transformer) -> GraphProblem<Transformer> {
    GraphProblem::new("transformer", transformer).unwrap()
}

pub(crate) fn tiny(more: &str) -> GraphProblem<Transformer> {
    let Plain {
        batch,
        context,
        vocabulary,
        d_model,
        d_ff,
        layers,
        heads,
    } = TINY;
    let words = format!(
        "batch={batch} context={context} vocabulary={vocabulary} d_model={d_model} d_ff={d_ff} \
         layers={layers} heads={heads}{more}"
    );
    problem(transformer(&words).unwrap())
}

/// All tensors of real numbers.
fn weights(tensors: &Tensors) -> Weights {
    let real = tensors
        .iter()
        .filter(|(_, tensor)| tensor.dtype() != Dtype::I64);
    real.map(|(name, tensor)| (name.clone(), check::as_f64(tensor).to_vec()))
        .collect()
}

fn assert_close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let is_close = (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(is_close, "{what}[{at}] is {found}, not {expected}");
    }
}

#[test]
fn logits_are_those_of_plain_loops() {
    let problem = tiny("");
    let inputs = problem.generate(&InputKey([3; 32]));
    problem.validate(&inputs).unwrap();
    let answers = problem.oracle(&inputs, Phase::Forward);
    let ids = inputs["input_ids"].as_i64().unwrap();
    let expected = TINY.logits(&weights(&inputs), ids).concat();
    assert_close(
        &check::as_f64(&answers["logits"]),
        &expected,
        1e-11,
        "logits",
    );
}

/// Two elements of each gradient against central differences of the loss.
fn gradients_are_slopes(problem: &GraphProblem<Transformer>, loss: &dyn Fn(&Weights) -> f64) {
    let inputs = problem.generate(&InputKey([3; 32]));
    let answers = problem.oracle(&inputs, Phase::Both);
    let mut weights = weights(&inputs);
    let names: Vec<String> = weights.keys().cloned().collect();
    for name in names.iter().filter(|name| !name.starts_with("moment")) {
        let gradient = check::as_f64(&answers[&format!("grad.{name}")]).to_vec();
        for at in [0, gradient.len() / 2 + 1] {
            const STEP: f64 = 1e-5;
            let held = weights[name][at];
            let mut with = |value: f64| {
                weights.get_mut(name).unwrap()[at] = value;
                loss(&weights)
            };
            let slope = (with(held + STEP) - with(held - STEP)) / (2.0 * STEP);
            with(held);
            assert_close(&[gradient[at]], &[slope], 2e-6, &format!("{name}[{at}]"));
        }
    }
}

#[test]
fn gradients_are_slopes_of_the_sum_of_logits() {
    let problem = tiny("");
    let inputs = problem.generate(&InputKey([3; 32]));
    let ids = inputs["input_ids"].as_i64().unwrap();
    gradients_are_slopes(&problem, &|weights| {
        TINY.logits(weights, ids).concat().iter().sum()
    });
}

#[test]
fn gradients_are_slopes_of_cross_entropy() {
    let problem = tiny(" loss=cross_entropy");
    let inputs = problem.generate(&InputKey([3; 32]));
    let [ids, labels] = ["input_ids", "labels"].map(|name| inputs[name].as_i64().unwrap());
    gradients_are_slopes(&problem, &|weights| {
        TINY.cross_entropy(weights, ids, labels)
    });
}

/// AdamW as its paper has it, number by number.
fn step_by_hand(
    [p, m, v, g]: [f64; 4],
    [rate, beta1, beta2, eps, decay]: [f64; 5],
    t: i32,
) -> [f64; 3] {
    let p = p - rate * decay * p;
    let m = beta1 * m + (1.0 - beta1) * g;
    let v = beta2 * v + (1.0 - beta2) * g * g;
    let corrected = (m / (1.0 - beta1.powi(t)), v / (1.0 - beta2.powi(t)));
    [p - rate * corrected.0 / (corrected.1.sqrt() + eps), m, v]
}

#[test]
fn a_step_is_adamw() {
    let other = " rate=0.5 beta1=0.75 beta2=0.5 eps=0.125 weight_decay=0.25 step_count=3";
    let defaults = [1e-4, 0.9, 0.999, 1e-8, 0.01];
    for (words, hyper, count) in [("", defaults, 1), (other, [0.5, 0.75, 0.5, 0.125, 0.25], 3)] {
        let problem = tiny(words);
        let inputs = problem.generate(&InputKey([3; 32]));
        let answers = problem.oracle(&inputs, Phase::Step);
        let before = weights(&inputs);
        for name in before.keys().filter(|name| !name.starts_with("moment")) {
            let gradient = check::as_f64(&answers[&format!("grad.{name}")]).to_vec();
            let named = |prefix: &str| format!("{prefix}{name}");
            let [first, second] = ["moment1.", "moment2."].map(|prefix| &before[&named(prefix)]);
            let mut expected = [vec![], vec![], vec![]];
            for (at, gradient) in gradient.into_iter().enumerate() {
                let state = [before[name][at], first[at], second[at], gradient];
                let after = step_by_hand(state, hyper, count);
                expected
                    .iter_mut()
                    .zip(after)
                    .for_each(|(all, one)| all.push(one));
            }
            for (prefix, expected) in ["", "moment1.", "moment2."].into_iter().zip(expected) {
                let name = format!("after.{}", named(prefix));
                assert_close(&check::as_f64(&answers[&name]), &expected, 1e-12, &name);
            }
        }
    }
}

#[test]
fn phases_have_their_outputs() {
    let problem = tiny(" loss=cross_entropy");
    let names = |phase| -> Vec<String> {
        let specs = problem.outputs(phase).into_iter();
        specs.map(|spec| spec.name).collect()
    };
    assert_eq!(names(Phase::Forward), ["logits"]);
    let both = names(Phase::Both);
    // Nine weights a layer, and three more.
    assert_eq!(both.len(), 1 + 2 * 9 + 3);
    assert_eq!(both[0], "logits");
    assert!(both[1..].iter().all(|name| name.starts_with("grad.")));
    let step = names(Phase::Step);
    assert_eq!(step.len(), 3 * (2 * 9 + 3));
    assert_eq!(
        step[..3],
        ["", "moment1.", "moment2."].map(|of| format!("after.{of}token_embeddings.weight"))
    );
    let given: Vec<String> = problem.inputs().into_iter().map(|spec| spec.name).collect();
    assert_eq!(
        given[..3],
        [
            "input_ids",
            "token_embeddings.weight",
            "layers.0.ln1.weight"
        ]
    );
    assert!(given.contains(&"layers.1.attn.output_proj.weight".to_owned()));
    assert!(given.contains(&"moment2.lm_head.weight".to_owned()));
}

/// The published counts, and those of the graphs.
#[test]
fn models_have_as_many_parameters_as_published() {
    let published = [
        128_625_408,
        423_183_360,
        969_411_840,
        1_998_235_200,
        3_406_809_600,
    ];
    for ((name, _), published) in sizes::NAMED.iter().zip(published) {
        let transformer = transformer(&format!("size={name} context=128")).unwrap();
        assert_eq!(transformer.sizes.parameters(), published, "{name}");
        let built = Evaluated::build(&transformer).unwrap();
        let given = built.graph.given().iter();
        let weights = given.filter(|given| given.role == Role::Parameter);
        let counts = weights.map(|given| built.graph.node(given.node).elements());
        assert_eq!(counts.sum::<usize>(), published, "{name}");
    }
}

/// Large models are checked by two of their layers, then fewer sequences, then fewer positions.
#[test]
fn reduced_models_have_two_layers() {
    let whole = transformer("size=small context=256").unwrap();
    let cost = |transformer: &Transformer| transformer.oracle_operations(Phase::Forward);
    let shape = |share: f64| {
        let reduced = whole.reduced(Phase::Forward, share * cost(&whole)).unwrap();
        let Sizes {
            batch,
            layers,
            context,
            ..
        } = reduced.sizes;
        assert_eq!(reduced.sizes.d_model(), 768);
        [layers, batch, context]
    };
    assert_eq!(shape(0.5), [3, 4, 256]);
    assert_eq!(shape(0.25), [2, 4, 256]);
    assert_eq!(shape(0.12), [2, 2, 256]);
    assert_eq!(shape(0.05), [2, 2, 64]);
    assert!(whole.reduced(Phase::Step, 10.0).is_none());
    let small = whole.smaller(Phase::Forward, 1e7).unwrap();
    assert_eq!(small.sizes.d_head % 2, 0);
    assert!(cost(&small) <= 1e7);
}

/// A step is judged at a rate by which all of it shows: what changes gradients by little changes
/// parameters by nothing.
#[test]
fn every_fault_of_the_graph_is_found() {
    let words = "batch=2 context=4 vocabulary=5 d_model=8 d_ff=6 layers=1 loss=cross_entropy";
    let step = "heads=4 rate=1 eps=0.1 weight_decay=0.1";
    for (more, phase) in [("heads=2", Phase::Both), (step, Phase::Step)] {
        let problem = problem(transformer(&format!("{words} {more}")).unwrap());
        assert_eq!(misjudged(&problem, &[phase], 50), Vec::<String>::new());
    }
}

/// The oracle's values die with their last use: a forward pass holds those of one layer, however
/// many there are; with gradients each layer keeps some.
#[test]
fn the_oracle_of_a_deep_model_fits() {
    let bytes = |layers: u32, phase| {
        let sizes = "batch=4 context=64 vocabulary=16 d_model=8 d_ff=8 heads=1";
        let model = transformer(&format!("{sizes} layers={layers}")).unwrap();
        model.evaluation_bytes(phase).unwrap()
    };
    assert_eq!(bytes(2, Phase::Forward), bytes(16, Phase::Forward));
    let (two, sixteen) = (bytes(2, Phase::Both), bytes(16, Phase::Both));
    assert!(2 * two < sixteen && sixteen < 8 * two, "{two} {sixteen}");
}
