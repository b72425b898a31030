//! The source of a user's kernel with every file that it includes.
//!
//! Includes are resolved here and not by the compiler, so that the files that are hashed are those
//! that are compiled.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::named::{self, Named};
use sweeper_model::files;
use sweeper_model::identity::Digest;

/// A file of a user's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredFile {
    /// The name under which others include it.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl DeclaredFile {
    /// SHA-256 of its text.
    pub fn digest(&self) -> Digest {
        Digest::from_bytes(Sha256::digest(&self.text).into())
    }
}

/// A source file that a manifest names, with its includes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceClosure {
    /// The main file first.
    files: Vec<Included>,
    /// Quoted includes under no condition that no file was found for, each with the file that has
    /// it.
    missing: Vec<(String, String)>,
    /// Where includes are looked for, after the folder of the file that has them.
    folders: Vec<PathBuf>,
    /// Where the compiler looks for them by its options.
    places: Vec<PathBuf>,
    /// Files that it finds there or that its options name. It reads them where they lie.
    outside: Vec<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Included {
    path: PathBuf,
    /// The name in the directive; of the main file, its file name.
    written: String,
    text: String,
}

impl SourceClosure {
    /// Reads `main` and what it includes, from its own folder or from `folders`, and takes digests
    /// of what else it depends on by its text or the compiler's options.
    ///
    /// # Errors
    /// A sentence: a file that can't be read.
    pub fn read(main: &Path, folders: &[PathBuf], options: &[String]) -> Result<Self, String> {
        let (named, places) = named::in_options(options);
        let mut closure = SourceClosure {
            files: Vec::new(),
            missing: Vec::new(),
            folders: folders.to_vec(),
            places,
            outside: Vec::new(),
        };
        // Messages have the path as it was written.
        files::open(main).map_err(|error| format!("{}: {error}", main.display()))?;
        let name = main.file_name().unwrap_or_default().to_string_lossy();
        closure.add(normal(main), name.into_owned())?;
        named.into_iter().for_each(|path| closure.reach(path));
        closure.add_named();
        Ok(closure)
    }

    /// Adds a file that lies outside, and what it includes.
    fn reach(&mut self, path: PathBuf) {
        let path = normal(&path);
        if self.outside.contains(&path) || self.files.iter().any(|file| file.path == path) {
            return;
        }
        let text = files::read_to_string(&path).unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.outside.push(path);
        for Include { name, .. } in directives(&text) {
            let folders = std::iter::once(&folder).chain(&self.folders);
            let mut found = folders.chain(&self.places).map(|folder| folder.join(&name));
            if let Some(path) = found.find(|path| path.is_file()) {
                self.reach(path);
            }
        }
    }

    /// Adds digests of files outside, and of files and variables that texts name, as files beside
    /// the main one.
    fn add_named(&mut self) {
        let Some(main) = self.files.first().and_then(|file| file.path.parent()) else {
            return;
        };
        let main = main.to_owned();
        let outside = self.outside.iter();
        let outside = outside.filter_map(|path| named::of_file(path.to_str()?, path.clone()));
        let mut found: Vec<Named> = outside.collect();
        for file in &self.files {
            let own = file.path.parent().unwrap_or(&main);
            found.extend(named::in_text(&file.text, own, &main));
        }
        for named in found {
            let (path, there) = (main.join(&named.name), normal(&named.path));
            let mut files = self.files.iter();
            if !files.any(|file| file.path == path || file.path == there) {
                self.files.push(Included {
                    path,
                    written: named.name,
                    text: named.text,
                });
            }
        }
    }

