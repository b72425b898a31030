//! Judging outputs against the oracle.

use serde::{Deserialize, Serialize};

use crate::tensor::{Data, Tensor};

/// How the distance of two tensors is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Greatest of `|out - ref| / max(|ref|, 1)`.
    MaxRelative,
    /// `||out - ref|| / ||ref||`; the absolute norm where the reference is zero.
    RelativeL2,
    /// What a workload defines for itself, such as the loss of an argmax that need not be unique.
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
}

impl TensorCheck {
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

    /// The tensor that is furthest out in units of its tolerance.
    pub fn worst(&self) -> Option<&TensorCheck> {
        self.tensors
            .iter()
            .max_by(|a, b| (a.error / a.tolerance).total_cmp(&(b.error / b.tolerance)))
    }
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
    }
}

fn distance(out: &Tensor, expected: &Tensor, metric: Metric) -> f64 {
    let pairs = || elements(out).zip(elements(expected));
    if pairs().any(|(out, _)| !out.is_finite()) {
        return f64::INFINITY;
    }
    match metric {
        Metric::MaxRelative => pairs()
            .map(|(out, expected)| (out - expected).abs() / expected.abs().max(1.0))
            .fold(0.0, f64::max),
        Metric::RelativeL2 | Metric::Custom => {
            let norm = |sum: f64| sum.sqrt();
            let error = norm(
                pairs()
                    .map(|(out, expected)| (out - expected).powi(2))
                    .sum(),
            );
            let scale = norm(pairs().map(|(_, expected)| expected * expected).sum());
            if scale > 0.0 { error / scale } else { error }
        }
    }
}

/// The elements as f64, whatever their type.
pub fn elements(tensor: &Tensor) -> Box<dyn Iterator<Item = f64> + '_> {
    match tensor.data() {
        Data::F32(values) => Box::new(values.iter().map(|&value| f64::from(value))),
        Data::F64(values) => Box::new(values.iter().copied()),
        Data::I32(values) => Box::new(values.iter().map(|&value| f64::from(value))),
        Data::I64(values) => Box::new(values.iter().map(|&value| value as f64)),
    }
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
            error(vec![0.0, 12.0], vec![0.0, 10.0], Metric::MaxRelative),
            0.2
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
}
