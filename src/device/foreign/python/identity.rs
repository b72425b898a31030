//! The identity of an interpreter: part of that of runs whose manifests have functions in Python.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::device::process::is_of_others;

/// Prints it.
const SCRIPT: &str = include_str!("child/identity.py");

/// How often an interpreter is asked that is ended each time.
const TRIES: u32 = 3;

/// The [`identity`] of an interpreter, which is asked once in a process.
pub fn known(exe: &str) -> String {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.get(exe) {
        return found.clone();
    }
    let found = identity(exe);
    all.insert(exe.to_owned(), found.clone());
    found
}

/// An interpreter in one line: version, packages and variables; or why it can't be asked.
pub fn identity(exe: &str) -> String {
    let mut command = Command::new(exe);
    command.args(["-c", SCRIPT]).stdin(Stdio::null());
    let mut found = command.output();
    for _ in 1..TRIES {
        // That it was ended from outside tells nothing of it.
        let signal = |output: &Output| output.status.signal().is_some_and(is_of_others);
        if !found.as_ref().is_ok_and(signal) {
            break;
        }
        found = command.output();
    }
    match found {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(output) => format!("`{exe}` ended with {}", output.status),
        Err(error) => format!("`{exe}` can't be started: {error}"),
    }
}
