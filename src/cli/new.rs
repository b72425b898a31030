//! `sweeper new`: a manifest to start from, written from the signature of a kernel or a function.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::examples;
use super::exit::Exit;
use super::screen::Screen;
use sweeper_manifest::objection;
use sweeper_manifest::user::declaration::DeclaredLanguage;
use sweeper_manifest::user::draft;
use sweeper_manifest::user::python::draft as python;
use sweeper_manifest::user::signature::{Signature, signatures};
use sweeper_model::files;

/// Arguments of `new`.
#[derive(Args)]
pub struct NewArgs {
    /// The source of a kernel, FILE.cu or FILE.c, or of functions in Python, FILE.py
    source: PathBuf,
    /// One of several functions; without it all that take the arguments of the first are compared
    #[arg(long)]
    entry: Option<String>,
    /// The file to write; it must not exist. Beside the source by default
    #[arg(long, short)]
    output: Option<PathBuf>,
}

impl NewArgs {
    /// Those of a source alone.
    pub(super) fn new(source: PathBuf) -> Self {
        NewArgs {
            source,
            entry: None,
            output: None,
        }
    }
}

/// Writes a manifest for a kernel.
pub fn new(args: &NewArgs, screen: &Screen) -> Exit {
    let (text, path, left_out) = match manifest(args) {
        Ok(made) => made,
        Err((exit, message)) => {
            screen.error(&message);
            return exit;
        }
    };
    let written = examples::create(&path, &text, screen);
    let shown = path.display();
    if let Some(left_out) = left_out {
        screen.note(&left_out);
    }
    match written {
        Ok(()) if screen.json => screen.json(&json!({ "wrote": path })),
        Ok(()) => screen.line(&format!(
            "wrote {shown}; its guesses are marked with `?`; next: sweeper check {shown}"
        )),
        Err(exit) => return exit,
    }
    Exit::Fine
}

/// The text of the manifest, where it goes, and what is left out.
fn manifest(args: &NewArgs) -> Result<(String, PathBuf, Option<String>), (Exit, String)> {
    let shown = args.source.display();
    if args.source.extension().is_some_and(|it| it == "py") {
        return manifest_of_functions(args);
    }
    let language = match args.source.extension().and_then(|it| it.to_str()) {
        Some("cu" | "cuh") => DeclaredLanguage::Cuda,
        Some("c") => DeclaredLanguage::C,
        _ => {
            let message = format!(
                "{shown}: a source in CUDA ends with .cu, in C with .c, in Python with .py"
            );
            return Err((Exit::Usage, message));
        }
    };
    let text = files::read_to_string(&args.source)
        .map_err(|error| (Exit::Files, format!("{shown}: {error}")))?;
    let found = signatures(&text, language);
    let signature =
        chosen(&found, args).map_err(|message| (Exit::Usage, format!("{shown}: {message}")))?;
    // Functions that take the same arguments are backends of one workload.
    let others = found
        .iter()
        .filter(|it| args.entry.is_none() && it.name != signature.name);
    let (others, unlike): (Vec<_>, Vec<_>) =
        others.partition(|it| it.template.is_empty() && it.takes_what(&signature));
    let left_out = left_out(&signature.name, unlike.iter().map(|it| &*it.name));
    let others: Vec<String> = others.iter().map(|it| it.name.clone()).collect();
    let signature = nameable(signature);
    let (path, source) = places(args);
    let text = draft::manifest((&source, &text), (&signature, &others), language);
    Ok((text, path, left_out))
}

