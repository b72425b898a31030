//! How long a run may take: until the scheduler ends its job, or for a time that people give it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The variable with the end of the job, in seconds since 1970.
pub const JOB_END: &str = "SLURM_JOB_END_TIME";

/// Part of a job's time that is kept for its end, within bounds.
const RESERVED: f64 = 0.05;
const LEAST_RESERVED: Duration = Duration::from_secs(2);
const MOST_RESERVED: Duration = Duration::from_secs(60);

/// The time that a run has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// When a run ends because the scheduler ends the job soon; it goes on in another job.
    job: Option<Instant>,
    /// When the scheduler ends the job.
    job_end: Option<Instant>,
    /// When people want it to be over: points that are not measured by then get rows that say so.
    given: Option<(Instant, Duration)>,
}

/// Why there is no more time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The job ends.
    Job,
    /// The time that people gave, which was so long, is over.
    Given(Duration),
}

impl Allowed {
    /// A run that began at `began`, in a job that ends at `job_end_unix_s`, and that is given
    /// `longest`.
    pub fn new(began: Instant, job_end_unix_s: Option<u64>, longest: Option<Duration>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let left = job_end_unix_s.map(|end| {
            let left = Duration::from_secs(end).saturating_sub(now);
            left.min(Duration::from_secs(1 << 30))
        });
        let measuring = |left: Duration| {
            let reserved = left.mul_f64(RESERVED).clamp(LEAST_RESERVED, MOST_RESERVED);
            left.saturating_sub(reserved)
        };
        Allowed {
            job: left.map(|left| began + measuring(left)),
            job_end: left.map(|left| began + left),
            given: longest.map(|longest| (began + longest, longest)),
        }
    }

    /// As the environment says.
    pub fn here(began: Instant, longest: Option<Duration>) -> Self {
        let told = std::env::var(JOB_END).ok();
        let end = told.and_then(|text| text.trim().parse().ok());
        Allowed::new(began, end, longest)
    }

    /// The time that is left; none where it is not limited.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let ends = [self.job, self.given.map(|(end, _)| end)].into_iter();
        let first = ends.flatten().min();
        first.map(|end| end.saturating_duration_since(now))
    }

    /// The time until the scheduler ends the job, where that is known.
    pub fn job_left(&self, now: Instant) -> Option<Duration> {
        self.job_end.map(|end| end.saturating_duration_since(now))
    }

    /// The limit that is reached first.
    pub fn first(&self) -> Option<Over> {
        match (self.job, self.given) {
            (Some(job), Some((end, _))) if job <= end => Some(Over::Job),
            (_, Some((_, longest))) => Some(Over::Given(longest)),
            (Some(_), None) => Some(Over::Job),
            (None, None) => None,
        }
    }

    /// True if people gave a time: then the most telling points come first.
    pub fn is_given(&self) -> bool {
        self.given.is_some()
    }
}

/// Reads `90s`, `30m`, `2h`, `1.5h` or a number of seconds.
///
/// # Errors
/// A sentence.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (digits, unit_s) = match text.char_indices().last() {
        Some((at, 's')) => (&text[..at], 1.0),
        Some((at, 'm')) => (&text[..at], 60.0),
        Some((at, 'h')) => (&text[..at], 3600.0),
        Some((at, 'd')) => (&text[..at], 86400.0),
        _ => (text, 1.0),
    };
    let seconds = digits
        .trim()
        .parse::<f64>()
        .ok()
        .map(|count| count * unit_s);
    let is_time = |seconds: &f64| (1e-3..1e9).contains(seconds);
    seconds
        .filter(is_time)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not a time: it is such as 90s, 30m or 2h"))
}

/// A time, as people give it.
pub fn in_words(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let of = |unit: f64, word: &str| format!("{}{word}", (seconds / unit * 100.0).round() / 100.0);
    match () {
        () if seconds >= 3600.0 => of(3600.0, "h"),
        () if seconds >= 60.0 => of(60.0, "m"),
        () => of(1.0, "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_said() {
        for (text, seconds, said) in [
            ("90s", 90.0, "1.5m"),
            ("30m", 1800.0, "30m"),
            ("1.5h", 5400.0, "1.5h"),
            ("20", 20.0, "20s"),
        ] {
            let time = parse(text).unwrap();
            assert_eq!(time, Duration::from_secs_f64(seconds));
            assert_eq!(in_words(time), said);
        }
        for wrong in ["", "m", "-3m", "0", "soon", "1e40h", "NaN"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_earlier_end_counts_and_a_job_keeps_a_part_for_its_end() {
        let now = Instant::now();
        assert_eq!(Allowed::default().left(now), None);
        let unix_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let job = Allowed::new(now, Some(unix_s + 1000), None);
        let left = job.left(now).unwrap();
        assert!((940..=950).contains(&left.as_secs()), "{left:?}");
        assert_eq!(job.first(), Some(Over::Job));
        let all = job.job_left(now).unwrap();
        assert!((999..=1000).contains(&all.as_secs()), "{all:?}");
        let minute = Duration::from_secs(60);
        let both = Allowed::new(now, Some(unix_s + 1000), Some(minute));
        assert_eq!(both.left(now), Some(minute));
        assert_eq!(both.left(now + 2 * minute), Some(Duration::ZERO));
        assert_eq!(both.first(), Some(Over::Given(minute)));
        let over = Allowed::new(now, Some(unix_s - 1000), Some(minute));
        assert_eq!(over.left(now), Some(Duration::ZERO));
        assert_eq!(over.first(), Some(Over::Job));
    }
}
