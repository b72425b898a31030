//! `sweeper import`: manifests and results from files of other tools.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::exit::Exit;
use super::import_flashinfer::{ENDINGS, import_flashinfer};
use super::import_kernelbench::import_kernelbench;
use super::screen::Screen;
use sweeper_manifest::import::{t1, t4};
use sweeper_model::files;
use sweeper_results::record::tables;

/// The formats that can be imported.
#[derive(Subcommand)]
pub enum ImportVerb {
    /// A tuning problem of Kernel Tuner, KTT or BAT, in the T1 format
    T1(ImportArgs),
    /// Results of Kernel Tuner, KTT or the benchmark hub, in the T4 format: a folder for `report`
    /// and `compare`
    T4(ImportArgs),
    /// Problems of KernelBench and candidates for them: files of Python with a class `Model`, or
    /// `ModelNew`, or folders of such
    Kernelbench(FilesArgs),
    /// Definitions and solutions of FlashInfer-Bench in JSON, workloads in lines of JSON: files, or
    /// folders such as a dataset
    Flashinfer(FilesArgs),
}

/// Arguments of `import`.
#[derive(Args)]
pub struct ImportArgs {
    /// The file to import
    file: PathBuf,
    /// The manifest or folder to write; it must not exist. Beside the file by default
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Files of a benchmark, and the manifest to write.
#[derive(Args)]
pub struct FilesArgs {
    /// Files and folders
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// The manifest to write, with sources in a folder beside it where it needs some; neither may
    /// exist. Beside the first path by default
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// The interpreter of the manifest, which needs PyTorch; by default that of the variable
    /// `SWEEPER_PYTHON`, or `python3`
    #[arg(long)]
    pub(super) python: Option<String>,
}

impl FilesArgs {
    /// The files with one of these endings, in the order of their paths, with their texts.
    ///
    /// # Errors
    /// The exit code, after the reason was shown.
    pub(super) fn texts(
        &self,
        endings: &[&str],
        screen: &Screen,
    ) -> Result<Vec<(PathBuf, String)>, Exit> {
        let unread = |path: &Path, error: &io::Error| {
            screen.error(&format!("{}: {error}", path.display()));
            Exit::Files
        };
        let (mut paths, mut seen) = (Vec::new(), BTreeSet::new());
        for path in &self.paths {
            files_below(path, endings, &mut seen, &mut paths)
                .map_err(|error| unread(path, &error))?;
        }
        let texts = paths.into_iter().map(|path| {
            let text = files::read_to_string(&path).map_err(|error| unread(&path, &error))?;
            Ok((path, text))
        });
        texts.collect()
    }

