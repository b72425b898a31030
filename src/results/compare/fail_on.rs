//! `--fail-on`: the conditions under which a comparison ends with exit code 5.

use std::str::FromStr;

use super::metrics::Change;
use super::verdict::Verdict;
use super::{Comparison, Digests};

/// A condition under which a comparison fails.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// A point that is SLOWER by more than a share.
    Slower(f64),
    /// A point that is FASTER by more than a share, for users who want to know.
    Faster(f64),
    /// A point that was better off in A: `ok` there, and not everywhere in B.
    Status,
    /// A point of A that B lacks.
    Missing,
    /// A point whose outputs in B differ from those in A, in any bit, or whose inputs do.
    Digest,
    /// A point with a metric that is worse in B.
    Metric,
}

/// A condition as it was written, with its meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct FailOn {
    /// The text.
    pub text: String,
    /// The meaning.
    pub condition: Condition,
}

/// The forms of a condition.
const FORMS: &str =
    "write `slower`, `slower > 3%`, `faster > 3%`, `status`, `missing`, `digest` or `metric`";

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, share) = match text.split_once('>') {
            Some((word, share)) => (word.trim(), Some(share_of(text, share)?)),
            None => (text.trim(), None),
        };
        let condition = match (word, share) {
            ("slower", share) => Condition::Slower(share.unwrap_or(0.0)),
            ("faster", share) => Condition::Faster(share.unwrap_or(0.0)),
            ("status", None) => Condition::Status,
            ("missing", None) => Condition::Missing,
            ("digest", None) => Condition::Digest,
            ("metric", None) => Condition::Metric,
            ("status" | "missing" | "digest" | "metric", Some(_)) => {
                return Err(format!("`{text}`: `{word}` has no size; {FORMS}"));
            }
            _ => return Err(format!("`{text}` is not a condition; {FORMS}")),
        };
        Ok(FailOn {
            text: text.trim().to_owned(),
            condition,
        })
    }
}

/// The share that `3%` or `3 %` says.
fn share_of(text: &str, share: &str) -> Result<f64, String> {
    let number = share.trim().strip_suffix('%').map(str::trim_end);
    let Some(number) = number else {
        return Err(format!("`{text}`: the size has no `%`; {FORMS}"));
    };
    let is_plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    match number.parse::<f64>() {
        Ok(percent) if is_plain => Ok(percent / 100.0),
        _ => Err(format!(
            "`{text}`: `{number}` is not a number of percent; {FORMS}"
        )),
    }
}

impl FailOn {
    /// Refuses a size that no verdict can have.
    ///
    /// # Errors
    /// A sentence of advice.
    pub fn check(&self, margin: f64) -> Result<(), String> {
        match self.condition {
            Condition::Slower(share) | Condition::Faster(share)
                if share > 0.0 && share < margin =>
            {
                Err(format!(
                    "`{}` is within the margin of {} % in which nothing counts as a difference; lower \
                     --margin, or raise it",
                    self.text,
                    margin * 100.0
                ))
            }
            _ => Ok(()),
        }
    }

    /// How many points or changes meet the condition.
    pub fn count(&self, comparison: &Comparison) -> usize {
        let beyond = |verdict: Verdict, share: f64| {
            let limit = share.ln_1p();
            let is_beyond = |point: &&super::Point| {
                let size = point.estimate.map(|estimate| estimate.log_ratio.abs());
                point.verdict == Some(verdict) && size.is_some_and(|size| size > limit)
            };
            comparison.points.iter().filter(is_beyond).count()
        };
        let points = comparison.points.iter();
        match self.condition {
            Condition::Slower(share) => beyond(Verdict::Slower, share),
            Condition::Faster(share) => beyond(Verdict::Faster, share),
            Condition::Status => points.filter(|point| point.is_worse()).count(),
            Condition::Missing => comparison.only[0].len(),
            Condition::Digest => points
                .filter(|point| point.digests == Digests::Changed || point.inputs.differ())
                .count(),
            Condition::Metric => points
                .filter(|point| point.metrics.iter().any(|it| it.change == Change::Worse))
                .count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Condition, String> {
        text.parse::<FailOn>().map(|parsed| parsed.condition)
    }

    #[test]
    fn what_may_be_written() {
        assert_eq!(parse("slower > 3%"), Ok(Condition::Slower(0.03)));
        assert_eq!(parse(" slower>2.5 % "), Ok(Condition::Slower(0.025)));
        assert_eq!(parse("slower"), Ok(Condition::Slower(0.0)));
        assert_eq!(parse("faster > 10%"), Ok(Condition::Faster(0.1)));
        assert_eq!(parse("status"), Ok(Condition::Status));
        assert_eq!(parse("missing"), Ok(Condition::Missing));
        assert_eq!(parse("digest"), Ok(Condition::Digest));
        assert_eq!(parse("metric"), Ok(Condition::Metric));
    }

    #[test]
    fn what_may_not() {
        for (text, part) in [
            ("", "is not a condition"),
            ("slow", "is not a condition"),
            ("slower >= 3%", "is not a number"),
            ("slower > 3", "has no `%`"),
            ("slower > %", "is not a number"),
            ("slower > -3%", "is not a number"),
            ("slower > inf%", "is not a number"),
            ("slower > 1e2%", "is not a number"),
            ("slower > 3% > 2%", "is not a number"),
            ("status > 3%", "has no size"),
            ("Slower", "is not a condition"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(part) && error.contains("write `slower`"),
                "{text}: {error}"
            );
        }
        let inside: FailOn = "slower > 0.5%".parse().unwrap();
        assert!(inside.check(0.01).unwrap_err().contains("--margin"));
        assert_eq!(inside.check(0.005), Ok(()));
    }
}
