//! Whole numbers that depend on the iterations of enclosing loops.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use smallvec::SmallVec;

/// The part of an [`Index`] that one enclosing loop contributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
/// A plan makes millions of these, nearly all of them fixed: the fields that only others need are
/// boxed apart.
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
        let bounds = |varying: &Varying| (varying.least, varying.most);
        self.varying.as_deref().map_or((i64::MIN, i64::MAX), bounds)
    }

    /// Bounds the value, both ends inclusive.
    pub fn clamped(mut self, least: i64, most: i64) -> Self {
        let varying = self.varying();
        (varying.least, varying.most) = (least, most);
        self
    }

    /// Whether it is 0 in every iteration.
    pub fn is_zero(&self) -> bool {
        self.fixed_value() == Some(0)
    }

    /// The value, if it is the same in every iteration.
    pub fn fixed_value(&self) -> Option<i64> {
        let (least, most) = self.bounds();
        self.terms()
            .is_empty()
            .then(|| self.base.clamp(least, most))
    }

    /// The greatest value that it can have, by its bounds; its base where there are none.
    pub fn most(&self) -> i64 {
        match self.fixed_value() {
            Some(value) => value,
            None => match self.bounds() {
                (_, i64::MAX) => self.base,
                (_, most) => most,
            },
        }
    }

    /// `factor` times the value, for a factor that is not negative.
    pub fn times(mut self, factor: i64) -> Self {
        // Times 0 bounds would be numbers, to which whatever is added later is held.
        if factor == 0 {
            return Index::fixed(0);
        }
        self.base *= factor;
        if let Some(varying) = &mut self.varying {
            for term in &mut varying.terms {
                term.stride *= factor;
            }
            // Bounds that are none stay none.
            varying.least = varying.least.saturating_mul(factor);
            varying.most = varying.most.saturating_mul(factor);
        }
        self
    }

    /// `by` more, for a value without bounds.
    pub fn shifted(mut self, by: i64) -> Self {
        self.base += by;
        self
    }

    /// The product, if no more than one of the two depends on iterations.
    pub fn product(self, other: Index) -> Option<Self> {
        match (self.fixed_value(), other.fixed_value()) {
            (Some(factor), _) => Some(other.times(factor)),
            (_, Some(factor)) => Some(self.times(factor)),
            (None, None) => None,
        }
    }

    /// The sum of the values over all iterations of loops with `counts` iterations.
    pub(super) fn sum(&self, counts: &[u64]) -> i128 {
        let all: i128 = counts.iter().map(|&count| i128::from(count)).product();
        match self.terms() {
            [] => all * i128::from(self.fixed_value().unwrap_or(self.base)),
            _ if all == 0 => 0,
            [term] if term.modulus.is_none() => {
                let count = i128::from(counts[term.depth]);
                all / count * self.sum_of_steps(term, count)
            }
            _ => self.sum_one_by_one(counts),
        }
    }

    /// The sum over `count` iterations of the loop of the only term: iterations clamped to the
    /// least value, those clamped to the greatest, and an arithmetic series between.
    fn sum_of_steps(&self, term: &Term, count: i128) -> i128 {
        let (least, most) = self.bounds();
        let [base, stride, least, most] = [self.base, term.stride, least, most].map(i128::from);
        let first = base + stride * i128::from(term.shift);
        // Upwards, so that the order of the three is known.
        let (first, stride) = if stride < 0 {
            (first + stride * (count - 1), -stride)
        } else {
            (first, stride)
        };
        if stride == 0 {
            return count * first.clamp(least, most);
        }
        let under = (least - first + stride - 1)
            .div_euclid(stride)
            .clamp(0, count);
        let over = ((most - first).div_euclid(stride) + 1).clamp(under, count);
        let between = over - under;
        under * least
            + (count - over) * most
            + between * (first + stride * under)
            + stride * (between * (between - 1) / 2)
    }

    fn sum_one_by_one(&self, counts: &[u64]) -> i128 {
        let mut iterations = vec![0; counts.len()];
        let mut sum = 0;
        loop {
            sum += i128::from(self.at(&iterations));
            let Some(depth) = (0..counts.len())
                .rev()
                .find(|&depth| iterations[depth] + 1 < counts[depth] as i64)
            else {
                return sum;
            };
            iterations[depth] += 1;
            iterations[depth + 1..].fill(0);
        }
    }

    /// The value at the given iterations, outermost loop first.
    ///
    /// # Panics
    /// If a term names a loop that does not enclose the step:
    /// [`Program::validate`](super::Program::validate) finds that.
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
        let depths = self.terms().iter().map(|term| term.depth + 1);
        depths.max().unwrap_or(0)
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

    #[test]
    fn sums_are_those_of_all_iterations() {
        let ring = |stride| Term {
            depth: 1,
            stride,
            shift: 5,
            modulus: Some(4),
        };
        for (base, stride, least, most) in [
            (0, 3, i64::MIN, i64::MAX),
            (7, -3, 0, 12),
            (-20, 6, 6, 18),
            (100, 1, 0, 50),
            (1, 0, 2, 3),
        ] {
            let index = Index::affine(base, 1, stride).clamped(least, most);
            for index in [index.clone(), index.clone().plus(ring(2)), index.times(3)] {
                for counts in [[1, 1], [3, 9], [2, 40], [4, 0]] {
                    let pairs = (0..counts[0] as i64)
                        .flat_map(|one| (0..counts[1] as i64).map(move |two| [one, two]));
                    let expected: i128 = pairs.map(|pair| i128::from(index.at(&pair))).sum();
                    assert_eq!(index.sum(&counts), expected, "{index:?} {counts:?}");
                }
            }
        }
        let twice = Index::fixed(2).product(Index::affine(1, 0, 1));
        assert_eq!(twice.map(|index| index.at(&[3])), Some(8));
        let square = Index::affine(0, 0, 1).product(Index::affine(0, 0, 1));
        assert_eq!(square, None);
    }

    #[test]
    fn what_does_not_move_can_be_shifted() {
        let index = Index::affine(0, 0, 256).times(0).shifted(1000);
        assert_eq!(index.at(&[0]), 1000);
        assert_eq!(index.at(&[3]), 1000);
    }
}
