//! The seeded order of samples inside a block.

use sha2::{Digest, Sha256};

/// Permutes `order` in a way that follows from the problem and the round alone (Fisher and Yates).
pub fn shuffle(order: &mut [usize], problem: &[u8; 32], round: u64) {
    for last in (1..order.len()).rev() {
        let mut hasher = Sha256::new();
        hasher.update(problem);
        hasher.update(round.to_le_bytes());
        hasher.update((last as u64).to_le_bytes());
        order.swap(last, below(hasher, last as u64 + 1));
    }
}

/// A number below `most` that follows from the problem and a text alone.
pub fn chance(problem: &[u8; 32], text: &str, most: u64) -> usize {
    let hasher = Sha256::new().chain_update(problem).chain_update(text);
    below(hasher, most)
}

fn below(hasher: Sha256, most: u64) -> usize {
    let digest = hasher.finalize();
    let random = u64::from_le_bytes([
        digest[0], digest[1], digest[2], digest[3], digest[4], digest[5], digest[6], digest[7],
    ]);
    (random % most) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_differ_and_repeat() {
        let shuffled = |round| {
            let mut order: Vec<usize> = (0..12).collect();
            shuffle(&mut order, &[5; 32], round);
            order
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..12).collect::<Vec<_>>());
    }
}
