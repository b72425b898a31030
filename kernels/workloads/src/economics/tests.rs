//! The oracle against values computed by hand, and the workloads' contract.

use std::fmt::Debug;

use super::MOST;
use super::attention_block::AttentionBlock;
use super::matmul_chain::MatmulChain;
use super::mixed::Mixed;
use super::mlp::{Loss, Mlp};
use crate::graph_oracle::Evaluated;
use crate::graph_problem::judging::misjudged;
use crate::graph_problem::{Computation, GraphProblem};
use crate::registry::workload;
use sweeper_program::inputs::InputKey;
use sweeper_program::parameters::Parameters;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{Phase, Problem, TensorInfo, TensorSpec};

fn problem<E: Evaluated>(body: E) -> GraphProblem<E> {
    GraphProblem::new("body", body).unwrap()
}

/// A matrix by rows.
type Rows = Vec<Vec<f64>>;

fn rows(tensors: &Tensors, name: &str) -> Rows {
    let tensor = &tensors[name];
    let columns = *tensor.shape().last().unwrap();
    let values: Vec<f64> = sweeper_program::check::elements(tensor).collect();
    values.chunks(columns).map(<[f64]>::to_vec).collect()
}

fn times(a: &Rows, b: &Rows) -> Rows {
    let entry = |row: &Vec<f64>, column: usize| -> f64 {
        row.iter().zip(b).map(|(a, b)| a * b[column]).sum()
    };
    let each = a.iter();
    each.map(|row| (0..b[0].len()).map(|column| entry(row, column)).collect())
        .collect()
}

fn turned(a: &Rows) -> Rows {
    let columns = 0..a[0].len();
    columns
        .map(|column| a.iter().map(|row| row[column]).collect())
        .collect()
}

fn with(a: &Rows, b: &Rows, function: impl Fn(f64, f64) -> f64) -> Rows {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let pairs = a.iter().zip(b);
        pairs.map(|(&a, &b)| function(a, b)).collect()
    };
    a.iter().zip(b).map(row).collect()
}

fn softmax(a: &Rows) -> Rows {
    let row = |row: &Vec<f64>| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect()
    };
    a.iter().map(row).collect()
}

fn assert_close(found: &Tensor, expected: &Rows, what: &str) {
    let found: Vec<f64> = sweeper_program::check::elements(found).collect();
    let expected = expected.concat();
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let close = (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
        assert!(close, "{what}[{at}] is {found}, not {expected}");
    }
}

/// A problem's inputs and the oracle's answers.
fn asked(problem: &GraphProblem<impl Evaluated>, phase: Phase) -> (Tensors, Tensors) {
    let inputs = problem.generate(&InputKey([3; 32]));
    problem.validate(&inputs).unwrap();
    let answers = problem.oracle(&inputs, phase);
    (inputs, answers)
}

#[test]
fn a_chain_is_its_products() {
    let problem = problem(MatmulChain { size: 5, depth: 3 });
    let (inputs, answers) = asked(&problem, Phase::Both);
    let [x, w1, w2, w3, grad] = ["x", "w1", "w2", "w3", "grad_out"].map(|name| rows(&inputs, name));
    let (xw, ww) = (times(&x, &w1), times(&w2, &w3));
    assert_close(&answers["out"], &times(&xw, &ww), "out");
    let by_x = times(&grad, &turned(&times(&w1, &ww)));
    assert_close(&answers["grad_x"], &by_x, "grad_x");
    let by_w2 = times(&turned(&xw), &times(&grad, &turned(&w3)));
    assert_close(&answers["grad_w2"], &by_w2, "grad_w2");
}

