//! Tensors on the host: dense, row-major, named.

use std::collections::BTreeMap;
use std::fmt;

use half::bf16;
use serde::{Deserialize, Serialize};

/// Type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// bfloat16: the upper half of an IEEE 754 binary32. Operands of products.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Two's complement, 32 bits.
    I32,
    /// Two's complement, 64 bits.
    I64,
}

impl Dtype {
    /// Size of one element in bytes.
    pub const fn size_bytes(self) -> usize {
        match self {
            Dtype::Bf16 => 2,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F64 | Dtype::I64 => 8,
        }
    }

    /// The name that manifests and files use: `bf16`, `f32`, `f64`, `i32`, `i64`.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bf16 => "bf16",
            Dtype::F32 => "f32",
            Dtype::F64 => "f64",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The elements of a tensor, in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Elements of [`Dtype::Bf16`].
    Bf16(Vec<bf16>),
    /// Elements of [`Dtype::F32`].
    F32(Vec<f32>),
    /// Elements of [`Dtype::F64`].
    F64(Vec<f64>),
    /// Elements of [`Dtype::I32`].
    I32(Vec<i32>),
    /// Elements of [`Dtype::I64`].
    I64(Vec<i64>),
}

impl Data {
    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        match self {
            Data::Bf16(_) => Dtype::Bf16,
            Data::F32(_) => Dtype::F32,
            Data::F64(_) => Dtype::F64,
            Data::I32(_) => Dtype::I32,
            Data::I64(_) => Dtype::I64,
        }
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            Data::Bf16(values) => values.len(),
            Data::F32(values) => values.len(),
            Data::F64(values) => values.len(),
            Data::I32(values) => values.len(),
            Data::I64(values) => values.len(),
        }
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A dense tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

impl Tensor {
    /// A tensor of `shape` over `data`.
    ///
    /// # Panics
    /// If the number of elements is not the product of `shape`: that is a bug of the caller.
    pub fn new(shape: impl Into<Vec<usize>>, data: Data) -> Self {
        let shape = shape.into();
        assert_eq!(
            shape.iter().product::<usize>(),
            data.len(),
            "shape {shape:?} does not hold {} elements",
            data.len()
        );
        Tensor { shape, data }
    }

    /// An `f32` tensor. Panics as [`Tensor::new`] does.
    pub fn f32(shape: impl Into<Vec<usize>>, values: Vec<f32>) -> Self {
        Tensor::new(shape, Data::F32(values))
    }

    /// An `f64` tensor. Panics as [`Tensor::new`] does.
    pub fn f64(shape: impl Into<Vec<usize>>, values: Vec<f64>) -> Self {
        Tensor::new(shape, Data::F64(values))
    }

    /// An `i64` tensor. Panics as [`Tensor::new`] does.
    pub fn i64(shape: impl Into<Vec<usize>>, values: Vec<i64>) -> Self {
        Tensor::new(shape, Data::I64(values))
    }

    /// Extents, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.data.dtype()
    }

    /// The elements, if they are `f32`.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.data {
            Data::F32(values) => Some(values),
            _ => None,
        }
    }

    /// The elements, if they are `f64`.
    pub fn as_f64(&self) -> Option<&[f64]> {
        match &self.data {
            Data::F64(values) => Some(values),
            _ => None,
        }
    }

    /// The elements, if they are `i64`.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match &self.data {
            Data::I64(values) => Some(values),
            _ => None,
        }
    }
}

/// Tensors by name. Sorted, so that whatever is written from it has one order.
pub type Tensors = BTreeMap<String, Tensor>;
