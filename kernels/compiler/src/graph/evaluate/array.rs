//! Elements of a node, shared and read through steps: views cost nothing.

use std::borrow::Cow;
use std::sync::Arc;

use rayon::prelude::*;

/// Elements that one task works on, at least.
pub(super) const PIECE: usize = 1 << 13;

/// A tensor of `T`; several tensors may share the elements.
#[derive(Clone, Debug)]
pub(in crate::graph) struct Array<T> {
    elements: Arc<Vec<T>>,
    offset: usize,
    shape: Vec<usize>,
    /// Step from one index to the next in each dimension, in elements; 0 where the tensor is
    /// broadcast.
    steps: Vec<usize>,
}

/// Steps of a row-major tensor.
fn dense_steps(shape: &[usize]) -> Vec<usize> {
    let mut steps = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        steps[dim - 1] = steps[dim] * shape[dim];
    }
    steps
}

impl<T: Copy + Default + Send + Sync> Array<T> {
    /// Row-major elements, as many as `shape` says.
    pub(super) fn dense(shape: &[usize], elements: Vec<T>) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), elements.len());
        Array {
            elements: Arc::new(elements),
            offset: 0,
            shape: shape.to_vec(),
            steps: dense_steps(shape),
        }
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// All elements of the memory that this reads some of.
    pub(super) fn memory(&self) -> &[T] {
        &self.elements
    }

    /// The same view of other memory.
    pub(super) fn in_memory(&self, elements: Vec<T>) -> Self {
        debug_assert_eq!(elements.len(), self.elements.len());
        Array {
            elements: Arc::new(elements),
            ..self.clone()
        }
    }

    /// Whether both are views of one memory.
    pub(super) fn shares_memory(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.elements, &other.elements)
    }

    /// The element `along` steps of the last dimension after `start`, which [`Array::row`] gives.
    #[inline(always)]
    pub(super) fn at(&self, start: usize, along: usize) -> T {
        self.elements[start + along * self.last_step()]
    }

    #[inline(always)]
    fn last_step(&self) -> usize {
        self.steps.last().copied().unwrap_or(0)
    }

    /// The first element of row `row`: all dimensions but the last, counted in row-major order.
    pub(super) fn row(&self, mut row: usize) -> usize {
        let mut start = self.offset;
        let outer = self.shape.len().saturating_sub(1);
        for dim in (0..outer).rev() {
            start += row % self.shape[dim] * self.steps[dim];
            row /= self.shape[dim];
        }
        start
    }

    /// The elements, if they lie in row-major order.
    pub(super) fn as_dense(&self) -> Option<&[T]> {
        let dense = dense_steps(&self.shape);
        let mut dims = self.shape.iter().zip(&self.steps).zip(&dense);
        dims.all(|((&extent, step), dense)| extent == 1 || step == dense)
            .then(|| &self.elements[self.offset..self.offset + self.len()])
    }

    /// The elements in row-major order.
    pub(super) fn to_dense(&self) -> Cow<'_, [T]> {
        match self.as_dense() {
            Some(elements) => Cow::Borrowed(elements),
            None => Cow::Owned(map([self], |[value]| value)),
        }
    }

    /// The elements in row-major order, without a copy if no other tensor shares them.
    pub(super) fn into_dense(self) -> Vec<T> {
        if self
            .as_dense()
            .is_none_or(|dense| dense.len() < self.elements.len())
        {
            return self.to_dense().into_owned();
        }
        Arc::try_unwrap(self.elements).unwrap_or_else(|shared| shared.as_ref().clone())
    }

    /// Extents of 1 repeated, to `shape` of equal rank.
    pub(super) fn broadcast(mut self, shape: &[usize]) -> Self {
        for (dim, &extent) in shape.iter().enumerate() {
            if self.shape[dim] != extent {
                self.steps[dim] = 0;
            }
        }
        self.shape = shape.to_vec();
        self
    }

    /// Dimension `i` is dimension `order[i]` of this.
    pub(super) fn transpose(mut self, order: &[usize]) -> Self {
        self.shape = order.iter().map(|&dim| self.shape[dim]).collect();
        self.steps = order.iter().map(|&dim| self.steps[dim]).collect();
        self
    }

    /// `count` indices of `dim`, from `start` by `step`.
    pub(super) fn slice(mut self, dim: usize, start: usize, step: usize, count: usize) -> Self {
        self.offset += start * self.steps[dim];
        self.steps[dim] *= step;
        self.shape[dim] = count;
        self
    }

    /// The elements in row-major order, in another shape.
    pub(super) fn reshape(self, shape: &[usize]) -> Self {
        if self.as_dense().is_none() {
            return Array::dense(shape, self.into_dense());
        }
        Array {
            shape: shape.to_vec(),
            steps: dense_steps(shape),
            ..self
        }
    }
}

