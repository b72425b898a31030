//! Numbers of stated types, as arguments of launches.

use serde::Serialize;

use crate::tensor::{Dtype, Element};
use crate::with_element_type;

/// A number of a stated type, as an argument of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scalar {
    dtype: Dtype,
    bits: u64,
}

impl Scalar {
    /// `value` as the nearest number of `dtype`.
    pub fn real(dtype: Dtype, value: f64) -> Self {
        let data = with_element_type!(dtype, T => Element::data(vec![T::from_f64(value)]));
        let mut bits = [0; 8];
        let bytes = data.bytes();
        bits[..bytes.len()].copy_from_slice(bytes);
        Scalar {
            dtype,
            bits: u64::from_le_bytes(bits),
        }
    }

    /// A whole number as one of `dtype`; `None` where it does not fit.
    pub fn whole(dtype: Dtype, value: i64) -> Option<Self> {
        let width = 8 * dtype.size_bytes() as u32;
        let fits = match dtype {
            Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => {
                let shift = 64 - width;
                (value << shift) >> shift == value
            }
            Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => {
                value >= 0 && (width == 64 || value >> width == 0)
            }
            Dtype::Bool => matches!(value, 0 | 1),
            Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16 => {
                return Some(Scalar::real(dtype, value as f64));
            }
        };
        fits.then_some(Scalar {
            dtype,
            bits: value as u64,
        })
    }

    /// Its type.
    pub fn dtype(self) -> Dtype {
        self.dtype
    }

    /// Its bits, in the low end of a cell; above them anything.
    pub fn bits(self) -> u64 {
        self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_bits_of_their_type() {
        assert_eq!(Scalar::real(Dtype::F32, 1.0).bits(), 0x3f80_0000);
        assert_eq!(Scalar::real(Dtype::F64, -0.0).bits(), 1 << 63);
        assert_eq!(Scalar::real(Dtype::Bf16, 1.0).bits(), 0x3f80);
        let whole = |dtype, value| Scalar::whole(dtype, value).map(Scalar::bits);
        assert_eq!(whole(Dtype::I32, -1), Some(u64::MAX));
        assert_eq!(whole(Dtype::I32, 1 << 31), None);
        assert_eq!(whole(Dtype::U32, 1 << 31), Some(1 << 31));
        assert_eq!(whole(Dtype::U8, -1), None);
        assert_eq!(whole(Dtype::I8, -128), Some(-128i64 as u64));
        assert_eq!(whole(Dtype::F32, 3), Some(0x4040_0000));
    }
}
