//! Tensors on the host: dense, row-major, named.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Types, names and functions of elements, from one table: variant, Rust type, name, conversion
/// from f64, conversion to f64.
macro_rules! element_types {
    ($($(#[$about:meta])* $variant:ident: $rust:ty, $name:literal, $from:expr, $to:expr;)*) => {
        /// Type of one element.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(rename_all = "lowercase")]
        pub enum Dtype {
            $($(#[$about])* $variant,)*
        }

        impl Dtype {
            /// Every type.
            pub const ALL: &[Dtype] = &[$(Dtype::$variant),*];

            /// Size of one element in bytes.
            pub const fn size_bytes(self) -> usize {
                match self {
                    $(Dtype::$variant => size_of::<$rust>(),)*
                }
            }

            /// The name that manifests and files use, such as `f32`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Dtype::$variant => $name,)*
                }
            }
        }

        /// The elements of a tensor, in row-major order.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Data {
            $(#[doc = concat!("Elements of [`Dtype::", stringify!($variant), "`].")]
            $variant(Vec<$rust>),)*
        }

        impl Data {
            /// The type of the elements.
            pub fn dtype(&self) -> Dtype {
                match self {
                    $(Data::$variant(_) => Dtype::$variant,)*
                }
            }
        }

        $(impl Element for $rust {
            const DTYPE: Dtype = Dtype::$variant;

            fn from_f64(value: f64) -> Self {
                ($from)(value)
            }

            fn to_f64(self) -> f64 {
                ($to)(self)
            }

            fn data(elements: Vec<Self>) -> Data {
                Data::$variant(elements)
            }
        })*
    };
}

/// A Rust type that elements of tensors have.
pub trait Element: Pod + Send + Sync + PartialEq {
    /// The type's name in programs.
    const DTYPE: Dtype;

    /// The nearest element; whole numbers are truncated and saturate.
    fn from_f64(value: f64) -> Self;

    /// The element's value. A byte of [`Dtype::Bool`] that is neither 0 nor 1 is NaN.
    fn to_f64(self) -> f64;

    /// Elements as data of a tensor.
    fn data(elements: Vec<Self>) -> Data;
}

/// One byte that is true (1) or false (0). Memory may hold other bytes, which are neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Truth(pub u8);

impl Truth {
    fn to_f64(self) -> f64 {
        match self.0 {
            0 => 0.0,
            1 => 1.0,
            _ => f64::NAN,
        }
    }
}

element_types! {
    /// bfloat16: the upper half of an IEEE 754 binary32. Operands of products.
    Bf16: bf16, "bf16", bf16::from_f64, bf16::to_f64;
    /// IEEE 754 binary32.
    F32: f32, "f32", |value: f64| value as f32, f64::from;
    /// IEEE 754 binary64.
    F64: f64, "f64", |value: f64| value, |value: f64| value;
    /// Two's complement, 32 bits.
    I32: i32, "i32", |value: f64| value as i32, f64::from;
    /// Two's complement, 64 bits.
    I64: i64, "i64", |value: f64| value as i64, |value: i64| value as f64;
    /// IEEE 754 binary16.
    F16: f16, "f16", f16::from_f64, f16::to_f64;
    /// Two's complement, 8 bits.
    I8: i8, "i8", |value: f64| value as i8, f64::from;
    /// Two's complement, 16 bits.
    I16: i16, "i16", |value: f64| value as i16, f64::from;
    /// Unsigned, 8 bits.
    U8: u8, "u8", |value: f64| value as u8, f64::from;
    /// Unsigned, 16 bits.
    U16: u16, "u16", |value: f64| value as u16, f64::from;
    /// Unsigned, 32 bits.
    U32: u32, "u32", |value: f64| value as u32, f64::from;
    /// Unsigned, 64 bits.
    U64: u64, "u64", |value: f64| value as u64, |value: u64| value as f64;
    /// One byte, 0 or 1.
    Bool: Truth, "bool", |value: f64| Truth(u8::from(value != 0.0)), Truth::to_f64;
}

/// Evaluates an expression for the elements of [`Data`], whatever their type is:
/// `with_elements!(data, elements => elements.len())`.
#[macro_export]
macro_rules! with_elements {
    ($data:expr, $elements:ident => $body:expr) => {
        match $data {
            $crate::Data::Bf16($elements) => $body,
            $crate::Data::F32($elements) => $body,
            $crate::Data::F64($elements) => $body,
            $crate::Data::I32($elements) => $body,
            $crate::Data::I64($elements) => $body,
            $crate::Data::F16($elements) => $body,
            $crate::Data::I8($elements) => $body,
            $crate::Data::I16($elements) => $body,
            $crate::Data::U8($elements) => $body,
            $crate::Data::U16($elements) => $body,
            $crate::Data::U32($elements) => $body,
            $crate::Data::U64($elements) => $body,
            $crate::Data::Bool($elements) => $body,
        }
    };
}

/// Evaluates an expression with the Rust type of a [`Dtype`]:
/// `with_element_type!(dtype, Type => Type::from_f64(1.0).to_f64())`.
#[macro_export]
macro_rules! with_element_type {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            $crate::Dtype::Bf16 => $crate::with_element_type!(@ half::bf16, $element, $body),
            $crate::Dtype::F32 => $crate::with_element_type!(@ f32, $element, $body),
            $crate::Dtype::F64 => $crate::with_element_type!(@ f64, $element, $body),
            $crate::Dtype::I32 => $crate::with_element_type!(@ i32, $element, $body),
            $crate::Dtype::I64 => $crate::with_element_type!(@ i64, $element, $body),
            $crate::Dtype::F16 => $crate::with_element_type!(@ half::f16, $element, $body),
            $crate::Dtype::I8 => $crate::with_element_type!(@ i8, $element, $body),
            $crate::Dtype::I16 => $crate::with_element_type!(@ i16, $element, $body),
            $crate::Dtype::U8 => $crate::with_element_type!(@ u8, $element, $body),
            $crate::Dtype::U16 => $crate::with_element_type!(@ u16, $element, $body),
            $crate::Dtype::U32 => $crate::with_element_type!(@ u32, $element, $body),
            $crate::Dtype::U64 => $crate::with_element_type!(@ u64, $element, $body),
            $crate::Dtype::Bool => {
                $crate::with_element_type!(@ $crate::tensor::Truth, $element, $body)
            }
        }
    };
    (@ $rust:ty, $element:ident, $body:expr) => {{
        type $element = $rust;
        $body
    }};
}

