//! Threads and processes that programs of the user leave at work when they return: they take
//! processors from all that is measured after them.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::getpgrp;

use sweeper_model::proc_stat::stat_of;

/// What a row says of a program that left some.
pub const WORDS: &str = "threads or processes left at work";

/// One that is found at work in each of so many looks is, and one that still is after a while, in
/// which threads of a pool that wait for more work go to sleep.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
const WAITING_LIMIT: Duration = Duration::from_millis(300);

/// Threads by number.
pub type Threads = BTreeSet<u32>;

/// Whether threads that `look` finds stay at work while nothing is asked of them.
pub fn is_at_work(look: impl Fn() -> Threads) -> bool {
    let stays = || {
        let mut all = look();
        for _ in 1..LOOKS {
            if all.is_empty() {
                return false;
            }
            thread::sleep(BETWEEN_LOOKS);
            all = &all & &look();
        }
        !all.is_empty()
    };
    stays() && {
        thread::sleep(WAITING_LIMIT);
        stays()
    }
}

/// Threads of a process group that run, or wait for a processor.
pub fn runnable_of_group(group: u32) -> Threads {
    threads(group, true)
}

/// Threads of this process and of those that it forked: those that run or wait for a processor, or
/// all. Interpreters and compilers that it started have groups of their own.
pub fn of_this_group(are_runnable: bool) -> Threads {
    threads(getpgrp().as_raw_pid().unsigned_abs(), are_runnable)
}

fn threads(group: u32, are_runnable: bool) -> Threads {
    let group = group.to_string();
    let processes = numbers("/proc").filter(|process| {
        // State, parent and group.
        let stat = stat_of(*process);
        stat.is_some_and(|stat| stat.split(' ').nth(2) == Some(&*group))
    });
    let of_process = |process: u32| {
        let folder = format!("/proc/{process}/task");
        let all = numbers(&folder).collect::<Vec<_>>();
        let is_wanted = move |thread: &u32| !are_runnable || is_runnable(process, *thread);
        all.into_iter().filter(is_wanted)
    };
    processes.flat_map(of_process).collect()
}

fn is_runnable(process: u32, thread: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat"));
    stat.is_ok_and(
        |stat| matches!(stat.rsplit_once(") "), Some((_, rest)) if rest.starts_with('R')),
    )
}

/// Names in a folder that are numbers.
fn numbers(folder: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;
    use crate::device::process::kill_group;

    #[test]
    fn a_process_that_works_is_told_from_one_that_waits() {
        for (script, works) in [("while :; do :; done", true), ("sleep 100", false)] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("{{ {script}; }} & wait")]);
            command.stdout(Stdio::null()).process_group(0);
            let mut leader = command.spawn().unwrap();
            thread::sleep(Duration::from_millis(200));
            let group = leader.id();
            assert_eq!(is_at_work(|| runnable_of_group(group)), works, "{script}");
            kill_group(group);
            leader.wait().unwrap();
            // The leader has ended; what it started dies when the system next runs it.
            let deadline = Instant::now() + Duration::from_secs(30);
            while !runnable_of_group(group).is_empty() {
                assert!(Instant::now() < deadline, "{script}: left at work");
                thread::sleep(BETWEEN_LOOKS);
            }
        }
    }
}
