//! How a GPU was doing while functions in Python were measured on it: rows say it as those of
//! kernels do.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::copied;
use crate::place::{column, text};
use crate::support::{has_package, python, skip};

/// A process that has the GPU open until it is dropped.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // It ends with its standard input, which waiting closes.
        let _ = self.0.wait();
    }
}

fn other_process() -> Other {
    let program =
        "import cupy, sys; cupy.ones(1).sum().item(); print(flush=True); sys.stdin.read()";
    let mut other = Command::new(python())
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(other.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    Other(other)
}

/// Whether NVML lists processes by the numbers that they have here: in some containers it does not.
fn lists(process: u32) -> bool {
    let listed = Command::new("nvidia-smi")
        .args(["--query-compute-apps=pid", "--format=csv,noheader"])
        .output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    listed.is_ok_and(|text| text.lines().any(|line| line.trim() == process.to_string()))
}

/// Backend, clock and flags of each row of a short sweep.
fn rows() -> Vec<(String, String, String)> {
    let folder = copied();
    let ran = folder.sweeper(&["run", "parity.toml", "--set", "case.copied.grid.n=262144"]);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
    let records = folder.read("records.csv");
    let [backends, clocks, flags] =
        ["backend", "sm_mhz", "flags"].map(|name| column(&records, name));
    let pairs = backends.into_iter().zip(clocks).zip(flags);
    pairs
        .map(|((backend, clock), flags)| (backend, clock, flags))
        .collect()
}

#[test]
fn rows_of_functions_have_clocks_and_tell_of_other_processes() {
    let Some(_gpu) = crate::cuda::gpu_alone() else {
        return;
    };
    if !has_package("cupy", "cupy") {
        return;
    }
    let alone = rows();
    let has_nvml = alone.iter().any(|(_, clock, _)| !clock.is_empty());
    let other = other_process();
    if !has_nvml || !lists(other.0.id()) {
        skip(
            "NVML",
            "NVML is not there, or lists no processes of this machine",
        );
        return;
    }
    let beside = rows();
    drop(other);
    for (backend, clock, flags) in &alone {
        assert!(!clock.is_empty(), "{backend}");
        assert!(!flags.contains("shared_gpu"), "{backend}: {flags}");
    }
    for (backend, _, flags) in &beside {
        assert!(flags.contains("shared_gpu"), "{backend}: {flags}");
    }
}