/// Products, biases and masks of a step, layer by layer and back.
fn step_by_hand(inputs: &Tensors, loss: Loss, rate: f64) -> (f64, Vec<(String, Rows)>) {
    let layers = [1, 2, 3].map(|at| {
        let [w, b] = ["w", "b"].map(|name| rows(inputs, &format!("{name}{at}")));
        (w, b[0].clone())
    });
    let mut before = vec![rows(inputs, "x")];
    let mut y = vec![];
    for (at, (w, b)) in layers.iter().enumerate() {
        let product = times(&before[at], &turned(w));
        y = with(&product, &vec![b.clone(); product.len()], |y, b| y + b);
        before.push(with(&y, &y, |y, _| y.max(0.0)));
    }
    let count = y.len() as f64;
    let (value, mut grad) = match loss {
        Loss::SquaredError => {
            let count = count * y[0].len() as f64;
            let error = with(&y, &rows(inputs, "target"), |y, target| y - target);
            let value = error.concat().iter().map(|e| e * e).sum::<f64>() / count;
            (value, with(&error, &error, |e, _| 2.0 * e / count))
        }
        Loss::CrossEntropy => {
            let mut grad = softmax(&y);
            let labels = inputs["labels"].as_i64().unwrap();
            let mut value = 0.0;
            for (row, &label) in grad.iter_mut().zip(labels) {
                value -= row[label as usize].ln() / count;
                row[label as usize] -= 1.0;
            }
            (value, with(&grad, &grad, |share, _| share / count))
        }
    };
    let mut after = vec![];
    for (at, (w, b)) in layers.iter().enumerate().rev() {
        let by_w = times(&turned(&grad), &before[at]);
        let by_b = times(&vec![vec![1.0; grad.len()]], &grad);
        let moved = |p: &Rows, by: &Rows| with(p, by, |p, by| p - rate * by);
        after.push((format!("after.w{}", at + 1), moved(w, &by_w)));
        after.push((format!("after.b{}", at + 1), moved(&vec![b.clone()], &by_b)));
        let through = times(&grad, w);
        grad = with(
            &through,
            &before[at],
            |grad, h| if h > 0.0 { grad } else { 0.0 },
        );
    }
    (value, after)
}

#[test]
fn a_training_step_moves_every_parameter() {
    for loss in [Loss::SquaredError, Loss::CrossEntropy] {
        let body = Mlp {
            batch: 6,
            widths: [3, 7, 4, 5],
            loss,
            rate: 0.5,
        };
        let (inputs, answers) = asked(&problem(body), Phase::Both);
        let (value, after) = step_by_hand(&inputs, loss, 0.5);
        assert_close(&answers["loss"], &vec![vec![value]], "loss");
        assert_eq!(after.len(), 6);
        for (name, expected) in after {
            assert_close(&answers[&name], &expected, &name);
        }
    }
}

#[test]
fn an_attention_block_is_its_formula() {
    let (sequence, dimension) = (5, 4);
    let body = AttentionBlock {
        sequence,
        dimension,
    };
    let (inputs, answers) = asked(&problem(body), Phase::Both);
    let x = rows(&inputs, "x");
    let [q, k, v] = ["wq", "wk", "wv"].map(|w| times(&x, &turned(&rows(&inputs, w))));
    let scores = times(&q, &turned(&k));
    let shares = softmax(&with(&scores, &scores, |score, _| score / 2.0));
    let out = times(&times(&shares, &v), &turned(&rows(&inputs, "wo")));
    assert_close(&answers["out"], &out, "out");
}

#[test]
fn mixed_operations_are_their_formula() {
    let (inputs, answers) = asked(&problem(Mixed { size: 6 }), Phase::Both);
    let [a, b, w, gamma, beta] = ["a", "b", "w", "gamma", "beta"].map(|name| rows(&inputs, name));
    let h = with(&a, &b, |a, b| (a + b).max(0.0) * b);
    let z = with(&a, &softmax(&times(&h, &w)), |a, p| a + p);
    let normal = |row: &Vec<f64>| -> Vec<f64> {
        let mean = row.iter().sum::<f64>() / 6.0;
        let variance = row.iter().map(|z| (z - mean).powi(2)).sum::<f64>() / 6.0;
        let scaled = row.iter().map(|z| (z - mean) / (variance + 1e-5).sqrt());
        let both = gamma[0].iter().zip(&beta[0]);
        scaled
            .zip(both)
            .map(|(z, (gamma, beta))| gamma * z + beta)
            .collect()
    };
    assert_close(&answers["out"], &z.iter().map(normal).collect(), "out");
}

