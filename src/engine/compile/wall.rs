//! How long several compilations took together, where some ran side by side.

/// Nanoseconds in which at least one of some compilations ran: a second in which two did counts
/// once, and time between them, when compilers were at the kernels of other programs or at none,
/// not at all.
///
/// Each is when it ended, in nanoseconds of one clock, and how long it took. Never more than the
/// sum of how long they took, never less than the longest.
pub fn wall_ns(compilations: impl IntoIterator<Item = (u64, u64)>) -> u64 {
    let spans = compilations.into_iter();
    let mut spans: Vec<(u64, u64)> = spans
        .map(|(end_ns, took_ns)| (end_ns.saturating_sub(took_ns), end_ns))
        .collect();
    spans.sort_unstable();
    let (mut total_ns, mut done_ns) = (0, 0);
    for (start_ns, end_ns) in spans {
        total_ns += end_ns.saturating_sub(start_ns.max(done_ns));
        done_ns = done_ns.max(end_ns);
    }
    total_ns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_ran_side_by_side_counts_once() {
        assert_eq!(wall_ns([]), 0);
        // From 10 to 40 and from 20 to 50; then from 90 to 100.
        assert_eq!(wall_ns([(40, 30), (50, 30), (100, 10)]), 50);
        // One within the other.
        assert_eq!(wall_ns([(30, 10), (40, 30)]), 30);
        // One after the other.
        assert_eq!(wall_ns([(20, 10), (30, 10)]), 20);
    }

    proptest! {
        #[test]
        fn it_lies_between_the_longest_and_the_sum(
            spans in prop::collection::vec((0u64..1000, 0u64..100), 0..8)
        ) {
            let spans: Vec<(u64, u64)> =
                spans.into_iter().map(|(start, took)| (start + took, took)).collect();
            let took = || spans.iter().map(|span| span.1);
            let wall = wall_ns(spans.iter().copied());
            prop_assert!(took().max().unwrap_or(0) <= wall && wall <= took().sum());
        }
    }
}
