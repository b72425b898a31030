//! The contract of one problem: tensors, oracle, work, and which backend makes its programs.

use super::compiled::{self, Keep};
use super::generate;
use super::judge;
use super::oracle;
use super::reference;
use super::sizes::{Lengths, Potentials, Semiring, Sizes};
use super::streaming;
use sweeper_program::Program;
use sweeper_program::check::Check;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::Tensors;
use sweeper_program::workload::{
    CanonicalShape, DeviceOracle, Phase, Problem, Refusal, Target, TensorSpec, Work,
};

/// A problem.
#[derive(Clone, Copy, Debug)]
pub struct SemiCrfProblem {
    /// Sizes and options of the problem.
    pub sizes: Sizes,
}

impl Problem for SemiCrfProblem {
    fn inputs(&self) -> Vec<TensorSpec> {
        self.sizes.inputs()
    }

    fn outputs(&self, phase: Phase) -> Vec<TensorSpec> {
        self.sizes.outputs(phase)
    }

    fn generate(&self, key: &InputKey) -> Tensors {
        generate::generate(&self.sizes, key)
    }

    fn showing(&self, key: &InputKey) -> Option<Tensors> {
        Some(generate::showing(&self.sizes, key))
    }

    fn validate(&self, inputs: &Tensors) -> Result<(), String> {
        generate::validate(&self.sizes, inputs)
    }

    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors {
        oracle::oracle(&self.sizes, inputs, phase)
    }

    fn oracle_operations(&self, phase: Phase, threads: usize) -> f64 {
        oracle::operations(&self.sizes, phase, threads)
    }

    fn reduced(&self, phase: Phase, operations: f64, threads: usize) -> Option<Box<dyn Problem>> {
        let sizes = oracle::reduced(&self.sizes, phase, operations, threads)?;
        Some(Box::new(SemiCrfProblem { sizes }))
    }

    fn device_oracle(&self, phase: Phase, target: &Target) -> Option<DeviceOracle> {
        match target {
            Target::Cpu => None,
            Target::Cuda { .. } => Some(oracle::cuda::oracle(&self.sizes, phase)),
        }
    }

    fn check(
        &self,
        inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        phase: Phase,
    ) -> Check {
        judge::check(&self.sizes, inputs, outputs, expected, phase)
    }

    fn work(&self, phase: Phase) -> Work {
        work(&self.sizes, phase)
    }

