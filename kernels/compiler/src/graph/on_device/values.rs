//! Values of nodes in device memory: a buffer, and how it is read.

use std::rc::Rc;

use sweeper_program::BufferId;
use sweeper_program::tensor::Dtype;

use super::MAX_RANK;

/// A tensor of f64 or, for labels and indices, of i64. Views share the buffer.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) buffer: Rc<BufferId>,
    pub(super) dtype: Dtype,
    offset: usize,
    shape: Vec<usize>,
    /// Step from one index to the next in each dimension, in elements; 0 where the value is
    /// broadcast.
    strides: Vec<usize>,
}

/// Strides of a row-major tensor.
fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

impl Value {
    /// A whole buffer, row-major.
    pub(super) fn dense(buffer: BufferId, dtype: Dtype, shape: &[usize]) -> Self {
        Value {
            buffer: Rc::new(buffer),
            dtype,
            offset: 0,
            strides: dense_strides(shape),
            shape: shape.to_vec(),
        }
    }

    /// The same view of the memory of another value.
    pub(super) fn in_memory_of(&self, other: &Value) -> Self {
        Value {
            buffer: Rc::clone(&other.buffer),
            ..self.clone()
        }
    }

    /// All of the memory, of `len` elements, that this reads some of.
    pub(super) fn memory(&self, len: usize) -> Self {
        Value {
            buffer: Rc::clone(&self.buffer),
            dtype: self.dtype,
            offset: 0,
            shape: vec![len],
            strides: vec![1],
        }
    }

    /// Whether both are views of one memory.
    pub(super) fn shares_memory(&self, other: &Value) -> bool {
        Rc::ptr_eq(&self.buffer, &other.buffer)
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Elements of the buffer from the first that is read to the last.
    pub(super) fn span(&self) -> usize {
        let dims = self.shape.iter().zip(&self.strides);
        1 + dims
            .map(|(extent, stride)| (extent - 1) * stride)
            .sum::<usize>()
    }

    /// Strides of all [`MAX_RANK`] dimensions; missing ones come first.
    pub(super) fn padded_strides(&self) -> [usize; MAX_RANK] {
        let mut padded = [0; MAX_RANK];
        padded[MAX_RANK - self.strides.len()..].copy_from_slice(&self.strides);
        padded
    }

    /// Whether elements lie in row-major order, one after another.
    pub(super) fn is_dense(&self) -> bool {
        let dense = dense_strides(&self.shape);
        let mut dims = self.shape.iter().zip(&self.strides).zip(&dense);
        dims.all(|((&extent, stride), dense)| extent == 1 || stride == dense)
    }

    pub(super) fn broadcast(mut self, shape: &[usize]) -> Self {
        for (dim, &extent) in shape.iter().enumerate() {
            if self.shape[dim] != extent {
                self.strides[dim] = 0;
            }
        }
        self.shape = shape.to_vec();
        self
    }

    pub(super) fn transpose(mut self, order: &[usize]) -> Self {
        self.shape = order.iter().map(|&dim| self.shape[dim]).collect();
        self.strides = order.iter().map(|&dim| self.strides[dim]).collect();
        self
    }

    pub(super) fn slice(mut self, dim: usize, start: usize, step: usize, count: usize) -> Self {
        self.offset += start * self.strides[dim];
        self.strides[dim] *= step;
        self.shape[dim] = count;
        self
    }

    /// Another shape of a dense value.
    pub(super) fn reshape(mut self, shape: &[usize]) -> Self {
        debug_assert!(self.is_dense());
        self.strides = dense_strides(shape);
        self.shape = shape.to_vec();
        self
    }
}

/// Extents of all [`MAX_RANK`] dimensions; missing ones come first and are 1.
pub(super) fn padded(shape: &[usize]) -> [usize; MAX_RANK] {
    let mut padded = [1; MAX_RANK];
    padded[MAX_RANK - shape.len()..].copy_from_slice(shape);
    padded
}
