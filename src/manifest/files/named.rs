//! Files and variables that sources name beside their modules and includes: in quotes, or in
//! options of a compiler. Results depend on them, so that they stand among the sources.

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use sweeper_model::files;

/// What stands before the name of a variable that is read.
const GETTERS: [&str; 4] = ["getenv(", "environ[", "environ.get(", "environb["];

/// Variables of a user or a job, by which nobody computes, and folders, by their last words.
const PLACES: [&str; 8] = [
    "HOME", "PATH", "PWD", "TMPDIR", "USER", "_DIR", "HOSTNAME", "DEVICES",
];

/// First words of functions that write the file that they are given.
const WRITERS: [&str; 4] = ["save", "write", "to_", "dump"];

/// Files that change by themselves.
const OF_THE_SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// The longest path that is looked for.
const MOST_BYTES: usize = 400;

/// A larger file is not copied to a run.
const MOST_COPIED_BYTES: u64 = 64 << 10;

/// Of a larger file the size and the times are digested.
const MOST_READ_BYTES: u64 = 1 << 30;

/// Texts of strangers may name any number of files.
const MOST_NAMES: usize = 1000;

/// A file or a variable.
pub(crate) struct Named {
    /// Its name beside a source, which is that of the file only if the text is.
    pub(crate) name: String,
    /// A file's text where it lies beside the source and is short, or a digest.
    pub(crate) text: String,
    /// The file.
    pub(crate) path: PathBuf,
}

/// What a text of a folder names. Files are looked for there, beside the source, and in the current
/// folder.
pub(crate) fn in_text(text: &str, own: &Path, source: &Path) -> Vec<Named> {
    let mut found: Vec<Named> = Vec::new();
    let mut words = BTreeSet::new();
    for line in text.lines() {
        for quote in ['"', '\''] {
            let quotes: Vec<usize> = line.match_indices(quote).map(|(at, _)| at).collect();
            for pair in quotes.windows(2) {
                let before = line[..pair[0]].trim_end();
                let (word, after) = (&line[pair[0] + 1..pair[1]], &line[pair[1] + 1..]);
                let word = word.trim_end_matches('\\');
                if found.len() > MOST_NAMES || !words.insert(word) {
                    continue;
                }
                let is_variable = GETTERS.iter().any(|getter| before.ends_with(getter));
                found.extend(match is_variable {
                    true => variable(word),
                    false if is_written(before, after) => None,
                    false => file(word, own, source),
                });
            }
        }
    }
    found
}

/// A variable that is set.
fn variable(name: &str) -> Option<Named> {
    let is_place = PLACES.iter().any(|end| name.ends_with(end)) || name.starts_with("SLURM");
    let value = env::var_os(name).filter(|_| !is_place)?;
    Some(Named {
        name: format!("${name}"),
        text: hex::encode(Sha256::digest(value.as_encoded_bytes())),
        path: PathBuf::new(),
    })
}

fn file(word: &str, own: &Path, source: &Path) -> Option<Named> {
    if !word.contains(['.', '/']) || word.contains('\0') || word.len() > MOST_BYTES {
        return None;
    }
    let folders = [own, source, Path::new("")].into_iter();
    let path = folders
        .map(|folder| folder.join(word))
        .find(|path| is_there(path))?;
    let is_beside = !word.starts_with('/') && !word.contains("..") && path == source.join(word);
    let is_short = path.metadata().ok()?.len() <= MOST_COPIED_BYTES;
    match files::read_to_string(&path) {
        Ok(text) if is_beside && is_short => {
            let name = word.to_owned();
            Some(Named { name, text, path })
        }
        _ => of_file(word, path),
    }
}

fn is_there(path: &Path) -> bool {
    path.is_file() && !OF_THE_SYSTEM.iter().any(|system| path.starts_with(system))
}

/// The digest of a file that is known by this path.
pub(crate) fn of_file(word: &str, path: PathBuf) -> Option<Named> {
    let metadata = path.metadata().ok()?;
    let text = match metadata.len() > MOST_READ_BYTES {
        true => hex::encode(Sha256::digest(files::stamp(&metadata))),
        false => files::digest(&path).ok()?.hex(),
    };
    let parts = word.split('/').filter(|part| !["", "."].contains(part));
    let parts = parts.map(|part| if part == ".." { "up" } else { part });
    let name = parts.collect::<Vec<_>>().join("/") + ".sha256";
    Some(Named { name, text, path })
}

/// Whether a path between these texts is one that is written.
fn is_written(before: &str, after: &str) -> bool {
    let function = before.strip_suffix('(').unwrap_or_default();
    let function = function.rsplit(|c: char| c != '_' && !c.is_alphanumeric());
    let function = function.into_iter().next().unwrap_or_default();
    // The mode of `open(PATH, "w")`, or of `open(join(FOLDER, PATH), "w")`.
    let mode = after.trim_start().trim_start_matches([')', ' ']);
    let mode = mode.strip_prefix(',').unwrap_or_default().trim_start();
    let mode = mode.strip_prefix("mode=").unwrap_or(mode);
    let is_mode = |mode: &str| mode.starts_with(['w', 'a', 'x']);
    WRITERS.iter().any(|word| function.starts_with(word))
        || mode.strip_prefix(['"', '\'']).is_some_and(is_mode)
}

/// Files and folders that options of a compiler name by absolute paths, and files of libraries in
/// these folders.
pub(crate) fn in_options(options: &[String]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let parts = options.iter().flat_map(|option| option.split([',', '=']));
    let paths = parts.filter_map(|part| Some(PathBuf::from(&part[part.find('/')?..])));
    let (folders, mut found): (Vec<_>, Vec<_>) = paths.partition(|path| path.is_dir());
    for name in options
        .iter()
        .filter_map(|option| option.strip_prefix("-l"))
    {
        let files = ["so", "a"].map(|kind| format!("lib{name}.{kind}"));
        found.extend(
            folders
                .iter()
                .flat_map(|folder| files.iter().map(|file| folder.join(file))),
        );
    }
    found.retain(|path| is_there(path));
    (found, folders)
}
