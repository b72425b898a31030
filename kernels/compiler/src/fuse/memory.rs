//! Memory of values between kernels: stretches of one buffer, used again after their last reader.

/// When a stretch is in use: from the step that writes it to the last one that reads it, both
/// inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifetime {
    /// First step.
    pub from: usize,
    /// Last step.
    pub to: usize,
    /// Elements.
    pub len: usize,
}

/// Stretches begin at multiples of so many elements: 256 bytes of f32, more than any vector.
const ALIGNMENT: usize = 64;

/// The first element of each stretch, and how many elements there are in all. Larger ones are
/// placed first, each at the lowest place where it meets no other that is in use with it.
pub(super) fn place(lifetimes: &[Lifetime]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..lifetimes.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(lifetimes[at].len), at));
    let mut starts = vec![0; lifetimes.len()];
    let mut placed: Vec<usize> = Vec::new();
    for at in order {
        let own = lifetimes[at];
        let meets = |&&other: &&usize| {
            let other = lifetimes[other];
            own.from <= other.to && other.from <= own.to
        };
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(meets)
            .map(|&other| (starts[other], starts[other] + lifetimes[other].len))
            .collect();
        taken.sort_unstable();
        let mut start = 0;
        for (from, to) in taken {
            if start + own.len <= from {
                break;
            }
            start = start.max(to.next_multiple_of(ALIGNMENT));
        }
        starts[at] = start;
        placed.push(at);
    }
    let end = |at: &usize| starts[*at] + lifetimes[*at].len;
    let all = placed.iter().map(end).max().unwrap_or(0);
    (starts, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(from: usize, to: usize, len: usize) -> Lifetime {
        Lifetime { from, to, len }
    }

    #[test]
    fn memory_is_used_again_after_its_last_reader() {
        let chain = [
            lifetime(0, 1, 100),
            lifetime(1, 2, 100),
            lifetime(2, 3, 100),
        ];
        let (starts, all) = place(&chain);
        assert_eq!(starts, [0, 128, 0]);
        assert_eq!(all, 228);
    }

    #[test]
    fn what_is_in_use_together_is_apart() {
        let lifetimes: Vec<Lifetime> = (0..40)
            .map(|at| lifetime(at * 7 % 20, at * 7 % 20 + at % 5, 1 + at * 13 % 90))
            .collect();
        let (starts, all) = place(&lifetimes);
        for (one, a) in lifetimes.iter().enumerate() {
            assert!(starts[one] + a.len <= all && starts[one].is_multiple_of(ALIGNMENT));
            for (other, b) in lifetimes.iter().enumerate().skip(one + 1) {
                let together = a.from <= b.to && b.from <= a.to;
                let apart =
                    starts[one] + a.len <= starts[other] || starts[other] + b.len <= starts[one];
                assert!(apart || !together, "{one} {other}");
            }
        }
    }
}
