//! Inputs from a counter-based generator: element `i` of a tensor is a function of the problem, the
//! tensor's name and `i` alone, so every backend, phase, device and thread count gets the same
//! bytes.
//!
//! The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! SC 2011). Normal values come from whole-number arithmetic, so that no platform's `ln` or `cos`
//! can change a bit.

use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::vectorised;

/// Identifies a problem: everything its inputs depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputKey(pub [u8; 32]);

impl InputKey {
    /// The key of other inputs of the same problem, for a purpose.
    #[must_use]
    pub fn other(&self, purpose: &str) -> InputKey {
        let hasher = Sha256::new().chain_update(purpose).chain_update(self.0);
        InputKey(hasher.finalize().into())
    }

    /// The stream of values of the tensor called `name`.
    pub fn stream(&self, name: &str) -> Stream {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(name.as_bytes());
        let digest = hasher.finalize();
        let word = |at: usize| {
            u32::from_le_bytes([digest[at], digest[at + 1], digest[at + 2], digest[at + 3]])
        };
        Stream {
            key: [word(0), word(4)],
        }
    }
}

/// A stream of random values that can be entered anywhere.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
}

/// Blocks are generated in parallel in pieces of this many elements.
const PIECE: usize = 1 << 14;

/// Blocks that are computed side by side, in the lanes of vectors.
const LANES: usize = 16;

impl Stream {
    /// The key of the generator, for code elsewhere that needs the same bits.
    pub const fn key(&self) -> [u32; 2] {
        self.key
    }

    /// Four random words: block `counter` of the stream.
    pub fn block(&self, counter: u64) -> [u32; 4] {
        let words = [counter as u32, (counter >> 32) as u32, 0, 0];
        philox4x32_10(words.map(|word| [word]), self.key).map(|[word]| word)
    }

    /// `len` values that are about normal with mean 0 and variance `deviation` squared: sums of
    /// four uniform 16-bit numbers (Irwin-Hall), which lie within 3.46 deviations.
    pub fn normal(&self, len: usize, deviation: f32) -> Vec<f32> {
        // Variance of one uniform 16-bit number is (2^32 - 1) / 12; of four, a third of 2^32 - 1.
        let scale = f64::from(deviation) / ((f64::from(u32::MAX)) / 3.0).sqrt();
        self.fill(len, move |[low, high]| {
            let halves = [low & 0xffff, low >> 16, high & 0xffff, high >> 16];
            let sum = halves.iter().sum::<u32>() as i32 - 2 * 0xffff;
            (f64::from(sum) * scale) as f32
        })
    }

    /// `len` values that are uniform in `[low, high)`.
    pub fn uniform(&self, len: usize, low: f32, high: f32) -> Vec<f32> {
        self.fill(len, move |[word, _]| {
            let unit = f64::from(word >> 8) / f64::from(1u32 << 24);
            (f64::from(low) + unit * (f64::from(high) - f64::from(low))) as f32
        })
    }

    /// `len` whole numbers from `low` to `high`, both inclusive, without visible bias.
    pub fn integers(&self, len: usize, low: i64, high: i64) -> Vec<i64> {
        let count = (high - low) as u128 + 1;
        self.fill(len, move |[word, next]| {
            let random = u128::from(word) << 32 | u128::from(next);
            low + ((random * count) >> 64) as i64
        })
    }

    /// Element `i` is `value` of the two words at position `i`.
    fn fill<T: Default + Copy + Send>(
        &self,
        len: usize,
        value: impl Fn([u32; 2]) -> T + Sync,
    ) -> Vec<T> {
        let mut values = vec![T::default(); len];
        let pieces = values.par_chunks_mut(PIECE).enumerate();
        pieces.for_each(|(piece, chunk)| {
            let first = (piece * PIECE / 2) as u64;
            vectorised(
                #[inline(always)]
                || fill_from(self.key, first, chunk, &value),
            );
        });
        values
    }
}

