//! Sources of kernels, as a compiler takes them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The language of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// C11 with GNU vector extensions, for the host's compiler.
    C,
    /// CUDA C++ without headers, for NVRTC.
    Cuda,
}

/// A file of a kernel's source, by the name under which others include it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceFile {
    /// The name by which others include it. Below the main file's folder, without `..`.
    pub name: Cow<'static, str>,
    /// The text.
    pub text: Cow<'static, str>,
}

impl SourceFile {
    /// A file that is part of this binary.
    pub const fn embedded(name: &'static str, text: &'static str) -> Self {
        SourceFile {
            name: Cow::Borrowed(name),
            text: Cow::Borrowed(text),
        }
    }
}

/// A kernel that must be compiled: all that the compiler is asked, but for the machine's part of
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KernelSource {
    /// Its language.
    pub language: Language,
    /// The source closure: the file to compile first, then every file it includes.
    pub files: Cow<'static, [SourceFile]>,
    /// Name of the function to call. One source may hold several, and is compiled once for all of
    /// them.
    pub entry: Cow<'static, str>,
    /// Macros, in the order given to the compiler. They derive from the canonical shape and from
    /// parameters that are words, never from a run-time size.
    pub defines: Vec<(Cow<'static, str>, String)>,
    /// Options of the compiler, after those of every kernel.
    pub options: Vec<Cow<'static, str>>,
    /// What a source that a user wrote needs beside; kernels of this build need nothing.
    pub user: Option<Box<UserOptions>>,
}

/// What a user's source needs of its compiler beside options.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UserOptions {
    /// Libraries to link, such as `m`. C alone.
    pub libraries: Vec<String>,
    /// The functions and variables that are asked for by C++ name expressions, such as
    /// `reduce<float, 256>`, each once: templates are instantiated for them, and the compiler says
    /// which symbols they became. CUDA alone.
    pub names: Vec<String>,
    /// Nobody trusts it: it is compiled and run in a sandbox.
    pub is_untrusted: bool,
}

impl KernelSource {
    /// A macro to define; for building [`KernelSource::defines`].
    pub fn define(name: &'static str, value: impl ToString) -> (Cow<'static, str>, String) {
        (Cow::Borrowed(name), value.to_string())
    }

    /// True if both are one request to the compiler: only the entry points differ.
    ///
    /// Files are compared by their address first: kernels of one family share them.
    pub fn same_source(&self, other: &KernelSource) -> bool {
        let files = match (&self.files, &other.files) {
            (Cow::Borrowed(one), Cow::Borrowed(other)) if std::ptr::eq(*one, *other) => true,
            (one, other) => one == other,
        };
        files
            && self.defines == other.defines
            && self.language == other.language
            && self.options == other.options
            && self.user == other.user
    }

    /// The sources among these that differ, in the order in which they first appear.
    pub fn distinct<'s>(sources: impl IntoIterator<Item = &'s KernelSource>) -> Vec<&'s Self> {
        let mut distinct: Vec<&KernelSource> = Vec::new();
        for source in sources {
            if !distinct.iter().any(|held| held.same_source(source)) {
                distinct.push(source);
            }
        }
        distinct
    }

    /// Name of the file to compile.
    pub fn main_file(&self) -> &str {
        self.files.first().map_or("", |file| file.name.as_ref())
    }

    /// The file to compile, its defines and what it is asked for by name, for people.
    pub fn title(&self) -> String {
        let defines = self.defines.iter();
        let defines = defines.map(|(name, value)| format!(" {name}={value}"));
        let names = self.user.iter().flat_map(|user| &user.names);
        let names = names.map(|name| format!(" {name}"));
        defines
            .chain(names)
            .fold(self.main_file().to_owned(), |title, part| title + &part)
    }
}
