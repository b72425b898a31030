//! `sweeper import flashinfer`: files of FlashInfer-Bench, whose sources are written beside the
//! manifest.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use super::exit::Exit;
use super::import::FilesArgs;
use super::screen::Screen;
use sweeper_manifest::import::flashinfer::{self, SourceText, TraceFile};
use sweeper_model::files;

/// Endings of files of FlashInfer-Bench.
pub(super) const ENDINGS: [&str; 2] = ["json", "jsonl"];

/// A manifest of definitions, workloads and solutions; writes their sources.
///
/// # Errors
/// The exit code, after the reason was shown.
pub(super) fn import_flashinfer(args: &FilesArgs, screen: &Screen) -> Result<String, Exit> {
    let texts = args.texts(&ENDINGS, screen)?;
    let found = texts.into_iter().map(|(path, text)| TraceFile {
        path: path.display().to_string(),
        stem: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        text,
    });
    let found: Vec<TraceFile> = found.collect();
    let output = args.manifest();
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let folder = format!("{stem}_sources");
    let imported = flashinfer::import(args.python.as_deref(), &found, &folder, &locate);
    let imported = imported.map_err(|reason| {
        screen.error(&format!("nothing to import: {reason}"));
        Exit::Manifest
    })?;
    let folder = output.with_file_name(folder);
    let shown = |path: &Path, error: &io::Error| {
        screen.error(&format!("{}: {error}", path.display()));
        Exit::Files
    };
    // Sources are not written where the manifest can't be.
    if output.exists() {
        return Err(shown(&output, &io::ErrorKind::AlreadyExists.into()));
    }
    write_sources(&folder, &imported.sources).map_err(|error| shown(&folder, &error))?;
    Ok(imported.manifest)
}

/// The beginning of a file that stands for one that was not fetched.
const POINTER: &[u8] = b"version https://git-lfs";

/// The absolute path of a file that the file at `from` names: relative to the folder of a dataset,
/// which is one of those around.
fn locate(from: &str, named: &str) -> Result<String, String> {
    let from = std::path::absolute(from).map_err(|error| error.to_string())?;
    let mut folders = from.ancestors().skip(1).map(|folder| folder.join(named));
    let path = folders
        .find(|path| path.is_file())
        .ok_or("it is in no folder around this one")?;
    let mut begin = [0; POINTER.len()];
    let mut file = files::open(&path).map_err(|error| error.to_string())?;
    if file.read_exact(&mut begin).is_ok() && begin == *POINTER {
        return Err("it is a pointer of Git LFS: `git lfs pull` fetches it".to_owned());
    }
    Ok(path.to_string_lossy().into_owned())
}

/// Writes sources into a folder that does not exist.
fn write_sources(folder: &Path, sources: &[SourceText]) -> io::Result<()> {
    fs::create_dir(folder)?;
    for source in sources {
        let path = folder.join(&source.path);
        fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.write_all(source.text.as_bytes())?;
    }
    Ok(())
}
