//! Everything that a manifest refers to, as plain data: its text and the texts of the manifests
//! that it extends, tables of values, digests of tensor files, environment variables.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::expected::FileReference;
use super::includes::SourceClosure;
use super::python::PythonFiles;
use crate::text::texts::{At, Texts};
use crate::text::tree::{Node, Raw, Table};
use sweeper_model::identity::Digest;

/// Everything that a manifest is made of, as plain data.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Texts of the manifest and of the manifests that it extends, in this order.
    pub(crate) texts: Texts,
    /// Folder of each text.
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) tables: BTreeMap<PathBuf, Result<ValueTable, String>>,
    pub(crate) inputs: BTreeMap<PathBuf, Result<InputFile, String>>,
    /// Files that declared workloads name, and files that declared commands are made of.
    pub(crate) files: BTreeMap<PathBuf, Result<NamedFile, String>>,
    /// Files of right outputs, by the path with braces in it.
    pub(crate) expected: BTreeMap<PathBuf, Result<FileReference, String>>,
    /// Sources of kernels.
    pub(crate) code: BTreeMap<CodeKey, Result<SourceClosure, String>>,
    /// Sources in Python, by the main file and the folders of modules.
    pub(crate) python: BTreeMap<(PathBuf, Vec<PathBuf>), Result<PythonFiles, String>>,
    /// Modules in folders of the user, by name and folders; none where they are in none of them.
    pub(crate) modules: BTreeMap<(String, Vec<PathBuf>), Option<ReadFiles>>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// Tensors that were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// Absolute path.
    pub path: PathBuf,
    /// SHA-256 of the file.
    pub digest: Digest,
}

/// The main file of a source, the folders of includes, and options.
pub(crate) type CodeKey = (PathBuf, Vec<PathBuf>, Vec<String>);

/// The files of a source in Python, or why they can't be read.
pub(crate) type ReadFiles = Result<PythonFiles, String>;

/// A file that a manifest names, without its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    /// Absolute path.
    pub path: PathBuf,
    /// SHA-256 of its contents.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

/// A table of values from a CSV file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueTable {
    /// SHA-256 of the file.
    pub digest: Digest,
    /// Names of the columns.
    pub header: Vec<String>,
    /// Cells by row.
    pub rows: Vec<Vec<String>>,
}

impl Sources {
    /// The folder of the text that something is written in; that of a setting from outside is the
    /// current one.
    pub(crate) fn folder(&self, at: At) -> &Path {
        let folder = self.folders.get(at.source as usize);
        folder.map_or(Path::new(""), PathBuf::as_path)
    }

    /// Sets an environment variable, in place of the environment's value.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    /// Tables of values, by path.
    pub fn tables(&self) -> impl Iterator<Item = (&Path, &ValueTable)> {
        let readable = self.tables.iter();
        readable.filter_map(|(path, table)| Some((path.as_path(), table.as_ref().ok()?)))
    }

    /// The source of a kernel with its includes, if it was read.
    pub(crate) fn code(
        &self,
        main: &Path,
        folders: &[PathBuf],
        backend: &Table,
    ) -> Option<&Result<SourceClosure, String>> {
        let key = (main.to_owned(), folders.to_vec(), options(backend));
        self.code.get(&key)
    }

    /// The source of a function in Python with the user's modules, if it was read.
    pub(crate) fn python(
        &self,
        main: &Path,
        folders: &[PathBuf],
    ) -> Option<&Result<PythonFiles, String>> {
        self.python.get(&(main.to_owned(), folders.to_vec()))
    }

    /// A module of this name in one of these folders, if it was looked for and is there.
    pub(crate) fn module(&self, name: &str, folders: &[PathBuf]) -> Option<&ReadFiles> {
        let found = self.modules.get(&(name.to_owned(), folders.to_vec()));
        found.and_then(Option::as_ref)
    }

    /// A file that a declared workload names, or that a declared command is made of, if it was
    /// looked for.
    pub(crate) fn file(&self, path: &Path) -> Option<&Result<NamedFile, String>> {
        self.files.get(path)
    }

    /// Files of right outputs, if they were looked for.
    pub(crate) fn expected(&self, path: &Path) -> Option<&Result<FileReference, String>> {
        self.expected.get(path)
    }
}

/// The options of a backend's compiler, and its libraries as such.
pub(crate) fn options(backend: &Table) -> Vec<String> {
    let texts = |key: &str, before: &str| -> Vec<String> {
        let node = backend.value(key).map(|node| &node.raw);
        let items = match node {
            Some(Raw::Array(items)) => items.as_slice(),
            _ => &[],
        };
        let texts = items.iter().filter_map(Node::text);
        texts.map(|text| format!("{before}{text}")).collect()
    };
    [texts("options", ""), texts("libs", "-l")].concat()
}
