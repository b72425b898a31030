//! `sweeper new`: a manifest to start from, written from a kernel's signature.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use crate::declared::declaration::DeclaredLanguage;
use crate::declared::draft;
use crate::declared::signature::{Signature, signatures};
use crate::files;
use crate::manifest::objection;

/// Arguments of `new`.
#[derive(Args)]
pub struct NewArgs {
    /// The source of a kernel: FILE.cu or FILE.c
    source: PathBuf,
    /// The function, where the source has several
    #[arg(long)]
    entry: Option<String>,
    /// The file to write; it must not exist. Beside the source by default
    #[arg(long, short)]
    output: Option<PathBuf>,
}

/// Writes a manifest for a kernel.
pub fn new(args: &NewArgs, screen: &Screen) -> Exit {
    let (text, path) = match manifest(args) {
        Ok(made) => made,
        Err((exit, message)) => {
            screen.error(&message);
            return exit;
        }
    };
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    let shown = path.display();
    match written {
        Ok(()) if screen.json => screen.json(&json!({ "wrote": path })),
        Ok(()) => screen.line(&format!(
            "wrote {shown}; its guesses are marked with `?`; next: sweeper check {shown}"
        )),
        Err(error) => {
            screen.error(&format!("{shown}: {error}"));
            return Exit::Files;
        }
    }
    Exit::Fine
}

/// The text of the manifest, and where it goes.
fn manifest(args: &NewArgs) -> Result<(String, PathBuf), (Exit, String)> {
    let shown = args.source.display();
    let language = match args.source.extension().and_then(|it| it.to_str()) {
        Some("cu" | "cuh") => DeclaredLanguage::Cuda,
        Some("c") => DeclaredLanguage::C,
        _ => {
            let message = format!("{shown}: a source in CUDA ends with .cu, in C with .c");
            return Err((Exit::Usage, message));
        }
    };
    let text = files::read_to_string(&args.source)
        .map_err(|error| (Exit::Files, format!("{shown}: {error}")))?;
    let signature = chosen(&signatures(&text, language), args)
        .map_err(|message| (Exit::Usage, format!("{shown}: {message}")))?;
    let signature = nameable(signature);
    let path = match &args.output {
        Some(path) => path.clone(),
        None => args.source.with_extension("toml"),
    };
    // A file's name alone has an empty folder, which no system call knows.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let source = relative(&args.source, folder);
    let text = draft::manifest(&source.to_string_lossy(), &signature, language);
    Ok((text, path))
}

/// The function that was asked for, or the only one.
fn chosen(found: &[Signature], args: &NewArgs) -> Result<Signature, String> {
    let names: Vec<&str> = found.iter().map(|it| &*it.name).collect();
    match (&args.entry, found) {
        (_, []) => Err("no kernel in it has a body".to_owned()),
        (None, [one]) => Ok(one.clone()),
        (None, _) => Err(format!(
            "it has several functions: --entry {}",
            names.join(" or ")
        )),
        (Some(entry), _) => {
            let one = found.iter().find(|it| it.name == *entry);
            one.cloned()
                .ok_or_else(|| format!("no function `{entry}`, only {}", names.join(", ")))
        }
    }
}

/// A signature whose parameters have names that a manifest can give: not `in`, which means
/// something else in expressions.
fn nameable(mut signature: Signature) -> Signature {
    let mut given = BTreeSet::new();
    for (at, parameter) in signature.parameters.iter_mut().enumerate() {
        let is_plain = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if !parameter.name.chars().all(is_plain) {
            parameter.name = format!("arg{at}");
        }
        while objection(&parameter.name).is_some() || given.contains(&parameter.name) {
            parameter.name.push('_');
        }
        given.insert(parameter.name.clone());
    }
    signature
}

/// A source as a manifest in `folder` names it.
fn relative(source: &Path, folder: &Path) -> PathBuf {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (source, folder) = (absolute(source), absolute(folder));
    match source.strip_prefix(&folder) {
        Ok(below) => below.to_owned(),
        Err(_) => source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_beside_the_manifest_is_named_by_its_name() {
        let shown = |source: &str, folder: &str| {
            let folder = Path::new(folder);
            relative(Path::new(source), folder).display().to_string()
        };
        assert_eq!(shown("axpy.c", "."), "axpy.c");
        assert_eq!(shown("kernels/axpy.c", "kernels"), "axpy.c");
        assert_eq!(shown("kernels/axpy.c", "."), "kernels/axpy.c");
        assert_eq!(shown("/a/b.c", "/c"), "/a/b.c");
        let args = NewArgs {
            source: PathBuf::from("tests/manifests/declared/add.c"),
            entry: None,
            output: Some(PathBuf::from("draft.toml")),
        };
        let (text, _) = manifest(&args).unwrap();
        let named = "c        = \"tests/manifests/declared/add.c\"";
        assert!(text.contains(named), "{text}");
    }
}
