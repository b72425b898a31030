//! Child processes: their end with this one, the last text that they wrote, their signals.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::{FdFlags, fcntl_setfd};
pub use rustix::process::Signal;
use rustix::process::{
    Pid, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal, setsid,
};
use rustix::thread::{CpuSet, disable_transparent_huge_pages, sched_setaffinity};

use sweeper_model::proc_stat::stat_of;

/// Lets the system kill a child when the thread that starts it ends, however that ends. Processes
/// that the child starts are not concerned.
#[expect(unsafe_code, reason = "a child's first steps, between fork and exec")]
pub fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the request.
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::other("the parent process is gone"))
        }
    };
    // SAFETY: two system calls without memory or locks; the error of the second holds a boxed
    // message, but is made only in a child whose parent is gone, where no thread is left to wait
    // for a lock.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Starts a child with or without transparent huge pages: it inherits the setting, and hands it on.
#[expect(unsafe_code, reason = "a child's first steps, between fork and exec")]
pub fn with_huge_pages(command: &mut Command, are_used: bool) {
    let prepare = move || Ok(disable_transparent_huge_pages(!are_used)?);
    // SAFETY: a system call without memory or locks.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Lets a child have a descriptor, under the number that it has here.
#[expect(unsafe_code, reason = "a child's first steps, between fork and exec")]
pub fn hand_over(command: &mut Command, descriptor: OwnedFd) {
    let prepare = move || Ok(fcntl_setfd(&descriptor, FdFlags::empty())?);
    // SAFETY: a system call without memory or locks.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Keeps a child, and all that it starts, on some processors.
#[expect(unsafe_code, reason = "a child's first steps, between fork and exec")]
pub fn keep_on(command: &mut Command, processors: &[usize]) {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    let prepare = move || Ok(sched_setaffinity(None, &set)?);
    // SAFETY: a system call without memory or locks.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Makes a child the leader of a session of its own, which all that it starts are in, in whatever
/// groups: [`kill_session`] finds them. A key that interrupts this process is not for it.
#[expect(unsafe_code, reason = "a child's first steps, between fork and exec")]
pub fn in_own_session(command: &mut Command) {
    let prepare = || Ok(setsid().map(|_| ())?);
    // SAFETY: a system call without memory or locks.
    unsafe {
        command.pre_exec(prepare);
    }
}

/// Kills all others of the session that a process leads or has led, and returns their numbers.
pub fn kill_session(leader: u32) -> BTreeSet<u32> {
    let mut killed = BTreeSet::new();
    // What was started while the others were looked at is found by the next look.
    for _ in 0..MOST_LOOKS {
        let members = others_of_session(leader);
        if members.is_empty() {
            break;
        }
        for member in members {
            // It may have ended by itself.
            let _ = kill_process(member, Signal::KILL);
            killed.insert(member.as_raw_pid().unsigned_abs());
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    killed
}

/// How often members of a session are looked for: one that hangs in a driver is left to the system.
const MOST_LOOKS: u32 = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// The processes of a session that have not ended, without its leader.
fn others_of_session(leader: u32) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let others = numbers.filter(|number| u32::try_from(*number) != Ok(leader));
    let is_member = |number: &i32| {
        let Some(stat) = stat_of(number.unsigned_abs()) else {
            return false;
        };
        // State, parent, group and session.
        let mut fields = stat.split(' ');
        let is_alive = !matches!(fields.next(), Some("Z" | "X") | None);
        is_alive && fields.nth(2) == Some(&*leader.to_string())
    };
    others.filter(is_member).filter_map(Pid::from_raw).collect()
}

/// Kills the group of a process: the process, and all that it has started and left in its group.
pub fn kill_group(process: u32) {
    signal_group(process, Signal::KILL);
}

/// Sends a signal to the group of a process: the process, and all that it has started and left in
/// its group.
pub fn signal_group(process: u32, signal: Signal) {
    if let Some(group) = Pid::from_raw(process as i32) {
        // The group may have ended; then there is nothing to signal.
        let _ = kill_process_group(group, signal);
    }
}

/// The most of a process's last words that is kept, in bytes.
const LAST_WORDS_BYTES: usize = 4096;

/// The end of a stream that a thread reads: the last words of a process.
#[derive(Clone, Debug, Default)]
pub struct LastWords(Arc<Mutex<Vec<u8>>>);

impl LastWords {
    /// Reads a stream to its end, in a thread of its own.
    ///
    /// # Errors
    /// If there can be no further thread.
    pub fn of(mut stream: impl Read + Send + 'static) -> io::Result<Self> {
        let words = LastWords::default();
        let kept = words.clone();
        thread::Builder::new().spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(length @ 1..) = stream.read(&mut piece) {
                kept.add(&piece[..length]);
            }
        })?;
        Ok(words)
    }

    fn add(&self, piece: &[u8]) {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(piece);
        let surplus = words.len().saturating_sub(LAST_WORDS_BYTES);
        words.drain(..surplus);
    }

    /// The last words so far.
    pub fn text(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).into_owned()
    }
}

/// True for signals by which people, schedulers and the system end processes: none of them comes
/// from a program's own fault.
pub fn is_of_others(signal: i32) -> bool {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
    matches!(signal, SIGHUP | SIGINT | SIGKILL | SIGTERM)
}

/// The name of a signal behind its number; empty for uncommon ones.
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic)",
        9 => " (killed, perhaps for its memory)",
        11 => " (segmentation fault)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_session_ends_with_all_groups_that_were_started_in_it() {
        // A shell that is interactive gives each job a group of its own.
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "set -m; sleep 1000 & (sleep 1000 &); echo; read never",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        in_own_session(&mut command);
        let mut leader = command.spawn().unwrap();
        let mut stdout = leader.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        let start = Instant::now();
        while others_of_session(leader.id()).len() < 2 {
            assert!(start.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(5));
        }
        leader.kill().unwrap();
        assert!(kill_session(leader.id()).len() >= 2);
        assert!(others_of_session(leader.id()).is_empty());
        let mut rest = Vec::new();
        // All that could have written are gone.
        stdout.read_to_end(&mut rest).unwrap();
        leader.wait().unwrap();
    }
}
