//! Which points of an earlier part of a run are tried again.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::contents::Standing;
use crate::row::outcome::{Cause, Status};

/// Stands for all points without a result.
const FAILED: &str = "failed";
/// Stands for points whose medians are known less well than was asked for.
const WIDE: &str = "wide";

/// The points that are tried again. Points that met trouble of the moment always are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    /// By their statuses.
    statuses: BTreeSet<Status>,
    /// By the flag `wide_interval`.
    wide: bool,
}

impl Retry {
    /// Reads words as the command line has them: statuses, `failed` for all that are no results, or
    /// `wide`.
    ///
    /// # Errors
    /// A sentence about the first that is neither.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let failed = || Status::ALL.into_iter().filter(|status| !status.is_fine());
        let mut statuses = BTreeSet::new();
        let mut wide = false;
        for word in words {
            match Status::ALL.into_iter().find(|status| status.name() == word) {
                _ if word == FAILED => statuses.extend(failed()),
                _ if word == WIDE => wide = true,
                Some(status) if status.is_fine() => {
                    return Err(format!(
                        "`{word}` is no failure; --fresh measures all points again"
                    ));
                }
                Some(status) => {
                    statuses.insert(status);
                }
                None => {
                    let names: Vec<&str> = failed().map(Status::name).collect();
                    return Err(format!(
                        "there is no status `{word}`; it is `{FAILED}` for all of them, `{WIDE}` for wide intervals, or some of {}",
                        names.join(", ")
                    ));
                }
            }
        }
        Ok(Retry { statuses, wide })
    }

    /// True if some point may be tried again, by the number of rows of each status.
    pub fn covers_any(&self, rows: &BTreeMap<Status, usize>) -> bool {
        let has = |status| rows.contains_key(status);
        self.wide || self.statuses.iter().any(has)
    }

    /// True if the point of a row is tried again. A pruned point is tried again if any status is:
    /// the failed point that pruned it may be among them.
    pub fn covers(&self, row: &Standing) -> bool {
        let is_asked_for = self.statuses.contains(&row.status)
            || (row.status == Status::Pruned && !self.statuses.is_empty())
            || (self.wide && row.is_wide);
        row.is_of_the_moment() || (is_asked_for && row.cause != Some(Cause::Device))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::outcome::Outcome;
    use crate::row::test_row;

    fn standing(status: Status, cause: Option<Cause>) -> Standing {
        let point = test_row(1, Outcome::without_measurement(status, "")).point;
        Standing {
            point,
            status,
            cause,
            earlier_rows: 0,
            is_wide: false,
        }
    }

    fn parse(words: &[&str]) -> Result<Retry, String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Retry::parse(&words)
    }

    #[test]
    fn what_is_asked_for_is_tried_again_and_trouble_of_the_moment_always() {
        let oom = standing(Status::Oom, None);
        let killed = standing(Status::Crashed, Some(Cause::Surroundings));
        let pruned = standing(Status::Pruned, None);
        let elsewhere = standing(Status::Unavailable, Some(Cause::Device));
        let fine = standing(Status::Ok, None);
        let all = [oom, killed, pruned, elsewhere, fine];
        let covered = |words: &[&str]| all.map(|row| parse(words).unwrap().covers(&row));
        assert_eq!(covered(&[]), [false, true, false, false, false]);
        assert_eq!(covered(&["oom"]), [true, true, true, false, false]);
        assert_eq!(covered(&["timeout"]), [false, true, true, false, false]);
        assert_eq!(covered(&["failed"]), [true, true, true, false, false]);
    }

    #[test]
    fn wide_intervals_alone_can_be_measured_again() {
        let fine = standing(Status::Ok, None);
        let wide = Standing {
            is_wide: true,
            ..fine
        };
        let covered = |words: &[&str]| [fine, wide].map(|row| parse(words).unwrap().covers(&row));
        assert_eq!(covered(&["wide"]), [false, true]);
        assert_eq!(covered(&["failed"]), [false, false]);
        let oom = standing(Status::Oom, None);
        assert!(!parse(&["wide"]).unwrap().covers(&oom));
        assert!(parse(&["wide", "oom"]).unwrap().covers(&oom));
    }

    #[test]
    fn other_words_are_refused() {
        let message = |word| parse(&[word]).unwrap_err();
        assert!(message("ok").contains("--fresh"), "{}", message("ok"));
        assert!(message("slow").contains("crashed"), "{}", message("slow"));
    }
}
