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

#[cfg(test)]
mod tests {
    use super::*;

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
