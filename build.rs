//! Digests of the sources, for run ids: results of different programs are never taken for the same.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn main() {
    let engine = digest(&["src", "cache/src", "Cargo.lock"]);
    let kernels = digest(&["kernels/src"]);
    println!("cargo::rustc-env=SWEEPER_ENGINE_DIGEST={engine}");
    println!("cargo::rustc-env=SWEEPER_KERNELS_DIGEST={kernels}");
}

/// SHA-256 over names and contents of all files below `roots`, by name.
fn digest(roots: &[&str]) -> String {
    let mut files = Vec::new();
    for root in roots {
        println!("cargo::rerun-if-changed={root}");
        collect(Path::new(root), &mut files);
    }
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let name = file.to_string_lossy();
        let content = fs::read(&file).unwrap_or_default();
        for field in [name.as_bytes(), &content] {
            hasher.update((field.len() as u64).to_le_bytes());
            hasher.update(field);
        }
    }
    hex::encode(hasher.finalize())
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(path) else {
        files.push(path.to_owned());
        return;
    };
    for entry in entries.flatten() {
        collect(&entry.path(), files);
    }
}