/// As [`manifest`], for functions in Python.
fn manifest_of_functions(
    args: &NewArgs,
) -> Result<(String, PathBuf, Option<String>), (Exit, String)> {
    let shown = args.source.display();
    let text = files::read_to_string(&args.source)
        .map_err(|error| (Exit::Files, format!("{shown}: {error}")))?;
    let found = python::functions(&text);
    let names: Vec<&str> = found.iter().map(|it| &*it.name).collect();
    let chosen = match &args.entry {
        Some(entry) => found.iter().find(|it| it.name == *entry),
        None => found.first(),
    };
    let Some(chosen) = chosen else {
        let message = match &args.entry {
            Some(entry) if !names.is_empty() => {
                format!("no function `{entry}`, only {}", names.join(", "))
            }
            _ => "it has no function at its top level that takes an array".to_owned(),
        };
        return Err((Exit::Usage, format!("{shown}: {message}")));
    };
    let others = found
        .iter()
        .filter(|it| args.entry.is_none() && it.name != chosen.name);
    let (others, unlike): (Vec<_>, Vec<_>) = others.partition(|it| it.takes_what(chosen));
    let left_out = left_out(&chosen.name, unlike.iter().map(|it| &*it.name));
    let others: Vec<String> = others.iter().map(|it| it.name.clone()).collect();
    let (path, source) = places(args);
    let text = python::manifest(&source, &text, chosen, &others);
    Ok((text, path, left_out))
}

/// What is said of functions that take other arguments than the first.
fn left_out<'n>(first: &str, unlike: impl Iterator<Item = &'n str>) -> Option<String> {
    let names: Vec<&str> = unlike.collect();
    (!names.is_empty()).then(|| {
        format!(
            "left out, since they take other arguments than `{first}`: {} (--entry NAME takes one)",
            names.join(" ")
        )
    })
}

/// Where the manifest goes, and how it names the source.
fn places(args: &NewArgs) -> (PathBuf, String) {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => args.source.with_extension("toml"),
    };
    // A file's name alone has an empty folder, which no system call knows.
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let source = relative(&args.source, folder);
    let source = source.to_string_lossy().into_owned();
    (path, source)
}

/// The function that was asked for, or the first one.
fn chosen(found: &[Signature], args: &NewArgs) -> Result<Signature, String> {
    let names: Vec<&str> = found.iter().map(|it| &*it.name).collect();
    match (&args.entry, found) {
        (_, []) => Err("no kernel in it has a body".to_owned()),
        (None, [first, ..]) => Ok(first.clone()),
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
        let name = &parameter.name;
        let has_letter_first = name.starts_with(|c: char| is_plain(c) && !c.is_ascii_digit());
        if !has_letter_first || !name.chars().all(is_plain) {
            parameter.name = format!("arg{at}");
        }
        // A word that means something else does not with a `_` more.
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
    use sweeper_program::rounding::mixed;

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
        let (text, ..) = manifest(&args).unwrap();
        let named = "c        = \"tests/manifests/declared/add.c\"";
        assert!(text.contains(named), "{text}");
    }

    /// Nothing that can stand in a source keeps a draft from an end, or is structure in it.
    #[test]
    fn any_source_becomes_a_manifest() {
        let words = [
            "void f",
            "(",
            ")",
            "{",
            "}",
            "int n",
            " = 1",
            ",",
            "*",
            "[",
            "]",
            "static ",
            "if ",
            "float x",
            "#define x\n",
            "/*",
            "*/",
            "//",
            "\n",
            "__global__ ",
            "template <",
            ">",
            "é",
            "\u{0}",
            "\"",
            "const ",
            "1",
        ];
        let mut drafts = 0;
        for seed in 0..20_000u64 {
            let word = |at: u64| words[(mixed(seed * 64 + at) % words.len() as u64) as usize];
            let parameters: String = (0..seed % 12).map(word).collect();
            let rest: String = (12..12 + seed % 30).map(word).collect();
            let text = format!("__global__ void f({parameters}) {{ {rest} }}{rest}");
            for language in [DeclaredLanguage::C, DeclaredLanguage::Cuda] {
                for found in signatures(&text, language) {
                    let source = (sweeper_model::toml_text::HOSTILE[seed as usize % 6], &*text);
                    let draft = draft::manifest(source, (&nameable(found), &[]), language);
                    let read: Result<toml::Table, _> = draft.parse();
                    let read = read.unwrap_or_else(|error| panic!("{error}\n{text}\n{draft}"));
                    assert!(!read.contains_key("pwned"), "{draft}");
                    drafts += 1;
                }
            }
        }
        assert!(drafts > 1000, "{drafts}");
    }
}
