//! Digests of the sources, for run ids: results of different programs are never taken for the same.
//!
//! Rust is digested by its tokens: a run that was interrupted goes on after a comment was mended.

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use sha2::{Digest, Sha256};

fn main() {
    let engine = digest(&["src", "cache/src", "Cargo.lock"]);
    let kernels = digest(&[
        "kernels/program/src",
        "kernels/compiler/src",
        "kernels/workloads/src",
    ]);
    println!("cargo::rustc-env=SWEEPER_ENGINE_DIGEST={engine}");
    println!("cargo::rustc-env=SWEEPER_KERNELS_DIGEST={kernels}");
}

/// SHA-256 over names and contents of all files below `roots`, by name; of Rust over its tokens.
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
        let mut content = fs::read(&file).unwrap_or_default();
        if file.extension().is_some_and(|extension| extension == "rs")
            && let Some(tokens) = std::str::from_utf8(&content).ok().and_then(tokens)
        {
            content = tokens.into_bytes();
        }
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

/// The tokens of a Rust source without comments, documentation and layout; none if the text is no
/// Rust.
pub(crate) fn tokens(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    write(text.parse().ok()?, &mut out);
    Some(out)
}

fn write(stream: TokenStream, out: &mut String) {
    let trees: Vec<TokenTree> = stream.into_iter().collect();
    let mut rest = &trees[..];
    while let [tree, after @ ..] = rest {
        if let Some(after) = after_documentation(rest) {
            rest = after;
            continue;
        }
        match tree {
            TokenTree::Group(group) => {
                out.push_str(&format!(" {:?}", group.delimiter()));
                write(group.stream(), out);
                out.push_str(" end");
            }
            tree => out.push_str(&format!(" {tree}")),
        }
        rest = after;
    }
}

/// The tokens after `#[doc = ...]` or `#![doc = ...]`, which documentation comments are read as.
fn after_documentation(trees: &[TokenTree]) -> Option<&[TokenTree]> {
    let is =
        |tree: &TokenTree, mark: char| matches!(tree, TokenTree::Punct(it) if it.as_char() == mark);
    let (attribute, after) = match trees {
        [hash, TokenTree::Group(group), after @ ..] if is(hash, '#') => (group, after),
        [hash, bang, TokenTree::Group(group), after @ ..] if is(hash, '#') && is(bang, '!') => {
            (group, after)
        }
        _ => return None,
    };
    let first = attribute.stream().into_iter().next()?;
    matches!(first, TokenTree::Ident(name) if name == "doc").then_some(after)
}
