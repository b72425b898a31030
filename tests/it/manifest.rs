//! Manifests: what is read, what is refused, and how errors look.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sweeper::manifest::{Diagnostics, Manifest, Overrides, Sources};

use crate::support::{REGISTRY, golden};

fn resolve(path: &Path, overrides: &Overrides) -> Result<Manifest, Diagnostics> {
    Manifest::resolve(&Sources::read(path)?, overrides, &REGISTRY)
}

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    paths.sort();
    paths
}

#[test]
fn bad_manifests_say_what_is_wrong() {
    let mut codes = BTreeSet::new();
    let mut wrong = Vec::new();
    let files = toml_files("tests/manifests/bad");
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let mut overrides = Overrides::new();
        overrides.deny_lints = text.starts_with("# deny");
        match resolve(path, &overrides) {
            Ok(_) => wrong.push(format!("{} is accepted", path.display())),
            Err(diagnostics) => {
                codes.extend(diagnostics.iter().map(|each| each.code.id()));
                let expected = path.with_extension("stderr");
                wrong.extend(golden(&expected, &diagnostics.to_string()).err());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 40, "{} bad manifests", files.len());
    assert!(codes.len() >= 25, "{} codes: {codes:?}", codes.len());
    println!("{} codes: {codes:?}", codes.len());
}
