//! Other processes, as Linux tells of them, mostly below `/proc`.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// What the system says of a process, from its state on (`man 5 proc_pid_stat`, field 3); none of a
/// process that is not there.
pub fn stat_of(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The program's name is in parentheses and may hold any others.
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.to_owned())
}

/// The process that has started another one, or that has taken its place.
pub fn parent_of(process: u32) -> Option<u32> {
    stat_of(process)?.split(' ').nth(1)?.parse().ok()
}

/// True for a process that has not ended, even if a mount of `/proc` hides it as another user's.
pub fn is_there(process: u32) -> bool {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    number.is_some_and(|number| test_kill_process(number) != Err(Errno::SRCH))
}

/// How much the machine's processes want processors that others have (`psi`, from Linux 4.20 on).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuPressure {
    /// The part of the last ten seconds in which some process waited, in percent.
    pub recent_percent: f64,
    /// For how long some process has waited since the machine's start, in seconds.
    pub total_s: f64,
}

impl CpuPressure {
    /// Now; none where the system does not say.
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
        let field = |name: &str| -> Option<f64> {
            let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
            fields.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        Some(CpuPressure {
            recent_percent: field("avg10")?,
            total_s: field("total")? * 1e-6,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_that_of_some_process() {
        let text = "some avg10=30.11 avg60=48.68 avg300=38.17 total=1764390851\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let pressure = CpuPressure::parse(text).unwrap();
        assert_eq!(pressure.recent_percent, 30.11);
        assert!((pressure.total_s - 1_764.390_851).abs() < 1e-9);
        assert_eq!(CpuPressure::parse("full avg10=0.00"), None);
        assert_eq!(CpuPressure::parse(""), None);
    }

    #[test]
    fn a_process_that_runs_has_a_state_and_a_parent() {
        let own = std::process::id();
        assert!(stat_of(own).is_some_and(|stat| !stat.starts_with(['Z', 'X'])));
        assert_eq!(parent_of(own), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent_of(u32::MAX), None);
        assert!(is_there(own) && is_there(1), "1 may be another user's");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = child.id();
        child.wait().unwrap();
        assert!(!is_there(ended) && !is_there(u32::MAX));
    }
}