    fn add(&mut self, path: PathBuf, written: String) -> Result<(), String> {
        let bytes = files::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| format!("{} is not UTF-8 text", path.display()))?;
        let includes = directives(&text);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        self.files.push(Included {
            path,
            written: written.clone(),
            text,
        });
        for Include {
            name,
            is_quoted,
            is_conditional,
        } in includes
        {
            let own = is_quoted.then(|| folder.join(&name));
            let elsewhere = self.folders.iter().map(|folder| folder.join(&name));
            let found = own.into_iter().chain(elsewhere).find(|path| path.is_file());
            match found.map(|path| normal(&path)) {
                Some(path) => {
                    let is_known = |file: &Included| file.path == path && file.written == name;
                    if !self.files.iter().any(is_known) {
                        self.add(path, name)?;
                    }
                }
                None => {
                    let mut outside = self.places.iter().map(|folder| folder.join(&name));
                    match outside.find(|path| path.is_file()) {
                        Some(path) => self.reach(path),
                        None if is_quoted && !is_conditional => {
                            self.missing.push((name, written.clone()));
                        }
                        // Headers of the system, and includes that the compiler may skip.
                        None => {}
                    }
                }
            }
        }
        Ok(())
    }

    /// A quoted include without a file, and the file that has it. Where a condition may hide one,
    /// the compiler says whether it is needed.
    pub fn missing(&self) -> Option<(&str, &str)> {
        let (name, from) = self.missing.first()?;
        Some((name, from))
    }

    /// A file that lies neither below the main file's folder nor below one of its folders of
    /// includes, by the name that it is included by.
    pub fn stray(&self) -> Option<&str> {
        let (main, others) = self.files.split_first()?;
        let own = main.path.parent().unwrap_or(Path::new(""));
        let folders = self.folders.iter().map(|folder| normal(folder));
        let allowed: Vec<PathBuf> = folders.chain([own.to_owned()]).collect();
        let is_stray = |file: &&Included| {
            let mut allowed = allowed.iter();
            !allowed.any(|folder| file.path.starts_with(folder))
        };
        others.iter().find(is_stray).map(|file| &*file.written)
    }

    /// The files as NVRTC takes them, under the names that directives have.
    ///
    /// # Errors
    /// One name for two files.
    pub fn by_directive(&self) -> Result<Vec<DeclaredFile>, String> {
        let mut named: BTreeMap<&str, &Path> = BTreeMap::new();
        let mut files = Vec::new();
        for file in &self.files {
            match named.insert(&file.written, &file.path) {
                None => files.push(DeclaredFile {
                    name: file.written.clone(),
                    text: file.text.clone(),
                }),
                Some(other) if other == file.path => {}
                Some(other) => {
                    return Err(format!(
                        "`{}` is {} in one file and {} in another, and NVRTC knows one file of a \
                         name: include one of them by another path",
                        file.written,
                        other.display(),
                        file.path.display()
                    ));
                }
            }
        }
        Ok(files)
    }

    /// The files at their paths below the folder that holds all of them, and the folders of
    /// includes, of which the first is `.` where it is that folder.
    pub fn by_path(&self) -> (Vec<DeclaredFile>, Vec<String>) {
        let folder = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        let mut root = self
            .files
            .first()
            .map_or_else(PathBuf::new, |file| folder(&file.path));
        for file in &self.files {
            while !file.path.starts_with(&root) {
                root = folder(&root);
            }
        }
        let below = |path: &Path| {
            let relative = path.strip_prefix(&root).unwrap_or(path);
            relative.to_string_lossy().into_owned()
        };
        let mut files: Vec<DeclaredFile> = Vec::new();
        for file in &self.files {
            let name = below(&file.path);
            if !files.iter().any(|held| held.name == name) {
                files.push(DeclaredFile {
                    name,
                    text: file.text.clone(),
                });
            }
        }
        let folders = self.folders.iter().map(|folder| normal(folder));
        let folders = folders.filter(|folder| folder.starts_with(&root));
        let folders = folders.map(|folder| match below(&folder).as_str() {
            "" => ".".to_owned(),
            folder => folder.to_owned(),
        });
        let folders = folders.collect();
        (files, folders)
    }
}

