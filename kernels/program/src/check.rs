//! Judging outputs against the oracle.

use std::borrow::Cow;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::tensor::{Data, Element, Tensor, Tensors};
use crate::with_elements;

/// How the distance of two tensors is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Greatest of `|out - ref| / max(|ref|, 1)`.
    MaxRelative,
    /// `||out - ref|| / ||ref||`; the absolute norm where the reference is zero.
    RelativeL2,
    /// `|<out - ref, ref>| / <ref, ref>`: a factor that all elements have in common.
    CommonScale,
    /// A measure of the workload's own, such as the loss of an argmax that need not be unique.
    Custom,
}

/// The judgement of one tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorCheck {
    /// Name of the tensor.
    pub tensor: String,
    /// How `error` was measured.
    pub metric: Metric,
    /// The distance; infinite where a value is NaN, missing or never written.
    #[serde(with = "maybe_infinite")]
    pub error: f64,
    /// The greatest distance that is right.
    pub tolerance: f64,
    /// The distance in units of what rounding does in an honest program
    /// ([`Spread`](crate::spread::Spread)); none where nobody knows that.
    #[serde(default)]
    pub spreads: Option<f64>,
    /// The least relative L2 error of the whole tensor that this judgement notices; none where
    /// nobody knows that.
    #[serde(default)]
    pub notices: Option<f64>,
    /// It is further out than a program that sums long rows in blocks would be
    /// ([`spread::name_of_tight`](crate::spread::name_of_tight)).
    #[serde(default)]
    pub is_inexact: bool,
}

impl TensorCheck {
    /// The judgement of an output that is missing, of another shape, or not finite where its answer
    /// is: it is wrong.
    pub fn not_judged(tensor: &str, metric: Metric) -> Self {
        TensorCheck {
            tensor: tensor.to_owned(),
            metric,
            error: f64::INFINITY,
            tolerance: 0.0,
            spreads: None,
            notices: None,
            is_inexact: false,
        }
    }

    /// The error in units of its tolerance: 0 where there is no error.
    pub fn ratio(&self) -> f64 {
        match self.error == 0.0 {
            true => 0.0,
            false => self.error / self.tolerance,
        }
    }

    /// True if the tensor is right. NaN never is.
    pub fn passed(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// The judgement of all outputs of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// One for each output.
    pub tensors: Vec<TensorCheck>,
}

impl Check {
    /// True if there are outputs and all of them are right.
    pub fn passed(&self) -> bool {
        !self.tensors.is_empty() && self.tensors.iter().all(TensorCheck::passed)
    }

    /// The judgement of a less exact program: by tolerances times `factor`.
    #[must_use]
    pub fn with_tolerances_times(mut self, factor: f64) -> Self {
        for one in &mut self.tensors {
            one.tolerance *= factor;
            one.notices = one.notices.map(|error| error * factor);
        }
        self
    }

    /// The tensor that is furthest out in units of its tolerance.
    pub fn worst(&self) -> Option<&TensorCheck> {
        self.tensors
            .iter()
            .max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    }
}

/// Outputs that no kernel computed: a check that they pass judges nothing.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The outputs in words.
    pub name: &'static str,
    /// The outputs.
    pub outputs: Tensors,
    /// Names of those outputs that are wrong, each by itself.
    pub wrong: Vec<String>,
    /// Some output must be wrong, whichever.
    pub is_wrong_in_all: bool,
}

/// Infinity is `null` in JSON, which has no word for it.
mod maybe_infinite {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        value.is_finite().then_some(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
    }
}

/// Compares `out` with `expected` (of [`Data::F64`]) by `metric`.
pub fn compare(
    name: &str,
    out: Option<&Tensor>,
    expected: &Tensor,
    metric: Metric,
    tolerance: f64,
) -> TensorCheck {
    let error = match out {
        Some(out) if out.shape() == expected.shape() => distance(out, expected, metric),
        _ => f64::INFINITY,
    };
    TensorCheck {
        tensor: name.to_owned(),
        metric,
        error,
        tolerance,
        spreads: None,
        notices: match metric {
            Metric::RelativeL2 => Some(tolerance),
            _ => None,
        },
        is_inexact: false,
    }
}

fn distance(out: &Tensor, expected: &Tensor, metric: Metric) -> f64 {
    let expected = as_f64(expected);
    with_elements!(out.data(), out => distance_of(out, &expected, metric))
}

/// Pieces of this many elements are compared in parallel, and added up in their order, so that a
/// distance does not depend on the number of threads.
const PIECE: usize = 1 << 15;

