//! A source in Python with the modules of the user that it imports.
//!
//! Imports are found by reading the text, not by executing it: modules that are found in the folder
//! of the main file, or in the folders of `[python] path`, are the user's. All others are of the
//! language or of installed packages, which are known by their versions.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::includes::DeclaredFile;
use super::named::{self, Named};
use sweeper_model::files;
use sweeper_model::word::Word;

/// More modules than this are a package that should be installed.
const MOST_FILES: usize = 2000;

/// The files of a source, the main one first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonFiles {
    /// The files.
    pub files: Vec<PythonFile>,
    /// The folder that the main file's name is relative to: its own, or the one from which its
    /// module is imported.
    pub folder: PathBuf,
    /// The name by which the main file is imported as a module; none where it is a file of its own.
    pub module: Option<String>,
    /// Names of all modules that the main file imports.
    imports: Vec<String>,
}

/// A file of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonFile {
    /// The module's name, with dots; of the main file, its own without the ending.
    pub module: String,
    /// Its path below the folder that it was found in.
    pub name: String,
    /// That folder, where it is not that of the main file; part of no identity.
    pub folder: String,
    /// Its text.
    pub text: String,
}

/// A library of arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArrayLibrary {
    /// NumPy, on CPUs.
    Numpy,
    /// PyTorch.
    Torch,
    /// CuPy, on GPUs.
    Cupy,
    /// JAX.
    Jax,
}

impl Word for ArrayLibrary {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("numpy", ArrayLibrary::Numpy),
        ("torch", ArrayLibrary::Torch),
        ("cupy", ArrayLibrary::Cupy),
        ("jax", ArrayLibrary::Jax),
    ];
}

impl PythonFiles {
    /// Reads `main`, and the modules that it imports from its own folder or from `folders`.
    ///
    /// # Errors
    /// A sentence: a file that can't be read.
    pub fn read(main: &Path, folders: &[PathBuf]) -> Result<Self, String> {
        let absolute = std::path::absolute(main).unwrap_or_else(|_| main.to_owned());
        let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        let stem = absolute.file_stem().unwrap_or_default().to_string_lossy();
        let name = absolute.file_name().unwrap_or_default().to_string_lossy();
        let text = read(main)?;
        let imports = imports(&text, "");
        let mut found = PythonFiles {
            files: vec![PythonFile {
                module: stem.into_owned(),
                name: name.into_owned(),
                folder: String::new(),
                text,
            }],
            folder: folder.clone(),
            module: None,
            imports: imports.clone(),
        };
        found.add_imports(imports, &all_absolute(&folder, folders))?;
        found.add_named();
        Ok(found)
    }

    /// Reads the module of this name, with the modules that it imports, from the first of the
    /// folders that has it. None where it is in none of them: then it is one of an installed
    /// package.
    ///
    /// # Errors
    /// As [`PythonFiles::read`].
    pub fn read_module(name: &str, folders: &[PathBuf]) -> Option<Result<Self, String>> {
        let folder = folders
            .iter()
            .find(|folder| names_of_file(name).any(|file| folder.join(file).is_file()))?;
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        let mut found = PythonFiles {
            files: Vec::new(),
            module: Some(name.to_owned()),
            imports: Vec::new(),
            folder,
        };
        let folders = all_absolute(&found.folder, folders);
        let mut imports = VecDeque::new();
        let read = found.add(name, &folders, &mut imports);
        found.imports = imports.iter().cloned().collect();
        // The packages around it are executed before it.
        imports.push_front(name.to_owned());
        let read = read.and_then(|()| found.add_imports(imports.into(), &folders));
        Some(read.map(|()| {
            found.add_named();
            found
        }))
    }

    /// Adds digests of files and variables that the texts name, as files that nobody imports.
    fn add_named(&mut self) {
        let mut found = Vec::new();
        for file in &self.files {
            let path = Path::new(&file.folder).join(&file.name);
            let path = self.folder.join(path);
            let own = path.parent().unwrap_or(&self.folder);
            found.extend(named::in_text(&file.text, own, &self.folder));
        }
        for Named { name, text, .. } in found {
            if !self.files.iter().any(|file| file.name == name) {
                self.files.push(PythonFile {
                    module: name.clone(),
                    name,
                    folder: String::new(),
                    text,
                });
            }
        }
    }

    fn add_imports(&mut self, imports: Vec<String>, folders: &[PathBuf]) -> Result<(), String> {
        let mut open: VecDeque<String> = imports.into();
        while let Some(module) = open.pop_front() {
            // A module of a package executes the package first, and packages around it.
            for (at, _) in module.match_indices('.') {
                self.add(&module[..at], folders, &mut open)?;
            }
            self.add(&module, folders, &mut open)?;
            if self.files.len() > MOST_FILES {
                return Err(format!("it imports more than {MOST_FILES} files"));
            }
        }
        Ok(())
    }