/// `function` of the elements of operands of equal shapes, in row-major order.
pub(in crate::graph) fn map<const N: usize, T, R>(
    operands: [&Array<T>; N],
    function: impl Fn([T; N]) -> R + Sync,
) -> Vec<R>
where
    T: Copy + Default + Send + Sync,
    R: Copy + Default + Send + Sync,
{
    let mut out = vec![R::default(); operands[0].len()];
    let dense = operands.map(Array::as_dense);
    if dense.iter().all(Option::is_some) {
        let dense = dense.map(Option::unwrap_or_default);
        let pieces = out.par_chunks_mut(PIECE).enumerate();
        pieces.for_each(|(piece, out)| {
            let start = piece * PIECE;
            let dense = dense.map(|elements| &elements[start..start + out.len()]);
            for (at, out) in out.iter_mut().enumerate() {
                *out = function(dense.map(|elements| elements[at]));
            }
        });
        return out;
    }
    let columns = operands[0].shape().last().copied().unwrap_or(1);
    let rows = out.par_chunks_mut(columns).enumerate();
    rows.with_min_len(PIECE.div_ceil(columns))
        .for_each(|(row, out)| {
            let starts = operands.map(|operand| operand.row(row));
            for (at, out) in out.iter_mut().enumerate() {
                let mut values = [T::default(); N];
                for (value, (operand, start)) in values.iter_mut().zip(operands.iter().zip(starts))
                {
                    *value = operand.at(start, at);
                }
                *out = function(values);
            }
        });
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> Array<i64> {
        let len: usize = shape.iter().product();
        Array::dense(shape, (0..len as i64).collect())
    }

    #[test]
    fn views_read_the_same_elements() {
        let x = counted(&[2, 3]);
        assert_eq!(*x.clone().transpose(&[1, 0]).to_dense(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(*x.clone().slice(1, 0, 2, 2).to_dense(), [0, 2, 3, 5]);
        let rows = x.clone().slice(0, 1, 1, 1);
        assert_eq!(rows.as_dense(), Some(&[3, 4, 5][..]));
        assert_eq!(*rows.broadcast(&[2, 3]).to_dense(), [3, 4, 5, 3, 4, 5]);
        let turned = x.transpose(&[1, 0]).reshape(&[6]);
        assert_eq!(turned.into_dense(), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn a_part_of_shared_elements_is_not_the_whole() {
        let part = counted(&[4]).slice(0, 0, 1, 2);
        assert_eq!(part.into_dense(), [0, 1]);
    }

    #[test]
    fn views_of_many_pieces() {
        let x = counted(&[300, 70]);
        let turned = x.clone().transpose(&[1, 0]);
        let sums = map([&turned, &turned], |[a, b]| a + b);
        for (at, sum) in sums.into_iter().enumerate() {
            let (row, column) = (at / 300, at % 300);
            assert_eq!(sum, 2 * (column * 70 + row) as i64);
        }
        assert_eq!(map([&x], |[a]| a), *x.to_dense());
    }
}
