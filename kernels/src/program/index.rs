//! Whole numbers that depend on the iterations of enclosing loops.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use smallvec::SmallVec;

/// The part of an [`Index`] that one enclosing loop contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Term {
    /// The loop: 0 is the outermost [`Step::Repeat`](super::Step::Repeat).
    pub depth: usize,
    /// Factor of the loop's iteration (after `shift` and `modulus`).
    pub stride: i64,
    /// Added to the iteration first.
    pub shift: i64,
    /// The shifted iteration is taken modulo this (the result is never negative), for rings.
    pub modulus: Option<i64>,
}

/// A whole number that may depend on the iterations of enclosing loops:
/// `clamp(base + sum of stride ((iteration + shift) mod modulus), least, most)`.
///
/// A plan makes millions of these, nearly all of them fixed: what fixed ones don't need is apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    base: i64,
    varying: Option<Box<Varying>>,
}

/// The part of an [`Index`] that differs from iteration to iteration, and its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Varying {
    terms: SmallVec<[Term; 2]>,
    least: i64,
    most: i64,
}

impl Index {
    /// The same in every iteration.
    pub const fn fixed(base: i64) -> Self {
        Index {
            base,
            varying: None,
        }
    }

    /// `base + stride * iteration` of the loop at `depth`.
    pub fn affine(base: i64, depth: usize, stride: i64) -> Self {
        Index::fixed(base).plus(Term {
            depth,
            stride,
            shift: 0,
            modulus: None,
        })
    }

    /// Adds a term.
    pub fn plus(mut self, term: Term) -> Self {
        self.varying().terms.push(term);
        self
    }

    /// Bounds the value, both ends inclusive.
    pub fn clamped(mut self, least: i64, most: i64) -> Self {
        let varying = self.varying();
        (varying.least, varying.most) = (least, most);
        self
    }

    fn varying(&mut self) -> &mut Varying {
        self.varying.get_or_insert_with(|| {
            Box::new(Varying {
                terms: SmallVec::new(),
                least: i64::MIN,
                most: i64::MAX,
            })
        })
    }

    fn terms(&self) -> &[Term] {
        self.varying.as_ref().map_or(&[], |varying| &varying.terms)
    }

    fn bounds(&self) -> (i64, i64) {
        self.varying
            .as_ref()
            .map_or((i64::MIN, i64::MAX), |varying| {
                (varying.least, varying.most)
            })
    }

    /// The value at the given iterations, outermost loop first.
    ///
    /// # Panics
    /// If a term names a loop that does not enclose the step: [`Program::validate`](super::Program::validate) finds that.
    pub fn at(&self, iterations: &[i64]) -> i64 {
        let Some(varying) = &self.varying else {
            return self.base;
        };
        let mut value = self.base;
        for term in &varying.terms {
            let iteration = iterations[term.depth] + term.shift;
            let iteration = match term.modulus {
                Some(modulus) => iteration.rem_euclid(modulus),
                None => iteration,
            };
            value += term.stride * iteration;
        }
        value.clamp(varying.least, varying.most)
    }

    /// The least and the greatest value over all iterations of loops with `counts` iterations, or
    /// `None` if one of them never runs. Exact for one term a loop, else possibly too wide.
    pub(super) fn range(&self, counts: &[u64]) -> Option<(i64, i64)> {
        if counts.contains(&0) {
            return None;
        }
        let (mut least, mut most) = (self.base, self.base);
        for term in self.terms() {
            let first = term.shift;
            let last = term.shift + counts[term.depth] as i64 - 1;
            let (low, high) = match term.modulus {
                Some(modulus) if first.div_euclid(modulus) == last.div_euclid(modulus) => {
                    (first.rem_euclid(modulus), last.rem_euclid(modulus))
                }
                Some(modulus) => (0, modulus - 1),
                None => (first, last),
            };
            least += (term.stride * low).min(term.stride * high);
            most += (term.stride * low).max(term.stride * high);
        }
        let (floor, ceiling) = self.bounds();
        Some((least.clamp(floor, ceiling), most.clamp(floor, ceiling)))
    }

    /// How many enclosing loops it needs.
    pub(super) fn depth(&self) -> usize {
        self.terms()
            .iter()
            .map(|term| term.depth + 1)
            .max()
            .unwrap_or(0)
    }
}

impl Serialize for Index {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (least, most) = self.bounds();
        let mut fields = serializer.serialize_struct("Index", 4)?;
        fields.serialize_field("base", &self.base)?;
        fields.serialize_field("terms", self.terms())?;
        fields.serialize_field("least", &least)?;
        fields.serialize_field("most", &most)?;
        fields.end()
    }
}

impl From<usize> for Index {
    fn from(value: usize) -> Self {
        Index::fixed(value as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_index_wraps_and_is_never_negative() {
        let term = Term {
            depth: 0,
            stride: 4,
            shift: -1,
            modulus: Some(3),
        };
        let index = Index::fixed(0).plus(term);
        let offsets: Vec<i64> = (0..4).map(|iteration| index.at(&[iteration])).collect();
        assert_eq!(offsets, [8, 0, 4, 8]);
        assert_eq!(Index::affine(0, 0, 1).clamped(1, 2).at(&[5]), 2);
    }
}