    /// Adds a module if it is the user's, and its imports to those that are looked for.
    fn add(
        &mut self,
        module: &str,
        folders: &[PathBuf],
        open: &mut VecDeque<String>,
    ) -> Result<(), String> {
        if self.files.iter().any(|held| held.module == module) {
            return Ok(());
        }
        let mut places = folders.iter().enumerate().flat_map(|(at, folder)| {
            names_of_file(module).map(move |name| (at, folder.join(&name), name))
        });
        let Some((at, path, name)) = places.find(|(_, path, _)| path.is_file()) else {
            return Ok(());
        };
        let text = read(&path)?;
        let package = match name.ends_with("__init__.py") {
            true => module,
            false => module.rsplit_once('.').map_or("", |(package, _)| package),
        };
        open.extend(imports(&text, package));
        self.files.push(PythonFile {
            module: module.to_owned(),
            name,
            folder: match at {
                0 => String::new(),
                _ => folders[at].to_string_lossy().into_owned(),
            },
            text,
        });
        Ok(())
    }

    /// The modules alone, as functions get them that nobody trusts: a text of theirs may name any
    /// file.
    pub fn without_named(mut self) -> Self {
        self.files.retain(|file| file.module != file.name);
        self
    }

    /// The files by their paths below the folder of the main file.
    pub(crate) fn by_path(&self) -> Vec<DeclaredFile> {
        let file = |file: &PythonFile| DeclaredFile {
            name: file.name.clone(),
            text: file.text.clone(),
        };
        self.files.iter().map(file).collect()
    }

    /// The library whose arrays its functions probably take.
    pub fn array_library(&self) -> ArrayLibrary {
        library_of(self.imports.iter().map(String::as_str))
    }

    /// The library whose arrays a reference in it probably takes: NumPy's, where that is imported.
    pub fn reference_library(&self) -> ArrayLibrary {
        let is_numpy = |module: &String| module.split('.').next() == Some("numpy");
        match self.imports.iter().any(is_numpy) {
            true => ArrayLibrary::Numpy,
            false => self.array_library(),
        }
    }
}

/// The files that a module of this name may be, below the folder that it is imported from.
fn names_of_file(module: &str) -> impl Iterator<Item = String> {
    let below = module.replace('.', "/");
    let package = format!("{below}/__init__.py");
    [format!("{below}.py"), package].into_iter()
}

/// The folder from which a module of this name is imported, if this is its file.
fn folder_of_module(main: &Path, module: &str) -> Option<PathBuf> {
    let text = main.to_str()?;
    let folder = names_of_file(module).find_map(|name| text.strip_suffix(&name))?;
    let is_whole = folder.is_empty() || folder.ends_with('/');
    is_whole.then(|| match folder {
        "" => PathBuf::from("."),
        folder => PathBuf::from(folder),
    })
}

/// Where a module is looked for: in the folder from which this file of it is imported, if one is
/// named, then in those of `[python] path`.
pub fn places_of_module(name: &str, main: Option<&Path>, folders: &[PathBuf]) -> Vec<PathBuf> {
    let own = main.and_then(|main| folder_of_module(main, name));
    own.into_iter().chain(folders.iter().cloned()).collect()
}

/// Absolute paths of a folder and others, that folder first.
fn all_absolute(first: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let others = others.iter().map(PathBuf::as_path);
    let all = std::iter::once(first).chain(others);
    all.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
        .collect()
}

/// The library whose arrays functions of a module take that imports these, or is one of these.
pub fn library_of<'a>(modules: impl Iterator<Item = &'a str> + Clone) -> ArrayLibrary {
    let has = |name: &str| {
        modules
            .clone()
            .any(|held| held.split('.').next() == Some(name))
    };
    if has("torch") || has("triton") {
        ArrayLibrary::Torch
    } else if has("cupy") {
        ArrayLibrary::Cupy
    } else if has("jax") {
        ArrayLibrary::Jax
    } else {
        ArrayLibrary::Numpy
    }
}

/// Whether a module gives a value to a name of its own: in a line that is not indented, left of a
/// `=`.
pub fn assigns(text: &str, name: &str) -> bool {
    let is_target = |target: &str| {
        let target = target.split(':').next().unwrap_or_default();
        let words = target.split(|c: char| c != '_' && !c.is_alphanumeric());
        !target.contains('(') && words.into_iter().any(|word| word == name)
    };
    let mut lines = text.lines();
    lines.any(|line| {
        let is_open = line.starts_with(|c: char| c == '_' || c.is_alphabetic());
        // The last part of a line of several `=` is the value.
        let mut parts: Vec<&str> = line.split('=').collect();
        parts.pop();
        is_open && parts.into_iter().any(is_target)
    })
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = files::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8 text", path.display()))
}

