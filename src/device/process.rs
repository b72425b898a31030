//! Child processes that end with this one.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::disable_transparent_huge_pages;

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
