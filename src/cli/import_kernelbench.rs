//! `sweeper import kernelbench`: files of KernelBench, whose tensors an interpreter finds.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::exit::Exit;
use super::import::{between, write_manifest};
use super::screen::Screen;
use crate::device::DeviceError;
use crate::device::foreign::python::{Place, Python};
use crate::files;
use crate::identity::CacheState;
use crate::interchange::kernelbench::{self, BenchFile, Examined, FileKind};
use crate::manifest::python_files::PythonFiles;

/// How long a file may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Arguments of `import kernelbench`.
#[derive(Args)]
pub struct BenchArgs {
    /// Files and folders: those with a class `Model` are problems, those with `ModelNew` candidates
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The manifest to write; it must not exist. Beside the first path by default
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The interpreter, which needs PyTorch; by default that of the variable `SWEEPER_PYTHON`, or
    /// `python3`
    #[arg(long)]
    python: Option<String>,
}

/// Writes a manifest of problems and candidates.
pub(super) fn import_kernelbench(args: &BenchArgs, screen: &Screen) -> Exit {
    let mut paths = Vec::new();
    for path in &args.paths {
        if let Err(error) = files_below(path, &["py"], &mut paths) {
            screen.error(&format!("{}: {error}", path.display()));
            return Exit::Files;
        }
    }
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| args.paths[0].with_extension("toml"));
    let exe = args
        .python
        .clone()
        .or_else(|| std::env::var("SWEEPER_PYTHON").ok());
    let exe = exe.unwrap_or_else(|| "python3".to_owned());
    // Nothing is timed; one processor is enough.
    let mut python = Python::new(
        Place::of_cpu(1, CacheState::Hot),
        CacheState::Hot,
        LIMIT,
        None,
    );
    let (mut problems, mut others) = (Vec::new(), Vec::new());
    for path in &paths {
        let text = match files::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                screen.error(&format!("{}: {error}", path.display()));
                return Exit::Files;
            }
        };
        let name = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let file = BenchFile {
            path: between(&output, path) + &name(path.file_name()),
            stem: name(path.file_stem()),
            kind: FileKind::of(&text),
        };
        match file.kind {
            FileKind::Problem => {
                let examined = examine(&mut python, &exe, path);
                problems.push((file, examined));
            }
            FileKind::Candidate | FileKind::Other => others.push(file),
        }
    }
    match kernelbench::manifest(args.python.as_deref(), &problems, &others) {
        Ok(manifest) => write_manifest(&output, &manifest, screen),
        Err(reason) => {
            screen.error(&format!("nothing to import: {reason}"));
            Exit::Manifest
        }
    }
}

/// Adds a file, or all files with one of these endings below a folder, in the order of their paths.
pub(super) fn files_below(
    path: &Path,
    endings: &[&str],
    found: &mut Vec<PathBuf>,
) -> std::io::Result<()> {
    if !path.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path)?;
    let entries = entries.map(|entry| Ok(entry?.path()));
    let mut entries: Vec<PathBuf> = entries.collect::<std::io::Result<_>>()?;
    entries.sort();
    for entry in entries {
        let ending = entry.extension().and_then(|ending| ending.to_str());
        if entry.is_dir() || ending.is_some_and(|ending| endings.contains(&ending)) {
            files_below(&entry, endings, found)?;
        }
    }
    Ok(())
}

/// What an interpreter finds in a problem.
fn examine(python: &mut Python, exe: &str, path: &Path) -> Result<Examined, String> {
    let found = PythonFiles::read(path, &[])?;
    let folder = found.folder.to_string_lossy();
    let answer = python.examine(exe, &found.files, &folder);
    let answer = answer.map_err(|error| match error {
        DeviceError::Foreign { reason, .. } => reason,
        other => other.to_string(),
    })?;
    serde_json::from_value(answer).map_err(|error| error.to_string())
}