/// An absolute path without `.` and `..`, as text.
fn normal(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

/// An `#include` directive.
#[derive(Debug, PartialEq, Eq)]
struct Include {
    name: String,
    is_quoted: bool,
    /// Within an `#if` or a comment, but for a header's guard.
    is_conditional: bool,
}

/// The include directives of a text.
fn directives(text: &str) -> Vec<Include> {
    let mut found = Vec::new();
    // Open conditions: whether each is a header's guard.
    let mut guards: Vec<bool> = Vec::new();
    // A name that the directive before this one asked to be undefined.
    let mut undefined: Option<&str> = None;
    let mut is_comment = false;
    for line in text.lines().map(str::trim) {
        if let Some(directive) = line.strip_prefix('#') {
            let (word, rest) = split_word(directive.trim_start());
            let is_guard = word == "define" && undefined == Some(split_word(rest).0);
            match word {
                "if" | "ifdef" | "ifndef" => guards.push(false),
                "endif" => drop(guards.pop()),
                "include" => {
                    let is_conditional = is_comment || guards.contains(&false);
                    found.extend(include(rest, is_conditional));
                }
                // Of a guard there is one branch.
                "else" | "elif" | "define" => {
                    if let Some(last) = guards.last_mut() {
                        *last = is_guard || *last && word == "define";
                    }
                }
                _ => {}
            }
            undefined = asked_to_be_undefined(word, rest);
        }
        is_comment = match (line.rfind("/*"), line.rfind("*/")) {
            (Some(opened), closed) => closed.is_none_or(|closed| closed < opened),
            (None, Some(_)) => false,
            (None, None) => is_comment,
        };
    }
    found
}

/// `"NAME"` or `<NAME>`.
fn include(rest: &str, is_conditional: bool) -> Option<Include> {
    let (close, is_quoted) = match rest.chars().next()? {
        '"' => ('"', true),
        '<' => ('>', false),
        _ => return None,
    };
    let (name, _) = rest[1..].split_once(close)?;
    Some(Include {
        name: name.to_owned(),
        is_quoted,
        is_conditional,
    })
}

/// The name of `#ifndef NAME` or `#if !defined(NAME)`.
fn asked_to_be_undefined<'a>(word: &str, rest: &'a str) -> Option<&'a str> {
    let name = match word {
        "ifndef" => rest,
        "if" => {
            let rest = rest.strip_prefix('!')?.trim_start();
            let rest = rest.strip_prefix("defined")?.trim_start();
            rest.strip_prefix('(').unwrap_or(rest).trim_start()
        }
        _ => return None,
    };
    Some(split_word(name).0)
}

/// A leading word, and what follows it after blanks.
fn split_word(text: &str) -> (&str, &str) {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let end = text.find(|c| !is_of_word(c)).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_found_and_keep_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "k/main.cu",
            "#include \"a.h\"\n# include <lib/b.h>\n#include <math.h>\n",
        );
        write("k/a.h", "#include \"../common/c.h\"\n#include \"gone.h\"\n");
        write("common/c.h", "");
        write("include/lib/b.h", "#include \"../../common/c.h\"\n");
        let main = folder.path().join("k/main.cu");
        let closure = SourceClosure::read(&main, &[folder.path().join("include")], &[]).unwrap();
        let names = |files: Vec<DeclaredFile>| -> Vec<String> {
            files.into_iter().map(|file| file.name).collect()
        };
        assert_eq!(
            names(closure.by_directive().unwrap()),
            [
                "main.cu",
                "a.h",
                "../common/c.h",
                "lib/b.h",
                "../../common/c.h"
            ]
        );
        let (files, folders) = closure.by_path();
        assert_eq!(
            names(files),
            ["k/main.cu", "k/a.h", "common/c.h", "include/lib/b.h"]
        );
        assert_eq!(folders, ["include"]);
        assert_eq!(closure.missing(), Some(("gone.h", "a.h")));
    }

    #[test]
    fn one_name_for_two_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("main.cu", "#include \"a/a.h\"\n#include \"x.h\"\n"),
            ("x.h", ""),
            ("a/a.h", "#include \"x.h\"\n"),
            ("a/x.h", ""),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let closure = SourceClosure::read(&folder.path().join("main.cu"), &[], &[]).unwrap();
        let reason = closure.by_directive().unwrap_err();
        assert!(reason.starts_with("`x.h` is "), "{reason}");
    }

    #[test]
    fn only_includes_under_no_condition_must_be_there() {
        let text = r#"
#ifndef GUARD_H
#define GUARD_H
#include "always.h"
#ifdef __HIP__
#  include "hip.h"
#else
#  include "cuda.h"
#endif
/* was
#include "old.h"
*/
#include <system.h>
#endif
#if !defined(OTHER)
#include "of_other.h"
#endif
"#;
        let found = directives(text).into_iter();
        let found: Vec<_> = found.map(|one| (one.name, one.is_conditional)).collect();
        let expected = [
            ("always.h", false),
            ("hip.h", true),
            ("cuda.h", true),
            ("old.h", true),
            ("system.h", false),
            ("of_other.h", true),
        ];
        assert_eq!(found, expected.map(|(name, is)| (name.to_owned(), is)));
        // Another branch is not part of a guard.
        let text = "#ifndef A\n#define A\n#else\n#include \"a.h\"\n#endif";
        assert!(directives(text)[0].is_conditional);
    }
}
