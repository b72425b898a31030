//! `sweeper import flashinfer`: files of FlashInfer-Bench, whose sources are written beside the
//! manifest.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::exit::Exit;
use super::import::write_manifest;
use super::import_kernelbench::files_below;
use super::screen::Screen;
use crate::files;
use crate::interchange::flashinfer::{self, SourceText, TraceFile};

/// Arguments of `import flashinfer`.
#[derive(Args)]
pub struct TraceArgs {
    /// Files and folders: definitions and solutions in JSON, workloads in lines of JSON
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The manifest to write, with a folder of sources beside it; neither may exist. Beside the
    /// first path by default
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The interpreter that the manifest names; by default that of the variable `SWEEPER_PYTHON`,
    /// or `python3`
    #[arg(long)]
    python: Option<String>,
}

/// Writes a manifest of definitions, workloads and solutions, and their sources.
pub(super) fn import_flashinfer(args: &TraceArgs, screen: &Screen) -> Exit {
    let mut paths = Vec::new();
    for path in &args.paths {
        if let Err(error) = files_below(path, &["json", "jsonl"], &mut paths) {
            screen.error(&format!("{}: {error}", path.display()));
            return Exit::Files;
        }
    }
    let mut found = Vec::new();
    for path in &paths {
        let text = match files::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                screen.error(&format!("{}: {error}", path.display()));
                return Exit::Files;
            }
        };
        let stem = path.file_stem().unwrap_or_default();
        found.push(TraceFile {
            path: path.display().to_string(),
            stem: stem.to_string_lossy().into_owned(),
            text,
        });
    }
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| args.paths[0].with_extension("toml"));
    let stem = output.file_stem().unwrap_or_default().to_string_lossy();
    let folder = format!("{stem}_sources");
    let imported = match flashinfer::import(args.python.as_deref(), &found, &folder, &locate) {
        Ok(imported) => imported,
        Err(reason) => {
            screen.error(&format!("nothing to import: {reason}"));
            return Exit::Manifest;
        }
    };
    let folder = output.with_file_name(folder);
    let shown = |path: &Path, error: &io::Error| {
        screen.error(&format!("{}: {error}", path.display()));
        Exit::Files
    };
    // Sources are not written where the manifest can't be.
    if output.exists() {
        return shown(&output, &io::ErrorKind::AlreadyExists.into());
    }
    if let Err(error) = write_sources(&folder, &imported.sources) {
        return shown(&folder, &error);
    }
    write_manifest(&output, &imported.manifest, screen)
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
