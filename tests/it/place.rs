//! A folder with a manifest in it, in which tests run the program as people do.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A folder with a manifest in it.
pub(super) struct Place {
    folder: TempDir,
}

impl Place {
    pub(super) fn new(manifest: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("m.toml"), manifest).unwrap();
        Place { folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        // The program keeps ignoring signals that were ignored when it started, as in tests that
        // run in the background.
        let mut command = Command::new("env");
        command
            .current_dir(self.folder.path())
            .arg("--default-signal")
            .arg(crate::support::program())
            .args(args)
            .stdin(Stdio::null());
        command.env("SWEEPER_CACHE_DIR", self.path("cache"));
        command.env("XDG_STATE_HOME", self.path("state"));
        for name in ["SLURM_CPUS_PER_TASK", "NO_COLOR", "CC"] {
            command.env_remove(name);
        }
        command
    }

    pub(super) fn sweeper(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// As `sweeper`, with something on standard input.
    pub(super) fn told(&self, args: &[&str], stdin: &str) -> Output {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    /// The folder of the only run.
    pub(super) fn run_folder(&self) -> PathBuf {
        let mut folders: Vec<PathBuf> = fs::read_dir(self.path("results"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders.remove(0)
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.run_folder().join(name)).unwrap()
    }
}

pub(super) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

pub(super) fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

/// Values of one column of a CSV file.
pub(super) fn column(csv: &str, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let index = reader
        .headers()
        .unwrap()
        .iter()
        .position(|held| held == name)
        .unwrap();
    reader
        .records()
        .map(|record| record.unwrap()[index].to_owned())
        .collect()
}

pub(super) fn null_manifest(more: &str) -> String {
    format!(
        "schema = 1\nname = \"nulls\"\nabout = \"What does the engine do?\"\nseed = 7\n\
         [grid]\nelements = [10, 20, 30, 40]\n\
         [case.copy]\nworkload = \"copy\"\nbackends = [\"builtin\", \"compiled\"]\n\
         phases = [\"forward\"]\n\
         [device]\nuse = \"null\"\n[measure]\nrepeats = 5\n{more}"
    )
}

pub(super) const SCRIPT: &str = "[null]\ntime_ns = \"100 * elements\"\nnoise = 0.01\n";

pub(super) fn cpu_manifest(more: &str) -> String {
    format!(
        "schema = 1\nname = \"copies\"\nabout = \"How fast is memory?\"\n[grid]\n\
         elements = [1, 1000, 300000]\n[case.copy]\nworkload = \"copy\"\n\
         backends = [\"builtin\", \"compiled\"]\nphases = [\"forward\"]\n\
         [device]\nuse = \"cpu\"\n[measure]\nrepeats = 3\n{more}"
    )
}