fn distance_of<T: Element>(out: &[T], expected: &[f64], metric: Metric) -> f64 {
    // Of each piece: the greatest relative error, the squares of errors and of expected values.
    let pieces = out.par_chunks(PIECE).zip(expected.par_chunks(PIECE));
    let sums: Option<Vec<(f64, f64, f64)>> = pieces
        .map(|(out, expected)| {
            let mut sums = (0.0, 0.0, 0.0);
            for (out, &expected) in out.iter().map(|out| out.to_f64()).zip(expected) {
                let error = (out - expected).abs();
                sums.0 = f64::max(sums.0, error / expected.abs().max(1.0));
                sums.1 += error * error;
                sums.2 += expected * expected;
                if !out.is_finite() {
                    return None;
                }
            }
            Some(sums)
        })
        .collect();
    let Some(sums) = sums else {
        return f64::INFINITY;
    };
    let error = sums.iter().map(|sums| sums.1).sum::<f64>().sqrt();
    let scale = sums.iter().map(|sums| sums.2).sum::<f64>().sqrt();
    match metric {
        Metric::MaxRelative => sums.iter().map(|sums| sums.0).fold(0.0, f64::max),
        _ if scale > 0.0 => error / scale,
        _ => error,
    }
}

/// The elements as a slice of f64, converted in parallel where they are something else.
pub fn as_f64(tensor: &Tensor) -> Cow<'_, [f64]> {
    match tensor.data() {
        Data::F64(values) => Cow::Borrowed(values),
        other => with_elements!(other, values => {
            Cow::Owned(values.par_iter().map(|value| value.to_f64()).collect())
        }),
    }
}

/// The elements as f64, whatever their type.
pub fn elements(tensor: &Tensor) -> Box<dyn Iterator<Item = f64> + '_> {
    with_elements!(tensor.data(), values => Box::new(values.iter().map(|value| value.to_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(out: Vec<f32>, expected: Vec<f64>, metric: Metric) -> f64 {
        let out = Tensor::f32([out.len()], out);
        let expected = Tensor::f64([expected.len()], expected);
        compare("x", Some(&out), &expected, metric, 1e-6).error
    }

    #[test]
    fn distances() {
        assert_eq!(
            error(vec![1.0, 2.0], vec![1.0, 2.0], Metric::MaxRelative),
            0.0
        );
        assert_eq!(
            error(vec![3.0, 12.0], vec![0.0, 10.0], Metric::MaxRelative),
            3.0
        );
        assert_eq!(
            error(vec![3.0, 0.0], vec![0.0, 4.0], Metric::RelativeL2),
            1.25
        );
        assert_eq!(error(vec![2.0], vec![0.0], Metric::RelativeL2), 2.0);
    }

    #[test]
    fn nan_missing_and_misshapen_are_never_right() {
        assert_eq!(
            error(vec![f32::NAN], vec![f64::NAN], Metric::MaxRelative),
            f64::INFINITY
        );
        let expected = Tensor::f64([2], vec![0.0; 2]);
        let other = Tensor::f32([1, 2], vec![0.0; 2]);
        for out in [None, Some(&other)] {
            assert!(!compare("x", out, &expected, Metric::RelativeL2, 1.0).passed());
        }
        assert!(!Check::default().passed());
    }

    /// A check of tensors with these errors, relative to a tolerance of 0.5.
    fn check(errors: &[f64]) -> Check {
        let expected = Tensor::f64([1], vec![1.0]);
        let one = |error: &f64| {
            let out = Tensor::f64([1], vec![1.0 + error]);
            compare(
                &error.to_string(),
                Some(&out),
                &expected,
                Metric::RelativeL2,
                0.5,
            )
        };
        Check {
            tensors: errors.iter().map(one).collect(),
        }
    }

    #[test]
    fn the_furthest_tensor_decides() {
        let right = check(&[0.25, 0.5]);
        assert!(right.passed());
        assert_eq!(right.worst().map(|one| &*one.tensor), Some("0.5"));
        let wrong = check(&[0.25, 0.75, 0.5]);
        assert!(!wrong.passed());
        assert_eq!(wrong.worst().map(TensorCheck::ratio), Some(1.5));
        assert_eq!(wrong.tensors[0].notices, Some(0.5));
        let wider = wrong.with_tolerances_times(4.0);
        assert!(wider.passed());
        assert_eq!(wider.tensors.len(), 3);
        assert_eq!(
            (wider.tensors[1].tolerance, wider.tensors[1].notices),
            (2.0, Some(2.0))
        );
    }

    #[test]
    fn checks_are_read_as_they_were_written() {
        let mut check = check(&[0.25]);
        check.tensors.push(TensorCheck {
            error: f64::INFINITY,
            ..check.tensors[0].clone()
        });
        let text = serde_json::to_string(&check).unwrap();
        assert_eq!(serde_json::from_str::<Check>(&text).unwrap(), check);
    }
}
