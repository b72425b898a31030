//! A model that learns.

use super::*;
use sweeper_compiler::graph::evaluate;
use sweeper_program::tensor::Tensor;

/// Steps in f64, each from the state after the one before.
#[test]
fn the_loss_falls_from_step_to_step() {
    let words = "batch=2 context=6 vocabulary=11 d_model=16 d_ff=24 layers=2 heads=2 \
                 loss=cross_entropy rate=0.01";
    let plain = Plain {
        batch: 2,
        context: 6,
        vocabulary: 11,
        d_model: 16,
        d_ff: 24,
        layers: 2,
        heads: 2,
    };
    let first = problem(transformer(words).unwrap());
    let mut inputs = first.generate(&InputKey([8; 32]));
    for (name, tensor) in &mut inputs {
        if name.starts_with("moment") {
            *tensor = Tensor::f64(tensor.shape(), vec![0.0; tensor.shape().iter().product()]);
        }
    }
    let mut losses = vec![];
    for count in 1..=6 {
        let problem = problem(transformer(&format!("{words} step_count={count}")).unwrap());
        let [ids, labels] = ["input_ids", "labels"].map(|name| inputs[name].as_i64().unwrap());
        losses.push(plain.cross_entropy(&weights(&inputs), ids, labels));
        for (name, tensor) in evaluate(&problem.built().graph, &inputs).unwrap() {
            if let Some(name) = name.strip_prefix("after.") {
                inputs.insert(name.to_owned(), tensor);
            }
        }
    }
    assert!(
        losses.is_sorted_by(|before, after| after < before),
        "{losses:?}"
    );
    assert!(losses[5] < 0.8 * losses[0], "{losses:?}");
}
