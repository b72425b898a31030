//! The identity of an interpreter: part of that of runs whose manifests have functions in Python.

use std::process::{Command, Stdio};

/// Prints it.
const SCRIPT: &str = include_str!("child/identity.py");

/// An interpreter in one line: version, packages and variables; or why it can't be asked.
pub fn identity(exe: &str) -> String {
    let mut command = Command::new(exe);
    command.args(["-c", SCRIPT]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        Ok(output) => format!("`{exe}` ended with {}", output.status),
        Err(error) => format!("`{exe}` can't be started: {error}"),
    }
}
