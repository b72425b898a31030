//! Inputs near those that a program has seen.
//!
//! Processors remember which way branches went: a kernel that branches on some thousand elements
//! runs twice as fast on inputs that it has had again and again (8192 values of `erfcf` on a Zen 5:
//! 32 and 67 us). On inputs that are a little smaller, its branches go the same way, and none of
//! its results can be those that it may have kept.

use sweeper_program::inputs::InputKey;
use sweeper_program::{Data, Element, Tensor, Tensors};

/// Each element is smaller by up to twice this share: by far more than a tolerance, and so little
/// that few elements come to lie on the other side of what a branch compares them with. None is
/// larger, as it may be a probability.
const SHARE: f64 = 1.0 / 64.0;

/// These inputs, a little smaller by chance; those of whole numbers stay.
pub(super) fn near(given: &Tensors, key: &InputKey) -> Tensors {
    let smaller = given.iter().map(|(name, tensor)| {
        let data = match tensor.data() {
            Data::F64(held) => Data::F64(scaled(held, key)),
            Data::F32(held) => Data::F32(scaled(held, key)),
            Data::F16(held) => Data::F16(scaled(held, key)),
            Data::Bf16(held) => Data::Bf16(scaled(held, key)),
            other => other.clone(),
        };
        (name.clone(), Tensor::new(tensor.shape().to_vec(), data))
    });
    smaller.collect()
}

fn scaled<T: Element>(elements: &[T], key: &InputKey) -> Vec<T> {
    let [first, second, ..] = key.0.as_chunks::<8>().0 else {
        return elements.to_vec();
    };
    let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
    let all = 1.0 - SHARE * part(first);
    let each = elements.iter().zip(0..).map(|(element, at)| {
        let own = 1.0 - SHARE * part(mixed(second.wrapping_add(at)));
        T::from_f64(element.to_f64() * all * own)
    });
    each.collect()
}

/// A number from a half to one.
fn part(chance: u64) -> f64 {
    0.5 + 0.5 * (chance >> 11) as f64 / (1_u64 << 53) as f64
}

/// Numbers that look like chance for numbers in a row (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_inputs_are_a_little_smaller_and_whole_numbers_stay() {
        let given: Tensors = [
            ("x".to_owned(), Tensor::f64([4], vec![1.0, -2.0, 0.0, 8.0])),
            ("k".to_owned(), Tensor::new([2], Data::I32(vec![3, 4]))),
        ]
        .into();
        let one = near(&given, &InputKey([1; 32]));
        let other = near(&given, &InputKey([2; 32]));
        assert_eq!(one["k"], given["k"]);
        assert!(one["x"] != other["x"]);
        let Data::F64(found) = one["x"].data() else {
            panic!("another type");
        };
        for (found, given) in found.iter().zip([1.0, -2.0, 0.0, 8.0_f64]) {
            let share = 1.0 - found / given;
            let is_near = (0.9 * SHARE..2.0 * SHARE).contains(&share);
            assert!(
                given == 0.0 && *found == 0.0 || is_near,
                "{found} for {given}"
            );
        }
        assert!(found[0] / found[3] != 1.0 / 8.0);
    }
}