    /// The manifest to write.
    pub(super) fn manifest(&self) -> PathBuf {
        let output = self.output.clone();
        output.unwrap_or_else(|| self.paths[0].with_extension("toml"))
    }
}

/// Adds a file, or all files with one of these endings below a folder, in the order of their paths.
/// Links may lead back to a folder that was seen before.
fn files_below(
    path: &Path,
    endings: &[&str],
    seen: &mut BTreeSet<PathBuf>,
    found: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if !path.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    if !seen.insert(path.canonicalize()?) {
        return Ok(());
    }
    let entries = fs::read_dir(path)?;
    let entries = entries.map(|entry| Ok(entry?.path()));
    let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
    entries.sort();
    for entry in entries {
        let ending = entry.extension().and_then(|ending| ending.to_str());
        if entry.is_dir() || ending.is_some_and(|ending| endings.contains(&ending)) {
            files_below(&entry, endings, seen, found)?;
        }
    }
    Ok(())
}

/// Writes a manifest, or the tables of a run.
pub fn import(verb: &ImportVerb, screen: &Screen) -> Exit {
    let args = match verb {
        ImportVerb::T1(args) | ImportVerb::T4(args) => args,
        ImportVerb::Kernelbench(args) => {
            return written(args, import_kernelbench(args, screen), screen);
        }
        ImportVerb::Flashinfer(args) => {
            return written(args, import_flashinfer(args, screen), screen);
        }
    };
    let shown = args.file.display();
    let text = match files::read_packed(&args.file) {
        Ok(text) => text,
        Err(error) => {
            screen.error(&format!("{shown}: {error}"));
            return Exit::Files;
        }
    };
    match verb {
        ImportVerb::T1(_) => import_problem(args, &text, screen),
        _ => import_results(args, &text, screen),
    }
}

/// Writes the manifest of files of a benchmark.
fn written(args: &FilesArgs, imported: Result<String, Exit>, screen: &Screen) -> Exit {
    match imported {
        Ok(manifest) => write_manifest(&args.manifest(), &manifest, screen),
        Err(exit) => exit,
    }
}

/// The manifest of the problems in a folder, of FlashInfer-Bench where it has JSON and of
/// KernelBench otherwise, as it stands at `output`; sources are written beside that.
///
/// # Errors
/// The exit code, after the reason was shown.
pub(super) fn import_folder(
    folder: &Path,
    output: PathBuf,
    screen: &Screen,
) -> Result<String, Exit> {
    let args = FilesArgs {
        paths: vec![folder.to_owned()],
        output: Some(output),
        python: None,
    };
    let mut traces = Vec::new();
    let searched = files_below(folder, &ENDINGS, &mut BTreeSet::new(), &mut traces);
    match searched.is_ok() && !traces.is_empty() {
        true => import_flashinfer(&args, screen),
        false => import_kernelbench(&args, screen),
    }
}

/// Writes the tables of results.
fn import_results(args: &ImportArgs, text: &str, screen: &Screen) -> Exit {
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".gz").trim_end_matches(".json");
    let rows = match t4::rows(text, name) {
        Ok(rows) => rows,
        Err(reason) => {
            screen.error(&format!("{}: {reason}", args.file.display()));
            return Exit::Manifest;
        }
    };
    let folder = match &args.output {
        Some(folder) => folder.clone(),
        None => args.file.with_extension("rows"),
    };
    let written = fs::create_dir(&folder).and_then(|()| {
        let records = files::create(&folder, "records.csv")?;
        tables::write_records(&rows, records)?;
        let samples = files::create(&folder, "samples.csv")?;
        Ok(tables::write_samples(&rows, samples)?)
    });
    let path = folder.display();
    match written {
        Ok(()) if screen.json => screen.json(&json!({ "wrote": folder, "rows": rows.len() })),
        Ok(()) => screen.line(&format!(
            "wrote {} rows to {path}; next: sweeper report {path}/records.csv",
            rows.len()
        )),
        Err(error) => {
            screen.error(&format!("{path}: {error}"));
            return Exit::Files;
        }
    }
    Exit::Fine
}

/// Writes a manifest.
fn import_problem(args: &ImportArgs, text: &str, screen: &Screen) -> Exit {
    let shown = args.file.display();
    let path = match &args.output {
        Some(path) => path.clone(),
        None => args.file.with_extension("toml"),
    };
    let manifest = match t1::manifest(text, &between(&path, &args.file)) {
        Ok(manifest) => manifest,
        Err(reason) => {
            screen.error(&format!("{shown}: {reason}"));
            return Exit::Manifest;
        }
    };
    write_manifest(&path, &manifest, screen)
}

/// Writes a manifest where there is none, and says so.
pub(super) fn write_manifest(path: &Path, manifest: &str, screen: &Screen) -> Exit {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(manifest.as_bytes()));
    match written {
        Ok(()) if screen.json => screen.json(&json!({ "wrote": path })),
        Ok(()) => screen.line(&format!(
            "wrote {path}; its doubts are marked with `?`; next: sweeper check {path}",
            path = path.display()
        )),
        Err(error) => {
            screen.error(&format!("{}: {error}", path.display()));
            return Exit::Files;
        }
    }
    Exit::Fine
}

/// The folder of `file` as a manifest at `manifest` names it, with a `/` at its end; empty where it
/// is the same.
pub(super) fn between(manifest: &Path, file: &Path) -> String {
    let folder = |path: &Path| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        path.parent().map_or_else(PathBuf::new, Path::to_owned)
    };
    let (from, to) = (folder(manifest), folder(file));
    match to.strip_prefix(&from) {
        Ok(below) if below.as_os_str().is_empty() => String::new(),
        Ok(below) => format!("{}/", below.display()),
        Err(_) => format!("{}/", to.display()),
    }
}