#[test]
fn gradients_are_differences() {
    assert_gradients_are_differences(AttentionBlock {
        sequence: 4,
        dimension: 3,
    });
    assert_gradients_are_differences(Mixed { size: 5 });
}

/// Along a random direction the result changes as its gradients say.
fn assert_gradients_are_differences(body: impl Evaluated + Debug) {
    const STEP: f64 = 1e-5;
    let problem = problem(body.clone());
    let (inputs, answers) = asked(&problem, Phase::Both);
    let direction = problem.generate(&InputKey([4; 32]));
    let values = |tensors: &Tensors, name: &str| -> Vec<f64> {
        sweeper_program::check::elements(&tensors[name]).collect()
    };
    let along = |step: f64| {
        let mut moved = inputs.clone();
        for (name, tensor) in moved.iter_mut().filter(|(name, _)| *name != "grad_out") {
            let pairs = values(&inputs, name)
                .into_iter()
                .zip(values(&direction, name));
            let elements = pairs.map(|(x, by)| x + step * by).collect();
            *tensor = Tensor::f64(tensor.shape(), elements);
        }
        let out = values(&problem.oracle(&moved, Phase::Forward), "out");
        let grad = values(&inputs, "grad_out").into_iter();
        out.into_iter()
            .zip(grad)
            .map(|(out, grad)| out * grad)
            .sum::<f64>()
    };
    let difference = (along(STEP) - along(-STEP)) / (2.0 * STEP);
    let mut expected = 0.0;
    for input in inputs.keys().filter(|name| *name != "grad_out") {
        let gradient = values(&answers, &format!("grad_{input}"));
        let products = gradient.iter().zip(values(&direction, input));
        expected += products.map(|(gradient, by)| gradient * by).sum::<f64>();
    }
    let close = (difference - expected).abs() < 1e-6 * expected.abs().max(1.0);
    assert!(close, "{body:?}: {difference}, {expected}");
}

/// The right answers in f32, changed by `change`, pass or not.
fn passes(problem: &GraphProblem<impl Evaluated>, change: impl Fn(&str, &mut Vec<f32>)) -> bool {
    let phase = Phase::Both;
    let (inputs, expected) = asked(problem, phase);
    let outputs = problem.outputs(phase).into_iter().map(|spec| {
        let answer = sweeper_program::check::elements(&expected[&spec.name]);
        let mut values: Vec<f32> = answer.map(|value| value as f32).collect();
        change(&spec.name, &mut values);
        (spec.name, Tensor::f32(spec.shape, values))
    });
    let outputs = outputs.collect();
    problem.check(&inputs, &outputs, &expected, phase).passed()
}

fn assert_small_faults_are_found(body: impl Evaluated + Debug) {
    let name = format!("{body:?}");
    let problem = problem(body);
    assert!(passes(&problem, |_, _| {}), "{name}");
    for spec in problem.outputs(Phase::Both) {
        let with_zero = |tensor: &str, values: &mut Vec<f32>| {
            if tensor == spec.name {
                values[0] = 0.0;
            }
        };
        assert!(!passes(&problem, with_zero), "{name} {}", spec.name);
        let a_little_off = |tensor: &str, values: &mut Vec<f32>| {
            if tensor == spec.name {
                values.iter_mut().for_each(|value| *value *= 1.0002);
            }
        };
        assert!(!passes(&problem, a_little_off), "{name} {}", spec.name);
    }
}

#[test]
fn small_faults_are_found() {
    assert_small_faults_are_found(MatmulChain { size: 64, depth: 3 });
    assert_small_faults_are_found(AttentionBlock {
        sequence: 64,
        dimension: 64,
    });
    assert_small_faults_are_found(Mixed { size: 32 });
    assert_small_faults_are_found(step(16, Loss::SquaredError));
}

/// A step at the sizes of the compilation guide, but for the batch.
fn step(batch: usize, loss: Loss) -> Mlp {
    Mlp {
        batch,
        widths: [32, 64, 32, 10],
        loss,
        rate: 0.01,
    }
}