/// Fills `chunk` from block `first` on: two elements a block.
#[inline(always)]
fn fill_from<T: Default + Copy>(
    key: [u32; 2],
    first: u64,
    chunk: &mut [T],
    value: &impl Fn([u32; 2]) -> T,
) {
    for (group, slots) in chunk.chunks_mut(2 * LANES).enumerate() {
        let counter = |lane: usize| first + (group * LANES + lane) as u64;
        let counters: [u64; LANES] = std::array::from_fn(counter);
        let zeros = [0; LANES];
        let [a, b, c, d] = philox4x32_10(
            [
                counters.map(|counter| counter as u32),
                counters.map(|counter| (counter >> 32) as u32),
                zeros,
                zeros,
            ],
            key,
        );
        let mut pairs = [[T::default(); 2]; LANES];
        for (lane, pair) in pairs.iter_mut().enumerate() {
            *pair = [value([a[lane], b[lane]]), value([c[lane], d[lane]])];
        }
        slots.copy_from_slice(&pairs.as_flattened()[..slots.len()]);
    }
}

/// So many independent blocks at once, as the lanes of vectors compute them.
#[inline(always)]
fn philox4x32_10<const N: usize>(mut counter: [[u32; N]; 4], mut key: [u32; 2]) -> [[u32; N]; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let mut next = [[0; N]; 4];
        for lane in 0..N {
            let product = [
                u64::from(MULTIPLIERS[0]) * u64::from(counter[0][lane]),
                u64::from(MULTIPLIERS[1]) * u64::from(counter[2][lane]),
            ];
            next[0][lane] = (product[1] >> 32) as u32 ^ counter[1][lane] ^ key[0];
            next[1][lane] = product[1] as u32;
            next[2][lane] = (product[0] >> 32) as u32 ^ counter[3][lane] ^ key[1];
            next[3][lane] = product[0] as u32;
        }
        counter = next;
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_those_of_single_blocks_wherever_they_lie() {
        let stream = InputKey([3; 32]).stream("x");
        for len in [1, 2, 31, 33, PIECE - 1, PIECE + 35] {
            let elements = stream.fill(len, |words| words);
            for (at, words) in elements.into_iter().enumerate() {
                let [a, b, c, d] = stream.block(at as u64 / 2);
                assert_eq!(
                    words,
                    if at % 2 == 0 { [a, b] } else { [c, d] },
                    "{len} {at}"
                );
            }
        }
    }

    /// Known answers from the reference implementation, Random123 1.14, `kat_vectors`.
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(
            philox4x32_10([[0; 3]; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8].map(|word| [word; 3])
        );
        assert_eq!(
            philox4x32_10([[u32::MAX]; 4], [u32::MAX; 2]),
            [[0x408f_276d], [0x41c8_3b0e], [0xa20b_c7c6], [0x6d54_51fd]]
        );
    }

    #[test]
    fn tensors_and_problems_have_streams_of_their_own() {
        let key = InputKey([7; 32]);
        assert_eq!(
            key.stream("x").normal(100, 1.0),
            key.stream("x").normal(100, 1.0)
        );
        assert_ne!(
            key.stream("x").normal(100, 1.0),
            key.stream("y").normal(100, 1.0)
        );
        assert_ne!(
            key.stream("x").normal(100, 1.0),
            InputKey([8; 32]).stream("x").normal(100, 1.0)
        );
    }

    #[test]
    fn a_longer_tensor_begins_like_a_shorter_one() {
        let stream = InputKey([1; 32]).stream("x");
        assert_eq!(
            stream.normal(PIECE * 2 + 5, 1.0)[..PIECE + 3],
            stream.normal(PIECE + 3, 1.0)
        );
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let stream = InputKey([3; 32]).stream("x");
        let n = 200_000;
        let normal = stream.normal(n, 2.0);
        let mean = normal.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        let variance = normal.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.02, "{mean}");
        assert!((variance - 4.0).abs() < 0.05, "{variance}");
        let uniform = stream.uniform(n, -1.0, 3.0);
        assert!(uniform.iter().all(|x| (-1.0..3.0).contains(x)));
        let mean = uniform.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let integers = stream.integers(n, 1, 6);
        for face in 1..=6 {
            let share = integers.iter().filter(|&&x| x == face).count() as f64 / n as f64;
            assert!((share - 1.0 / 6.0).abs() < 0.005, "{face}: {share}");
        }
    }
}
