//! The parameters of one problem, and the durations, shapes and ends that follow from them.

use sweeper_program::parameters::{Parameters, Value};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{ParameterError, Phase, TensorSpec};

/// Greatest values of the parameters.
pub const MAX_T: i64 = 1 << 24;
/// See [`MAX_T`].
pub const MAX_K: i64 = 1 << 12;
/// See [`MAX_T`].
pub const MAX_C: i64 = 1 << 10;
/// See [`MAX_T`].
pub const MAX_B: i64 = 1 << 16;

/// No tensor may have more elements: offsets in bytes stay far inside 64 bits.
const MAX_ELEMENTS: u128 = 1 << 48;

/// The semiring: the operations (+) and (x).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Semiring {
    /// logsumexp, +.
    Log,
    /// max, +.
    Max,
    /// Pairs of log weight and entropy.
    Entropy,
}

/// Origin of the scores of edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Potentials {
    /// A tensor.
    Materialized,
    /// Sums of cumulative scores, transition and duration bias.
    Decomposed,
}

/// The rule by which lengths are generated; kernels take any lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// All T.
    Full,
    /// T for the first sequence, from T/2 to T for the others.
    Random,
}

/// Sizes and options of one problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Positions.
    pub t: usize,
    /// Extent of the duration axis.
    pub k: usize,
    /// Labels.
    pub c: usize,
    /// Sequences.
    pub b: usize,
    /// The semiring.
    pub semiring: Semiring,
    /// The form of the potentials.
    pub potentials: Potentials,
    /// The rule by which lengths are generated.
    pub lengths: Lengths,
    /// True if the duration axis holds 1..K at index k-1, false if it holds 1..K-1 at index k.
    pub durations_to_k: bool,
    /// True if the transition depends on the duration.
    pub transition_per_duration: bool,
}

impl Sizes {
    /// The sizes that `resolved` parameters (see `WorkloadInfo::resolve`) name.
    ///
    /// # Errors
    /// [`ParameterError::Together`] where values that are fine alone are not together.
    pub fn new(resolved: &Parameters) -> Result<Self, ParameterError> {
        let size = |name: &str| match resolved.get(name) {
            Some(&Value::Int(value)) => value as usize,
            _ => unreachable!("resolved parameters hold {name} as an integer"),
        };
        let is = |name: &str, word: &str| match resolved.get(name) {
            Some(Value::Text(text)) => text.as_ref() == word,
            _ => unreachable!("resolved parameters hold {name} as a word"),
        };
        let sizes = Sizes {
            t: size("T"),
            k: size("K"),
            c: size("C"),
            b: size("B"),
            semiring: match () {
                () if is("semiring", "max") => Semiring::Max,
                () if is("semiring", "entropy") => Semiring::Entropy,
                () => Semiring::Log,
            },
            potentials: if is("potentials", "decomposed") {
                Potentials::Decomposed
            } else {
                Potentials::Materialized
            },
            lengths: if is("lengths", "random") {
                Lengths::Random
            } else {
                Lengths::Full
            },
            durations_to_k: is("durations", "1..K"),
            transition_per_duration: is("transition", "per_duration"),
        };
        sizes.check()?;
        Ok(sizes)
    }

    fn check(&self) -> Result<(), ParameterError> {
        let together = |reason: String| Err(ParameterError::Together { reason });
        if !self.is_decomposed() && self.transition_per_duration {
            return together(
                "`transition` = per_duration needs `potentials` = decomposed: materialized edges \
                 depend on the duration anyway"
                    .to_owned(),
            );
        }
        if !self.is_decomposed() && self.t < 2 {
            return together(
                "`potentials` = materialized needs T >= 2: edges start at T-1 positions".to_owned(),
            );
        }
        for (name, elements) in self.score_elements() {
            if elements > MAX_ELEMENTS {
                return together(format!(
                    "`{name}` would have {elements} elements, more than {MAX_ELEMENTS}"
                ));
            }
        }
        Ok(())
    }

    /// Names and sizes of the tensors of scores: [`Sizes::score_specs`] without shapes, since a
    /// plan asks for the names and sizes of many problems.
    pub fn score_elements(&self) -> impl Iterator<Item = (&'static str, u128)> {
        let [t, k, c, b] = [self.t, self.k, self.c, self.b].map(|size| size as u128);
        let tables = if self.transition_per_duration { k } else { 1 };
        let tensors = if self.is_decomposed() {
            [
                ("cum_scores", b * (t + 1) * c),
                ("transition", tables * c * c),
                ("duration_bias", k * c),
            ]
        } else {
            [("edge", b * (t - 1) * k * c * c), ("", 0), ("", 0)]
        };
        tensors.into_iter().filter(|(name, _)| !name.is_empty())
    }

    /// True for decomposed potentials.
    pub fn is_decomposed(&self) -> bool {
        self.potentials == Potentials::Decomposed
    }

    /// Longest duration, at least 1: K-1 or K.
    pub fn longest(&self) -> usize {
        if self.durations_to_k {
            self.k
        } else {
            (self.k - 1).max(1)
        }
    }

    /// Place of duration `1` on the duration axis; duration `k` lies `k - 1` further.
    pub fn first_duration_index(&self) -> usize {
        usize::from(!self.durations_to_k && self.k > 1)
    }

    /// The boundary at which the value of a sequence is read: boundaries are numbered from 0.
    pub fn end(&self, length: usize) -> usize {
        if self.is_decomposed() {
            length
        } else {
            length - 1
        }
    }

    /// The end of the longest sequence that fits.
    pub fn last_end(&self) -> usize {
        self.end(self.t)
    }

    /// The tensors that are read.
    pub fn inputs(&self) -> Vec<TensorSpec> {
        let mut specs = self.score_specs("");
        specs.push(TensorSpec {
            name: "lengths".to_owned(),
            dtype: Dtype::I64,
            shape: vec![self.b],
        });
        specs
    }

    /// The tensors that `phase` yields.
    pub fn outputs(&self, phase: Phase) -> Vec<TensorSpec> {
        let mut specs = Vec::new();
        if phase != Phase::Backward {
            specs.push(f32_spec("", "value", vec![self.b]));
            if self.semiring == Semiring::Entropy {
                specs.push(f32_spec("", "entropy", vec![self.b]));
            }
        }
        if phase.has_gradients() {
            specs.extend(self.score_specs("grad_"));
        }
        specs
    }

    /// The tensors of scores, or with a prefix their gradients.
    pub fn score_specs(&self, prefix: &str) -> Vec<TensorSpec> {
        let Sizes { t, k, c, b, .. } = *self;
        if !self.is_decomposed() {
            return vec![f32_spec(prefix, "edge", vec![b, t - 1, k, c, c])];
        }
        let transition = if self.transition_per_duration {
            vec![k, c, c]
        } else {
            vec![c, c]
        };
        vec![
            f32_spec(prefix, "cum_scores", vec![b, t + 1, c]),
            f32_spec(prefix, "transition", transition),
            f32_spec(prefix, "duration_bias", vec![k, c]),
        ]
    }
}

fn f32_spec(prefix: &str, name: &str, shape: Vec<usize>) -> TensorSpec {
    TensorSpec {
        name: format!("{prefix}{name}"),
        dtype: Dtype::F32,
        shape,
    }
}