fn assert_wrong_ones_are_found(body: impl Evaluated + Debug) {
    let name = format!("{body:?}");
    let misjudged = misjudged(&problem(body), &[Phase::Forward, Phase::Backward], 7);
    assert!(misjudged.is_empty(), "{name}: {misjudged:#?}");
}

#[test]
fn wrong_bodies_are_found() {
    assert_wrong_ones_are_found(MatmulChain { size: 96, depth: 3 });
    assert_wrong_ones_are_found(AttentionBlock {
        sequence: 96,
        dimension: 64,
    });
    assert_wrong_ones_are_found(Mixed { size: 128 });
    assert_wrong_ones_are_found(step(48, Loss::SquaredError));
    assert_wrong_ones_are_found(step(48, Loss::CrossEntropy));
}

#[test]
fn tensors_and_phases_are_those_of_the_description() {
    let problem = |name: &str| {
        let problem = workload(name)
            .unwrap()
            .problem(&Parameters::new(), Dtype::F32);
        problem.unwrap()
    };
    for name in ["mlp", "attention_block", "mixed"] {
        let info = workload(name).unwrap().info();
        let listed = |tensors: &[TensorInfo]| -> Vec<String> {
            let tensors = tensors.iter().filter(|tensor| tensor.name != "labels");
            tensors.map(|tensor| tensor.name.to_owned()).collect()
        };
        let of = |specs: Vec<TensorSpec>| -> Vec<String> {
            specs.into_iter().map(|spec| spec.name).collect()
        };
        assert_eq!(of(problem(name).inputs()), listed(info.inputs), "{name}");
        assert_eq!(
            of(problem(name).outputs(Phase::Both)),
            listed(info.outputs),
            "{name}"
        );
    }
    let step = problem("mlp");
    assert_eq!(step.outputs(Phase::Forward).len(), 1);
    let chain = problem("matmul_chain").work(Phase::Forward);
    assert_eq!(chain.flops, 3.0 * 2.0 * 64.0 * 64.0 * 64.0);
    assert_eq!(chain.compulsory_bytes, 5.0 * 64.0 * 64.0 * 4.0);
}

#[test]
fn bad_inputs_are_refused_with_reasons() {
    let body = Mlp {
        batch: 2,
        widths: [1, 1, 1, 3],
        loss: Loss::CrossEntropy,
        rate: 0.1,
    };
    let problem = problem(body);
    let mut inputs = problem.generate(&InputKey([1; 32]));
    inputs.insert("labels".to_owned(), Tensor::i64([2], vec![0, 3]));
    assert_eq!(
        problem.validate(&inputs).unwrap_err(),
        "element 1 of `labels` is 3, but there are 3 classes, from 0 on"
    );
    inputs.insert("b1".to_owned(), Tensor::f32([1], vec![f32::NAN]));
    assert_eq!(
        problem.validate(&inputs).unwrap_err(),
        "element 0 of `b1` is NaN, not a finite number"
    );
    let size = [("size", MOST)].into_iter().collect();
    assert!(
        workload("matmul_chain")
            .unwrap()
            .problem(&size, Dtype::F32)
            .is_ok()
    );
    let depth = [("depth", 0)].into_iter().collect();
    let refused = workload("matmul_chain")
        .unwrap()
        .problem(&depth, Dtype::F32);
    assert_eq!(
        refused.map(|_| ()).unwrap_err().to_string(),
        "`depth` = 0: expected a whole number from 1 to 64"
    );
}

#[test]
fn smaller_problems_cost_no_more_than_asked() {
    let whole = step(1 << 16, Loss::SquaredError);
    let smaller = whole.reduced(Phase::Both, 1e7).unwrap();
    let cost = smaller.oracle_operations(Phase::Both);
    assert!((1e6..=1e7).contains(&cost), "{cost}");
    assert!(whole.reduced(Phase::Both, 10.0).is_none());
    let block = AttentionBlock {
        sequence: 4096,
        dimension: 4096,
    };
    assert!(block.reduced(Phase::Both, 1e7).is_none());
}
