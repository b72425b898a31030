//! How many digits of values and entropies are right, over many inputs: no fewer than those of the
//! plain program, whose sums have one term an edge.

use super::*;

const SEEDS: u8 = 20;

/// Root mean squares of relative errors, of each result.
fn errors(sizes: [i64; 4], options: &str, backend: &str) -> Vec<(String, f64)> {
    let problem = problem(sizes, options);
    let mut squares: Vec<(String, Vec<f64>)> = vec![];
    for seed in 0..SEEDS {
        let inputs = problem.generate(&InputKey([seed; 32]));
        let expected = problem.oracle(&inputs, Phase::Forward);
        let case = Case {
            problem: self::problem(sizes, options),
            inputs,
            expected,
            name: options.to_owned(),
        };
        let outputs = case.outputs(backend, Phase::Forward, &CanonicalShape::default());
        for (name, out) in &outputs {
            let right = case.expected[name].as_f64().unwrap();
            let out = out.as_f32().unwrap();
            let relative =
                |(&out, &right): (&f32, &f64)| (f64::from(out) - right) / right.abs().max(1.0);
            let errors = out
                .iter()
                .zip(right)
                .map(relative)
                .map(|error| error * error);
            match squares.iter_mut().find(|(held, _)| held == name) {
                Some((_, held)) => held.extend(errors),
                None => squares.push((name.clone(), errors.collect())),
            }
        }
    }
    let mean = |all: &[f64]| (all.iter().sum::<f64>() / all.len() as f64).sqrt();
    squares
        .into_iter()
        .map(|(name, all)| (name, mean(&all)))
        .collect()
}

/// Twice the plain program's error, or half a unit in the last place of a value; four of an
/// entropy, which is a difference of sums that are larger than it.
#[test]
fn values_are_as_right_as_those_of_the_plain_program() {
    let half_unit = f64::from(f32::EPSILON) / 2.0;
    for potentials in [
        "materialized",
        "decomposed",
        "decomposed transition=per_duration",
    ] {
        for semiring in ["log", "max", "entropy"] {
            for sizes in [[17, 5, 3, 2], [65, 12, 3, 2], [33, 40, 17, 1]] {
                let options = format!("potentials={potentials} semiring={semiring} lengths=random");
                let plain = errors(sizes, &options, "streaming");
                for backend in BACKENDS {
                    for ((name, found), (_, plain)) in
                        errors(sizes, &options, backend).into_iter().zip(&plain)
                    {
                        let units = if name == "entropy" { 4.0 } else { 1.0 };
                        let bound = (2.0 * plain).max(units * half_unit);
                        assert!(
                            found <= bound,
                            "{sizes:?} {options} {backend}: `{name}` is off by {found:e}, plainly by {plain:e}"
                        );
                    }
                }
            }
        }
    }
}
