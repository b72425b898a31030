//! The runs that a folder stands for.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Levels between a named folder and a run below it:
const DEPTH: usize = 4;

/// Files that mark a folder as a run's, or as a copy of a run's tables.
const OF_RUNS: [&str; 4] = [
    "journal.jsonl",
    "records.csv",
    "benchmark_full.csv",
    "exports/benchmark_full.csv",
];

/// Beginning of the names of folders of repeated runs, which lie in the first run's folder.
const ATTEMPT: &str = "attempt-";

/// True if a run, or a copy of its tables, is in this folder itself.
pub fn is_run(path: &Path) -> bool {
    OF_RUNS.iter().any(|file| path.join(file).is_file())
}

/// All runs below a folder, each once, by path. Of a run's own folders only its further attempts
/// are runs: its exports repeat its journal.
///
/// # Errors
/// If a folder can't be read.
pub fn runs_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut search = Search::default();
    search.enter(path, DEPTH)?;
    Ok(search.runs)
}

#[derive(Default)]
struct Search {
    runs: Vec<PathBuf>,
    /// Real paths: a link such as `latest` makes no second run.
    seen: BTreeSet<PathBuf>,
}

impl Search {
    fn enter(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        for folder in folders(path)? {
            if is_run(&folder) {
                self.add(&folder)?;
                let attempts = folders(&folder)?.into_iter();
                for attempt in attempts.filter(|path| is_attempt(path) && is_run(path)) {
                    self.add(&attempt)?;
                }
            } else if depth > 1 {
                self.enter(&folder, depth - 1)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, run: &Path) -> io::Result<()> {
        if self.seen.insert(fs::canonicalize(run)?) {
            self.runs.push(run.to_owned());
        }
        Ok(())
    }
}

fn is_attempt(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with(ATTEMPT)
}

/// The folders in a folder, by name.
fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(files: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = runs_below(folder.path()).unwrap();
        let name = |path: PathBuf| {
            let path = path.strip_prefix(folder.path()).unwrap().to_owned();
            path.to_string_lossy().into_owned()
        };
        found.into_iter().map(name).collect()
    }

    #[test]
    fn exports_of_a_run_are_no_runs_and_attempts_are() {
        let found = runs(&[
            "1/m-29/journal.jsonl",
            "1/m-29/exports/benchmark_full.csv",
            "1/m-29/exports/potentials=decomposed/benchmark_full.csv",
            "1/m-29/attempt-1/journal.jsonl",
            "1/m-29/attempt-1/exports/benchmark_full.csv",
            "1/m-29/attempt-2/environment.json",
            "1/m-29/report/tables/records.csv",
            "quick/2/quick-30/records.csv",
            "theirs/benchmark_full.csv",
            "else/notes.txt",
        ]);
        let expected = ["1/m-29", "1/m-29/attempt-1", "quick/2/quick-30", "theirs"];
        assert_eq!(found, expected);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_run_is_no_second_run() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("m-29");
        fs::create_dir(&run).unwrap();
        fs::write(run.join("journal.jsonl"), "").unwrap();
        std::os::unix::fs::symlink(&run, folder.path().join("latest")).unwrap();
        assert_eq!(runs_below(folder.path()).unwrap().len(), 1);
    }
}