impl Dtype {
    /// The type called `name`.
    pub fn named(name: &str) -> Option<Dtype> {
        Dtype::ALL
            .iter()
            .copied()
            .find(|dtype| dtype.name() == name)
    }

    /// True for types of real numbers, false for whole numbers and truth values.
    pub const fn is_real(self) -> bool {
        matches!(self, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16)
    }

    /// Whether an element can be this number: exactly where elements are whole numbers or truth
    /// values, rounded to a finite one where they are real.
    pub fn holds(self, value: f64) -> bool {
        let nearest = with_element_type!(self, T => T::from_f64(value).to_f64());
        match self.is_real() {
            true => nearest.is_finite(),
            false => nearest == value,
        }
    }

    /// Half a unit in the last place of 1, which bounds the relative error of one rounding; 0 for
    /// types of whole numbers.
    pub const fn unit_roundoff(self) -> f64 {
        match self {
            Dtype::F64 => f64::EPSILON / 2.0,
            Dtype::F32 => f32::EPSILON as f64 / 2.0,
            Dtype::F16 => 1.0 / 2048.0,
            Dtype::Bf16 => 1.0 / 256.0,
            _ => 0.0,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl Data {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        with_elements!(self, elements => elements.len())
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the elements, as memory has them.
    pub fn bytes(&self) -> &[u8] {
        with_elements!(self, elements => bytemuck::cast_slice(elements))
    }

    /// Elements of `dtype` from their bytes; bytes that do not make a whole element are left out.
    pub fn from_bytes(dtype: Dtype, bytes: &[u8]) -> Data {
        let fill = |to: &mut [u8]| {
            copy(to, bytes);
            Ok::<_, Infallible>(())
        };
        let Ok(data) = Data::filled(dtype, bytes.len() / dtype.size_bytes(), fill);
        data
    }

    /// So many elements, whose bytes `fill` writes.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn filled<E>(
        dtype: Dtype,
        elements: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Data, E> {
        with_element_type!(dtype, T => {
            let mut held = vec![T::zeroed(); elements];
            fill(bytemuck::cast_slice_mut(&mut held))?;
            Ok(Element::data(held))
        })
    }
}

/// Bytes that a thread copies at once.
const PIECE_BYTES: usize = 1 << 20;

/// Fills bytes from the first of others, in parallel: new memory takes longer to get than to write.
pub fn copy(to: &mut [u8], from: &[u8]) {
    let pieces = to
        .par_chunks_mut(PIECE_BYTES)
        .zip(from.par_chunks(PIECE_BYTES));
    pieces.for_each(|(to, from)| to.copy_from_slice(&from[..to.len()]));
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

    /// The elements to be changed, if they are `f32`.
    pub fn as_f32_mut(&mut self) -> Option<&mut [f32]> {
        match &mut self.data {
            Data::F32(values) => Some(values),
            _ => None,
        }
    }

    /// The elements, if they are of that type.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match &self.data {
            Data::I64(values) => Some(values),
            _ => None,
        }
    }
}

/// Tensors by name. Sorted, so that whatever is written from it has one order.
pub type Tensors = BTreeMap<String, Tensor>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_hold_what_they_can_be() {
        for (dtype, held, beyond) in [
            (Dtype::I8, &[-128.0, 127.0][..], &[128.0, -129.0, 0.5][..]),
            (Dtype::U8, &[0.0, 255.0], &[-1.0, 256.0]),
            (Dtype::Bool, &[0.0, 1.0], &[2.0, 0.5, -1.0]),
            (Dtype::F16, &[0.1, 65504.0], &[70000.0]),
            (Dtype::Bf16, &[0.1, 1e38], &[1e39]),
            (Dtype::F32, &[0.1, 1e38], &[1e39]),
            (Dtype::I64, &[-9e18, 9e18], &[1e19]),
            (Dtype::U64, &[1e19], &[-1.0, 1e20]),
        ] {
            assert!(held.iter().all(|&value| dtype.holds(value)), "{dtype}");
            assert!(!beyond.iter().any(|&value| dtype.holds(value)), "{dtype}");
        }
    }
}
