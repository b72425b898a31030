//! `sweeper import kernelbench`: files of KernelBench, whose tensors an interpreter finds.

use std::path::Path;
use std::time::Duration;

use super::exit::Exit;
use super::import::{FilesArgs, between};
use super::screen::Screen;
use sweeper_engine::device::DeviceError;
use sweeper_engine::device::foreign::python::{Place, Python};
use sweeper_manifest::import::kernelbench::{self, BenchFile, Examined, FileKind};
use sweeper_manifest::python_files::PythonFiles;
use sweeper_model::identity::CacheState;

/// How long a file may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A manifest of problems and candidates.
///
/// # Errors
/// The exit code, after the reason was shown.
pub(super) fn import_kernelbench(args: &FilesArgs, screen: &Screen) -> Result<String, Exit> {
    let texts = args.texts(&["py"], screen)?;
    let output = args.manifest();
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
    for (path, text) in &texts {
        let name = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let file = BenchFile {
            path: between(&output, path) + &name(path.file_name()),
            stem: name(path.file_stem()),
            kind: FileKind::of(text),
        };
        match file.kind {
            FileKind::Problem => {
                let examined = examine(&mut python, &exe, path);
                problems.push((file, examined));
            }
            FileKind::Candidate | FileKind::Other => others.push(file),
        }
    }
    kernelbench::manifest(args.python.as_deref(), &problems, &others).map_err(|reason| {
        screen.error(&format!("nothing to import: {reason}"));
        Exit::Manifest
    })
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