/// Names of the modules that a text may import. In `from a import b`, `b` may be a module or not:
/// `a.b` is looked for as well. `package` is that of relative imports.
fn imports(text: &str, package: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().flat_map(|line| line.split(';'));
    while let Some(line) = lines.next() {
        // A statement may follow a condition.
        let is_import = |text: &&str| text.starts_with("import ") || text.starts_with("from ");
        let after = line.split_once(": ").map(|(_, after)| after.trim_start());
        let mut statement = after
            .filter(is_import)
            .unwrap_or(line.trim_start())
            .to_owned();
        let words = statement.split_whitespace().next();
        if !matches!(words, Some("import" | "from")) {
            continue;
        }
        // Names in parentheses may go on over lines.
        while statement.contains('(') && !statement.contains(')') || statement.ends_with('\\') {
            let Some(next) = lines.next() else { break };
            statement = statement.trim_end_matches('\\').to_owned();
            statement.push(' ');
            statement.push_str(next.split('#').next().unwrap_or_default());
        }
        let statement = statement.split('#').next().unwrap_or_default();
        if let Some(names) = statement.strip_prefix("import ") {
            found.extend(names.split(',').filter_map(first_word));
        } else if let Some((module, names)) = statement[4..].split_once(" import ") {
            let Some(module) = resolved(module.trim(), package) else {
                continue;
            };
            let names = names.replace(['(', ')'], " ");
            let inner = names.split(',').filter_map(first_word);
            let inner = inner.filter(|name| name != "*");
            found.extend(inner.map(|name| match module.as_str() {
                "" => name,
                module => format!("{module}.{name}"),
            }));
            found.push(module);
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

fn first_word(text: &str) -> Option<String> {
    text.split_whitespace().next().map(str::to_owned)
}

/// The name of a module in a file of `package`; `..a` is beside the package that holds it.
fn resolved(module: &str, package: &str) -> Option<String> {
    let name = module.trim_start_matches('.');
    let dots = module.len() - name.len();
    if dots == 0 {
        return Some(name.to_owned());
    }
    let mut held = package;
    for _ in 1..dots {
        held = held.rsplit_once('.').map_or("", |(outer, _)| outer);
    }
    Some(match (held, name) {
        ("", name) => name.to_owned(),
        (held, "") => held.to_owned(),
        (held, name) => format!("{held}.{name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_of_a_module_are_found() {
        let text = "N = 2048 * 2\nheight = width = 256\nd, h = 3, 4  # k = 5\nscale: float = 2.0\n\
                    def f(a=1):\n    inner = 2\nprint(end=N)\n";
        for name in ["N", "height", "width", "d", "h", "scale"] {
            assert!(assigns(text, name), "{name}");
        }
        for name in ["a", "inner", "end", "f", "float", "n"] {
            assert!(!assigns(text, name), "{name}");
        }
    }

    #[test]
    fn modules_of_the_user_are_found_and_others_left() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "k/main.py",
            "import numpy as np, helper, outer.middle.inner\nfrom lib.deep import (\n  a,  # one\n  b,\n)\n\
             def f():\n    from lib import late\n",
        );
        write("k/helper.py", "import os\n");
        write("path/lib/__init__.py", "");
        write(
            "path/lib/late.py",
            "from .deep import a\nfrom . import other\n",
        );
        write("path/lib/other.py", "");
        write("path/lib/deep/__init__.py", "from .. import late\n");
        write("path/lib/deep/a.py", "");
        write("path/outer/__init__.py", "");
        write("path/outer/middle/__init__.py", "");
        write("path/outer/middle/inner.py", "");
        let main = folder.path().join("k/main.py");
        let found = PythonFiles::read(&main, &[folder.path().join("path")]).unwrap();
        let mut modules: Vec<&str> = found.files.iter().map(|file| &*file.module).collect();
        assert_eq!(modules[0], "main");
        modules.sort_unstable();
        let expected = [
            "helper",
            "lib",
            "lib.deep",
            "lib.deep.a",
            "lib.late",
            "lib.other",
            "main",
            "outer",
            "outer.middle",
            "outer.middle.inner",
        ];
        assert_eq!(modules, expected);
        assert_eq!(found.array_library(), ArrayLibrary::Numpy);
        assert_eq!(library_of(["torch.nn"].into_iter()), ArrayLibrary::Torch);
    }
}
