//! Where NVIDIA's libraries may be: named by the user, in a toolkit, or in packages of Python.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Names a list of folders that are looked into before all others, separated as in `PATH`.
pub const FOLDERS_VARIABLE: &str = "SWEEPER_CUDA_LIBS";

/// Folders to look into, the likeliest first, each once.
pub fn folders() -> Vec<PathBuf> {
    let mut found = variable(FOLDERS_VARIABLE);
    let mut toolkits: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .flat_map(variable)
        .collect();
    toolkits.extend(children(Path::new("/usr/local"), "cuda"));
    let arch = env::consts::ARCH;
    for toolkit in toolkits {
        found.push(toolkit.join(format!("targets/{arch}-linux/lib")));
        found.push(toolkit.join("lib64"));
    }
    found.extend(variable("LD_LIBRARY_PATH"));
    found.push(PathBuf::from(format!("/usr/lib/{arch}-linux-gnu")));
    found.push(PathBuf::from("/usr/lib64"));
    for prefix in python_prefixes() {
        found.extend(packages(&prefix));
    }
    let mut seen = BTreeSet::new();
    found.retain(|folder| seen.insert(folder.clone()));
    found
}

/// Installations of Python: the active ones, that of `python3` on the search path, the usual ones.
fn python_prefixes() -> Vec<PathBuf> {
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .flat_map(variable)
        .collect();
    let python = variable("PATH")
        .into_iter()
        .map(|folder| folder.join("python3"))
        .find(|path| path.is_file());
    if let Some(python) = python {
        // A virtual environment's own folder first, then where its `python3` leads to.
        let real = fs::canonicalize(&python).ok();
        let programs = [Some(python), real];
        let prefix = |program: PathBuf| Some(program.parent()?.parent()?.to_owned());
        prefixes.extend(programs.into_iter().flatten().filter_map(prefix));
    }
    prefixes.extend(variable("HOME").iter().map(|home| home.join(".local")));
    prefixes.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
    prefixes
}

/// The libraries' folders of NVIDIA's packages in one installation of Python.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for python in children(&prefix.join("lib"), "python3") {
        for packages in ["site-packages", "dist-packages"] {
            let all = children(&python.join(packages).join("nvidia"), "");
            found.extend(all.into_iter().map(|package| package.join("lib")));
        }
    }
    found.retain(|folder| folder.is_dir());
    found
}

fn variable(name: &str) -> Vec<PathBuf> {
    let value = env::var_os(name).unwrap_or_default();
    env::split_paths(&value)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// The entries of `parent` whose names start with `prefix`, the last name first: newer versions.
pub fn children(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_python_are_found_newer_first() {
        let prefix = tempfile::tempdir().unwrap();
        let lib = |version: &str, package: &str| {
            let folder = prefix.path().join(format!(
                "lib/python3.{version}/site-packages/nvidia/{package}/lib"
            ));
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let expected = [
            lib("12", "cu13"),
            lib("12", "cu12"),
            lib("11", "cuda_nvrtc"),
        ];
        assert_eq!(packages(prefix.path()), expected);
        assert!(packages(Path::new("/nowhere")).is_empty());
    }
}
