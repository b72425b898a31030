//! Parts of an iteration that repeat in it, such as the equal layers of a model.

use std::ops::Range;

use super::path::Path;

/// Fewer operations are not a part: there is nothing to fuse.
const LEAST_PERIOD: usize = 2;

/// Operations of a path that repeat one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The first operation, by position in [`Path::operations`].
    pub first: usize,
    /// Operations of one repetition.
    pub period: usize,
    /// How often they come, twice at least.
    pub count: usize,
}

impl Repeat {
    /// The operations of all repetitions.
    fn span(self) -> Range<usize> {
        self.first..self.first + self.period * self.count
    }

    /// The operations of each repetition.
    pub fn repetitions(self) -> impl Iterator<Item = Range<usize>> {
        let begins = self.span().step_by(self.period);
        begins.map(move |begin| begin..begin + self.period)
    }

    /// The repetitions that lie within some operations, if there are two.
    fn within(self, free: &Range<usize>) -> Option<Self> {
        let first = self.first.max(free.start);
        let end = self.span().end.min(free.end);
        let count = end.saturating_sub(first) / self.period;
        (count >= 2).then_some(Repeat {
            first,
            count,
            ..self
        })
    }
}

impl Path {
    /// Parts that repeat, in order. They do not overlap; those that cover the most operations go
    /// first, of these the shortest ones. Operations of one kind are alike, wherever their operands
    /// come from.
    pub fn repeats(&self) -> Vec<Repeat> {
        let kinds: Vec<_> = self.operations.iter().map(|held| held.kind).collect();
        repeats(&kinds)
    }
}

fn repeats<T: PartialEq>(kinds: &[T]) -> Vec<Repeat> {
    let mut all = runs(kinds);
    all.sort_by_key(|run| (usize::MAX - run.span().len(), run.period, run.first));
    let mut free = Vec::from_iter(Some(0..kinds.len()));
    let mut taken = vec![];
    for run in all {
        let fits = |(at, free)| Some((at, run.within(free)?));
        let Some((at, repeat)) = free.iter().enumerate().find_map(fits) else {
            continue;
        };
        let (Range { start, end }, own) = (free[at].clone(), repeat.span());
        free.splice(at..=at, [start..own.start, own.end..end]);
        taken.push(repeat);
    }
    taken.sort_by_key(|repeat| repeat.first);
    taken
}

/// For each period, the longest runs in which each operation is like the one a period before. There
/// are about as many as operations, times their logarithm.
fn runs<T: PartialEq>(kinds: &[T]) -> Vec<Repeat> {
    let mut found = vec![];
    for period in LEAST_PERIOD..=kinds.len() / 2 {
        let mut alike = 0;
        for end in period..=kinds.len() {
            if end < kinds.len() && kinds[end] == kinds[end - period] {
                alike += 1;
                continue;
            }
            if alike >= period {
                found.push(Repeat {
                    first: end - period - alike,
                    period,
                    count: 1 + alike / period,
                });
            }
            alike = 0;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(&str, usize)> {
        let kinds: Vec<char> = text.chars().collect();
        let repeats = repeats(&kinds).into_iter();
        let shown = |repeat: Repeat| {
            (
                &text[repeat.first..repeat.first + repeat.period],
                repeat.count,
            )
        };
        repeats.map(shown).collect()
    }

    #[test]
    fn layers_are_found_between_other_operations() {
        assert_eq!(of("embabcabcabcloss"), [("abc", 3)]);
        assert_eq!(of("abab"), [("ab", 2)]);
        assert_eq!(of("xabcabcabcyfedfedz"), [("abc", 3), ("fed", 2)]);
    }

    #[test]
    fn long_runs_go_before_the_short_ones_in_them() {
        assert_eq!(of("abababcabababc"), [("abababc", 2)]);
        assert_eq!(of("xyxyxyabcdabcd"), [("xy", 3), ("abcd", 2)]);
        // Half a repetition is left over.
        assert_eq!(of("abcabcab"), [("abc", 2)]);
    }

    #[test]
    fn what_comes_once_is_no_part() {
        assert_eq!(of(""), []);
        assert_eq!(of("abcdefgh"), []);
        assert_eq!(of("aabbcc"), []);
        assert_eq!(of("aaaa"), [("aa", 2)]);
    }

    #[test]
    fn repetitions_cover_a_span() {
        let repeat = Repeat {
            first: 3,
            period: 4,
            count: 2,
        };
        let spans: Vec<_> = repeat.repetitions().collect();
        assert_eq!(spans, [3..7, 7..11]);
    }
}
