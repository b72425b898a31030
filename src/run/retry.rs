//! Which points of an earlier part of a run are tried again.

use std::collections::{BTreeMap, BTreeSet};

use sweeper_model::row::outcome::{Cause, Status};
use sweeper_results::record::contents::Standing;
use sweeper_results::record::hold;

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
    /// The job that tries them.
    job: Option<Job>,
}

/// A job of a scheduler. One that is started again goes on with the points that it has not tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    name: String,
    is_again: bool,
}

impl Job {
    /// The job of this process, if it is in one.
    pub fn here() -> Option<Self> {
        let is_again = hold::restarts() > 0;
        hold::job().map(|name| Job { name, is_again })
    }
}

impl Retry {
    /// Reads words as the command line has them: statuses, `failed` for all that are not results,
    /// or `wide`.
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
                        "`{word}` is not a failure; --fresh measures all points again"
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
        Ok(Retry {
            statuses,
            wide,
            job: None,
        })
    }

    /// As tried by a job, once by all of its starts.
    #[must_use]
    pub fn by(self, job: Option<Job>) -> Self {
        let is_asked_for = self.wide || !self.statuses.is_empty();
        let job = job.filter(|_| is_asked_for);
        Retry { job, ..self }
    }

    /// The job that rows name, which tries points once.
    pub fn job(&self) -> Option<&str> {
        self.job.as_ref().map(|job| job.name.as_str())
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
        let is_to_be_tried = is_asked_for && row.cause != Some(Cause::Device);
        row.is_of_the_moment() || (is_to_be_tried && !self.has_tried(row))
    }

    /// True if this job wrote the row before it was started again. Of a job that was started once,
    /// a row of such a name is of an earlier process in it, or of a scheduler whose numbers began
    /// anew.
    fn has_tried(&self, row: &Standing) -> bool {
        let job = self.job.as_ref().filter(|job| job.is_again);
        job.is_some_and(|job| row.retried_in.as_ref() == Some(&job.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::row::outcome::Outcome;
    use sweeper_model::row::test_row;

    fn standing(status: Status, cause: Option<Cause>) -> Standing {
        let point = test_row(1, Outcome::without_measurement(status, "")).point;
        Standing {
            point,
            status,
            cause,
            earlier_rows: 0,
            retried_in: None,
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
        let covered = |words: &[&str]| all.each_ref().map(|row| parse(words).unwrap().covers(row));
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
            ..fine.clone()
        };
        let covered = |words: &[&str]| [&fine, &wide].map(|row| parse(words).unwrap().covers(row));
        assert_eq!(covered(&["wide"]), [false, true]);
        assert_eq!(covered(&["failed"]), [false, false]);
        let oom = standing(Status::Oom, None);
        assert!(!parse(&["wide"]).unwrap().covers(&oom));
        assert!(parse(&["wide", "oom"]).unwrap().covers(&oom));
    }

    #[test]
    fn a_job_that_is_started_again_tries_what_it_has_not_tried() {
        let job = |name: &str, is_again| Job {
            name: name.to_owned(),
            is_again,
        };
        let retry = |words: &[&str], job: Job| parse(words).unwrap().by(Some(job));
        let tried = |status, cause| Standing {
            retried_in: Some("7_3".to_owned()),
            ..standing(status, cause)
        };
        let row = tried(Status::Oom, None);
        assert!(!retry(&["oom"], job("7_3", true)).covers(&row));
        assert!(
            retry(&["oom"], job("7_3", false)).covers(&row),
            "begun anew"
        );
        assert!(retry(&["oom"], job("8_3", true)).covers(&row), "another");
        let other = standing(Status::Oom, None);
        assert!(retry(&["oom"], job("7_3", true)).covers(&other));
        let killed = tried(Status::Crashed, Some(Cause::Surroundings));
        assert!(retry(&["oom"], job("7_3", true)).covers(&killed));
        assert_eq!(retry(&["wide"], job("7_3", false)).job(), Some("7_3"));
        assert_eq!(retry(&[], job("7_3", true)).job(), None);
    }

    #[test]
    fn other_words_are_refused() {
        let message = |word| parse(&[word]).unwrap_err();
        assert!(message("ok").contains("--fresh"), "{}", message("ok"));
        assert!(message("slow").contains("crashed"), "{}", message("slow"));
    }
}
