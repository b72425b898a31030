//! The identity of an interpreter: part of that of runs whose manifests have functions in Python.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::device::DeviceError;
use crate::device::process::is_of_others;

/// Prints it.
const SCRIPT: &str = include_str!("child/identity.py");

/// How often an interpreter is asked that is ended each time.
const TRIES: u32 = 3;

/// The [`identity`] of an interpreter, which is asked once in a process.
///
/// # Errors
/// As [`identity`].
pub fn known(exe: &str) -> Result<String, DeviceError> {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut all = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = all.get(exe) {
        return Ok(found.clone());
    }
    let found = identity(exe)?;
    all.insert(exe.to_owned(), found.clone());
    Ok(found)
}

/// An interpreter in one line: version, packages and variables; or why it can't be asked.
///
/// # Errors
/// [`DeviceError::Interrupted`]: it was ended from outside each time, which tells nothing of it.
pub fn identity(exe: &str) -> Result<String, DeviceError> {
    let mut command = Command::new(exe);
    command.args(["-c", SCRIPT]).stdin(Stdio::null());
    let mut found = command.output();
    let was_ended = |output: &Output| output.status.signal().is_some_and(is_of_others);
    for _ in 1..TRIES {
        if !found.as_ref().is_ok_and(was_ended) {
            break;
        }
        found = command.output();
    }
    Ok(match found {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(output) if was_ended(&output) => {
            return Err(DeviceError::Interrupted(format!(
                "`{exe}` was asked for its packages {TRIES} times, and was ended from outside each \
                 time ({}); try again",
                output.status
            )));
        }
        Ok(output) => format!("`{exe}` ended with {}", output.status),
        Err(error) => format!("`{exe}` can't be started: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// An interpreter that says what it is once it has failed so many times.
    fn asked(failures: u32, failure: &str) -> Result<String, DeviceError> {
        let folder = tempfile::tempdir().unwrap();
        let exe = folder.path().join("python");
        let script = format!(
            "#!/bin/sh\ncd {}\necho >> tries\n[ $(wc -l < tries) -gt {failures} ] || {failure}\n\
             echo python 3\n",
            folder.path().display()
        );
        let text = folder.path().join("text");
        fs::write(&text, script).unwrap();
        // Another process writes it: those that other tests start would keep ours from starting it.
        let mut install = Command::new("install");
        install.args(["-m", "755"]).args([&text, &exe]);
        assert!(install.status().unwrap().success());
        identity(exe.to_str().unwrap())
    }

    #[test]
    fn an_interpreter_that_is_ended_from_outside_is_asked_again() {
        assert_eq!(asked(0, "exit 1").unwrap(), "python 3");
        assert_eq!(asked(2, "kill -9 $$").unwrap(), "python 3");
        let error = asked(3, "kill -9 $$").unwrap_err();
        assert!(error.to_string().contains("ended from outside"), "{error}");
    }

    #[test]
    fn an_interpreter_that_fails_is_what_it_is() {
        for (failure, expected) in [("exit 3", "exit status: 3"), ("kill -SEGV $$", "SIGSEGV")] {
            let found = asked(1, failure).unwrap();
            assert!(found.contains(expected), "{found}");
        }
    }
}
