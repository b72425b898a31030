//! Finds `sum(exp(x - max x))` over columns whose exponentials have no other use (log-sum-exp). All
//! terms are at most 1 and one term is 1, so that small terms need no relative accuracy: such sums
//! use a faster exp. Partial sums of a row may be relative to their own maxima, and are merged by
//! `sum = sum of partial sums e^(their max - max)` (online softmax: Milakov and Gimelshein, "Online
//! normalizer calculation for softmax", 2018).

use crate::graph::op::{Binary, Reduction, Unary};
use crate::nest::{Nest, Over, Value, ValueId};

/// One sum of exponentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exponentials {
    /// `x - max x`.
    pub difference: ValueId,
    /// `max x` over columns.
    pub max: ValueId,
    /// `sum e^(x - max x)` over columns.
    pub sum: ValueId,
}

impl Exponentials {
    /// The sum of the exponentials that a value is.
    pub(super) fn of(nest: &Nest, exponential: ValueId) -> Option<Exponentials> {
        let Value::Unary(Unary::Exp, difference) = nest.values[exponential.0] else {
            return None;
        };
        let Value::Binary(Binary::Sub, x, max) = nest.values[difference.0] else {
            return None;
        };
        let greatest = over_columns(Reduction::Max, x);
        let sum = only_use(nest, exponential)?;
        let is_such = nest.values[max.0] == greatest
            && nest.values[sum.0] == over_columns(Reduction::Sum, exponential);
        is_such.then_some(Exponentials {
            difference,
            max,
            sum,
        })
    }

    /// The exponentials that a value is the sum of.
    pub(super) fn by_sum(nest: &Nest, sum: ValueId) -> Option<Exponentials> {
        match nest.values[sum.0] {
            Value::Reduce { of, .. } => Exponentials::of(nest, of).filter(|them| them.sum == sum),
            _ => None,
        }
    }
}

fn over_columns(reduction: Reduction, of: ValueId) -> Value {
    Value::Reduce {
        reduction,
        over: Over::Columns,
        of,
    }
}

/// The value that alone uses another one, which is not stored.
pub(super) fn only_use(nest: &Nest, id: ValueId) -> Option<ValueId> {
    let values = nest.values.iter().enumerate();
    let mut uses = values.filter(|(_, value)| value.operands().any(|used| used == id));
    let (only, _) = uses.next()?;
    let is_stored = nest.stores.iter().any(|store| store.value == id);
    (uses.next().is_none() && !is_stored).then_some(ValueId(only))
}

#[cfg(test)]
mod tests {
    use super::super::stages::tests::softmax;
    use super::*;
    use crate::nest::Stride;

    /// The sum of `e^(x - max x)`, and `x`'s sum.
    fn nest() -> Nest {
        let mut nest = softmax();
        nest.values[5] = over_columns(Reduction::Sum, ValueId(0));
        nest.operands[1].columns = Stride::Broadcast;
        nest.stores[0].value = ValueId(4);
        nest
    }

    #[test]
    fn sums_of_exponentials_are_found() {
        let found = Exponentials {
            difference: ValueId(2),
            max: ValueId(1),
            sum: ValueId(4),
        };
        assert_eq!(Exponentials::of(&nest(), ValueId(3)), Some(found));
        assert_eq!(Exponentials::by_sum(&nest(), ValueId(4)), Some(found));
        assert_eq!(Exponentials::by_sum(&nest(), ValueId(5)), None);
    }

    #[test]
    fn exponentials_that_are_used_or_unbounded_are_none() {
        let changed = |change: fn(&mut Nest)| {
            let mut nest = nest();
            change(&mut nest);
            Exponentials::of(&nest, ValueId(3))
        };
        let used_twice = |nest: &mut Nest| {
            let ratio = Value::Binary(Binary::Div, ValueId(3), ValueId(4));
            nest.values.push(ratio);
        };
        assert_eq!(changed(used_twice), None);
        assert_eq!(changed(|nest| nest.stores[0].value = ValueId(3)), None);
        // The exponent subtracts the sum of x, which is not a bound; and a maximum of another value
        // than x.
        assert_eq!(
            changed(|nest| nest.values[1] = nest.values[5].clone()),
            None
        );
        let of_another = |nest: &mut Nest| {
            nest.values[1] = over_columns(Reduction::Max, ValueId(6));
            nest.values.push(nest.values[0].clone());
        };
        assert_eq!(changed(of_another), None);
        // The greatest exponential, not their sum.
        let greatest = |nest: &mut Nest| {
            nest.values[4] = over_columns(Reduction::Max, ValueId(3));
        };
        assert_eq!(changed(greatest), None);
    }
}
