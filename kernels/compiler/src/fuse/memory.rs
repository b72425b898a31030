//! Memory of values between kernels: stretches of one buffer, used again after their last reader.

use std::cmp::Reverse;

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

/// Memory that stretches share, each where it meets no other that is in use with it.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// Stretches with their first elements.
    placed: Vec<(Lifetime, usize)>,
}

impl Region {
    /// Elements in all.
    pub(super) fn len(&self) -> usize {
        let ends = self.placed.iter().map(|(own, start)| start + own.len);
        ends.max().unwrap_or(0)
    }

    /// The first element of each of some further stretches. Larger ones are placed first, each at
    /// the lowest place.
    pub(super) fn place(&mut self, lifetimes: &[Lifetime]) -> Vec<usize> {
        let starts = self.place_within(lifetimes, usize::MAX);
        starts.into_iter().flatten().collect()
    }

    /// As [`place`](Region::place), within the elements that there are: none for a stretch that
    /// finds no place.
    pub(super) fn fill(&mut self, lifetimes: &[Lifetime]) -> Vec<Option<usize>> {
        self.place_within(lifetimes, self.len())
    }

    fn place_within(&mut self, lifetimes: &[Lifetime], end: usize) -> Vec<Option<usize>> {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.sort_by_key(|&at| (Reverse(lifetimes[at].len), at));
        let mut starts = vec![None; lifetimes.len()];
        for at in order {
            let own = lifetimes[at];
            let start = self.lowest(own);
            if start.saturating_add(own.len) <= end {
                self.placed.push((own, start));
                starts[at] = Some(start);
            }
        }
        starts
    }

    /// The lowest place of a stretch.
    fn lowest(&self, own: Lifetime) -> usize {
        let meets = |other: &Lifetime| own.from <= other.to && other.from <= own.to;
        let met = self.placed.iter().filter(|(other, _)| meets(other));
        let mut taken: Vec<(usize, usize)> = met
            .map(|(other, start)| (*start, start + other.len))
            .collect();
        taken.sort_unstable();
        let mut lowest = 0;
        for (from, to) in taken {
            if lowest + own.len <= from {
                break;
            }
            lowest = lowest.max(to.next_multiple_of(ALIGNMENT));
        }
        lowest
    }
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
        let mut region = Region::default();
        assert_eq!(region.place(&chain), [0, 128, 0]);
        assert_eq!(region.len(), 228);
        // What comes later has room in it, where it is not too long.
        let later = [lifetime(4, 4, 228), lifetime(4, 5, 229), lifetime(5, 5, 8)];
        assert_eq!(region.fill(&later), [Some(0), None, Some(0)]);
        assert_eq!(region.len(), 228);
    }

    #[test]
    fn what_is_in_use_together_is_apart() {
        let lifetimes: Vec<Lifetime> = (0..40)
            .map(|at| lifetime(at * 7 % 20, at * 7 % 20 + at % 5, 1 + at * 13 % 90))
            .collect();
        let mut region = Region::default();
        let starts = region.place(&lifetimes);
        let all = region.len();
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