    fn program(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Program, Refusal> {
        match backend {
            "streaming" => Ok(streaming::program(&self.sizes, phase, target)),
            "fused" => compiled::program(&self.sizes, phase, canonical, target, Keep::Rows),
            "fused_checkpointing" => {
                compiled::program(&self.sizes, phase, canonical, target, Keep::Checkpoints)
            }
            "fused_reference" => reference::program(&self.sizes, phase, target),
            _ => Err(Refusal::Unavailable(format!(
                "`{backend}` is not part of this build"
            ))),
        }
    }
}

/// The least work that the shortest batch of these sizes needs.
///
/// Materialized edges: add, exponential and sum each (max: add and compare; entropy: two more to
/// sum with the logarithm), as many to propagate plus the product that is written. Decomposed ones
/// with a fixed transition never need an edge: a C x C product a boundary, and K C products.
fn work(sizes: &Sizes, phase: Phase) -> Work {
    let (forward, backward) = match sizes.semiring {
        Semiring::Log => (3.0, 4.0),
        Semiring::Max => (2.0, 0.0),
        Semiring::Entropy => (5.0, 8.0),
    };
    // Scores that are factored are exponentials already: multiply and add.
    let saved = match (sizes.potentials, sizes.semiring) {
        (Potentials::Decomposed, Semiring::Log | Semiring::Entropy) => 1.0,
        _ => 0.0,
    };
    let terms: f64 = ends(sizes).map(|end| terms(sizes, end)).sum();
    let flops = match phase {
        Phase::Forward => terms * (forward - saved),
        Phase::Backward => terms * (backward - saved).max(0.0),
        Phase::Both | Phase::Step => {
            terms * (forward + backward - 2.0 * saved).max(forward - saved)
        }
    };
    let scores = || 4.0 * sizes.score_elements().map(|(_, n)| n as f64).sum::<f64>();
    let per_sequence = |bytes: usize| (bytes * sizes.b) as f64;
    let given = match sizes.potentials {
        Potentials::Decomposed => scores() + per_sequence(8),
        Potentials::Materialized => {
            let edges: f64 = ends(sizes).map(|end| oracle::edge_count(sizes, end)).sum();
            4.0 * edges + per_sequence(8)
        }
    };
    let values = match (phase, sizes.semiring) {
        (Phase::Backward, _) => 0.0,
        (_, Semiring::Entropy) => per_sequence(8),
        _ => per_sequence(4),
    };
    let gradients = if phase.has_gradients() { scores() } else { 0.0 };
    Work {
        flops,
        compulsory_bytes: given + values + gradients,
    }
}

/// Ends of the sequences of the shortest batch.
fn ends(sizes: &Sizes) -> impl Iterator<Item = usize> {
    let sizes = *sizes;
    (0..sizes.b).map(move |sequence| match sizes.lengths {
        Lengths::Random if sequence > 0 => sizes.end(generate::shortest(sizes.t)),
        _ => sizes.last_end(),
    })
}

/// Terms that are summed over one sequence.
fn terms(sizes: &Sizes, end: usize) -> f64 {
    let edges = oracle::edge_count(sizes, end);
    let c = sizes.c as f64;
    if sizes.is_decomposed() && !sizes.transition_per_duration {
        edges / c + end as f64 * c * c
    } else {
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semicrf::SemiCrf;
    use sweeper_program::workload::{ParameterError, Workload};
    use sweeper_program::{Dtype, Parameters, Value};

    fn problem(words: &[(&str, &str)]) -> Result<Box<dyn Problem>, ParameterError> {
        let mut parameters: Parameters = [("T", 9), ("K", 4), ("C", 3), ("B", 2)]
            .into_iter()
            .collect();
        for &(name, word) in words {
            parameters.set(name, Value::from(word));
        }
        SemiCrf.problem(&parameters, Dtype::F32)
    }

    fn shapes(specs: &[TensorSpec]) -> Vec<(&str, &[usize])> {
        specs
            .iter()
            .map(|spec| (spec.name.as_str(), &spec.shape[..]))
            .collect()
    }

    #[test]
    fn tensors_of_both_forms() {
        let materialized = problem(&[("semiring", "Entropy")]).unwrap();
        assert_eq!(
            shapes(&materialized.inputs()),
            [("edge", &[2, 8, 4, 3, 3][..]), ("lengths", &[2])]
        );
        assert_eq!(
            shapes(&materialized.outputs(Phase::Both)),
            [
                ("value", &[2][..]),
                ("entropy", &[2]),
                ("grad_edge", &[2, 8, 4, 3, 3])
            ]
        );
        let decomposed = problem(&[
            ("potentials", "decomposed"),
            ("transition", "per_duration"),
            ("semiring", "Log"),
        ])
        .unwrap();
        assert_eq!(
            shapes(&decomposed.outputs(Phase::Backward)),
            [
                ("grad_cum_scores", &[2, 10, 3][..]),
                ("grad_transition", &[4, 3, 3]),
                ("grad_duration_bias", &[4, 3])
            ]
        );
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        let error = problem(&[("transition", "per_duration")]).err().unwrap();
        assert!(error.to_string().contains("needs `potentials`"), "{error}");
        let error = problem(&[("durations", "1..T")]).err().unwrap();
        assert_eq!(
            error.to_string(),
            "`durations` = 1..T: expected one of 1..K-1, 1..K"
        );
        let sizes = [("T", 1 << 24), ("K", 1 << 12), ("C", 1 << 10)];
        let error = SemiCrf
            .problem(&sizes.into_iter().collect(), Dtype::F32)
            .err()
            .unwrap();
        assert!(error.to_string().contains("elements"), "{error}");
    }

    #[test]
    fn generated_inputs_fit_and_pass() {
        for words in [
            &[("lengths", "random")][..],
            &[("potentials", "decomposed"), ("lengths", "random")],
        ] {
            let problem = problem(words).unwrap();
            let inputs = problem.generate(&InputKey([5; 32]));
            for spec in problem.inputs() {
                assert_eq!(inputs[&spec.name].shape(), spec.shape);
                assert_eq!(inputs[&spec.name].dtype(), spec.dtype);
            }
            assert_eq!(problem.validate(&inputs), Ok(()));
            assert_eq!(inputs["lengths"].as_i64().unwrap()[0], 9);
        }
    }

    #[test]
    fn cumulative_scores_start_and_end_at_zero() {
        let problem = problem(&[("potentials", "decomposed")]).unwrap();
        let inputs = problem.generate(&InputKey([5; 32]));
        let sums = inputs["cum_scores"].as_f32().unwrap();
        assert!(sums[..3].iter().all(|&sum| sum == 0.0));
        assert!(sums[27..30].iter().all(|sum| sum.abs() < 1e-6));
        assert!(sums[3..27].iter().any(|sum| sum.abs() > 0.5));
    }

    #[test]
    fn what_a_file_gets_wrong_is_named() {
        let problem = problem(&[("potentials", "decomposed")]).unwrap();
        let good = problem.generate(&InputKey([5; 32]));
        let complaint = |name: &str, element: usize, value: f32| {
            let mut inputs = good.clone();
            let shape = good[name].shape().to_vec();
            let mut values = good[name].as_f32().unwrap().to_vec();
            values[element] = value;
            inputs.insert(name.to_owned(), sweeper_program::Tensor::f32(shape, values));
            problem.validate(&inputs).unwrap_err()
        };
        assert!(complaint("transition", 4, f32::NAN).contains("`transition`: element 4"));
        assert!(complaint("cum_scores", 31, 1.0).contains("element 31 is at position 0"));
        let mut inputs = good.clone();
        inputs.insert(
            "lengths".to_owned(),
            sweeper_program::Tensor::i64([2], vec![9, 0]),
        );
        assert!(
            problem
                .validate(&inputs)
                .unwrap_err()
                .contains("sequence 1 has length 0")
        );
    }

    #[test]
    fn sizes_of_tensors_are_known_without_their_specs() {
        for words in [
            &[("semiring", "entropy")][..],
            &[("potentials", "decomposed")],
            &[("potentials", "decomposed"), ("transition", "per_duration")],
        ] {
            let mut parameters: Parameters = [("T", 9), ("K", 4), ("C", 3), ("B", 2)]
                .into_iter()
                .collect();
            for &(name, word) in words {
                parameters.set(name, Value::from(word));
            }
            let resolved = SemiCrf.info().resolve(&parameters).unwrap();
            let sizes = Sizes::new(&resolved).unwrap();
            let specs = sizes.score_specs("");
            let known: Vec<(&str, u64)> = sizes
                .score_elements()
                .map(|(name, elements)| (name, 4 * elements as u64))
                .collect();
            let expected: Vec<(&str, u64)> = specs
                .iter()
                .map(|spec| (spec.name.as_str(), spec.size_bytes()))
                .collect();
            assert_eq!(known, expected);
            let outputs: u64 = sizes
                .outputs(Phase::Both)
                .iter()
                .map(TensorSpec::size_bytes)
                .sum();
            let inputs: u64 = sizes.inputs().iter().map(TensorSpec::size_bytes).sum();
            if sizes.is_decomposed() {
                let bytes = work(&sizes, Phase::Both).compulsory_bytes;
                assert_eq!(bytes, (inputs + outputs) as f64);
            }
        }
    }

    #[test]
    fn work_follows_from_the_sizes() {
        let mut parameters: Parameters = [("T", 3), ("K", 3), ("C", 2), ("B", 1)]
            .into_iter()
            .collect();
        let work = |parameters: &Parameters, phase| {
            SemiCrf.problem(parameters, Dtype::F32).unwrap().work(phase)
        };
        // Two boundaries after the first: one segment ends at the first, two at the second.
        let forward = work(&parameters, Phase::Forward);
        assert_eq!(forward.flops, 3.0 * 12.0);
        assert_eq!(forward.compulsory_bytes, 4.0 * 12.0 + 8.0 + 4.0);
        parameters.set("semiring", "max");
        assert_eq!(work(&parameters, Phase::Backward).flops, 0.0);
        assert_eq!(work(&parameters, Phase::Both).flops, 24.0);
    }
}
