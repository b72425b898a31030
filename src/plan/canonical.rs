//! Canonical shapes: what kernels are compiled for, so that many points share few of them.

use std::sync::Arc;

use sweeper_kernels::{CanonicalShape, Value};

/// The least bucket that holds `value`; beyond the last one the next power of two.
pub fn bucket(buckets: &[u64], value: u64) -> u64 {
    let held = buckets.iter().copied().find(|&bucket| bucket >= value);
    held.unwrap_or_else(|| value.next_power_of_two())
}

/// Named bucket lists, as a manifest or a workload gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    lists: Vec<(Arc<str>, Vec<u64>)>,
}

impl Buckets {
    /// Bucket lists by the name of an axis or derived value; each ascending.
    pub fn new(lists: Vec<(Arc<str>, Vec<u64>)>) -> Self {
        Buckets { lists }
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lists.iter().map(|(name, _)| &**name)
    }

    /// The canonical shape of a point: it depends on the point's own values alone and dominates it.
    pub fn shape(&self, value: impl Fn(&str) -> Option<Value>) -> CanonicalShape {
        CanonicalShape::new(
            self.lists
                .iter()
                .filter_map(|(name, buckets)| match value(name)? {
                    Value::Int(size) => {
                        let size = u64::try_from(size).unwrap_or(0);
                        Some((name.to_string(), bucket(buckets, size)))
                    }
                    Value::Bool(_) | Value::Float(_) | Value::Text(_) => None,
                }),
        )
    }
}

/// How much larger `shape` is than the point it holds: the product over its dimensions of bucket
/// over value, less one.
pub fn padding_waste(shape: &CanonicalShape, value: impl Fn(&str) -> Option<Value>) -> f64 {
    let ratio = |(name, bound): (&str, u64)| match value(name) {
        Some(Value::Int(size)) if size > 0 => bound as f64 / size as f64,
        _ => 1.0,
    };
    shape.iter().map(ratio).product::<f64>() - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_dominate() {
        assert_eq!(bucket(&[12, 24, 48], 12), 12);
        assert_eq!(bucket(&[12, 24, 48], 13), 24);
        assert_eq!(bucket(&[12, 24, 48], 49), 64);
        let buckets = Buckets::new(vec![
            ("T".into(), vec![64, 128]),
            ("KC".into(), vec![12, 24]),
        ]);
        let value = |name: &str| Some(Value::Int(if name == "T" { 100 } else { 18 }));
        let shape = buckets.shape(value);
        assert_eq!(shape.to_string(), "KC<=24 T<=128");
        let waste = padding_waste(&shape, value);
        assert!((waste - (1.28 * 24.0 / 18.0 - 1.0)).abs() < 1e-12);
    }
}
