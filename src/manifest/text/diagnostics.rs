//! Errors and warnings about a manifest: their place, their meaning, and help.

pub use super::codes::{Code, Severity};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Kind of the diagnostic.
    pub code: Code,
    /// One line.
    pub message: String,
    /// The place, where there is one.
    pub place: Option<Place>,
    /// A few words beside the caret.
    pub label: String,
    /// Lines of help: how to fix the manifest, and further information.
    pub help: Vec<String>,
}

/// A place in a file, or in a setting on the command line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Position of the source in the order of reading; diagnostics are sorted by it.
    pub(crate) source: usize,
    /// Name of the file, or of the flag.
    pub name: String,
    /// True if `name` is a file, so that line and column mean something.
    pub is_file: bool,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters that the caret underlines, at least one, in the first line alone.
    pub width: usize,
    /// The text of the line.
    pub text: String,
}

impl Diagnostic {
    /// A diagnostic without a place.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Diagnostic {
            code,
            message: message.into(),
            place: None,
            label: String::new(),
            help: Vec::new(),
        }
    }

    /// Adds the place.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// Adds words beside the caret.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds a line of help; an empty one adds nothing.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        if !help.is_empty() {
            self.help.push(help);
        }
        self
    }
}

/// Everything that is wrong, in the order of the sources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.list.push(diagnostic);
    }

    /// Adds one and hands it back, for a label and help.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) -> Report<'_> {
        self.list.push(diagnostic);
        Report(self.list.last_mut())
    }

    /// Iterates over all diagnostics.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// True if nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Number of errors.
    pub fn errors(&self) -> usize {
        let errors = |each: &&Diagnostic| each.code.severity() == Severity::Error;
        self.list.iter().filter(errors).count()
    }

    /// Sorts by place and removes repetitions: shared lines are checked once for each case.
    pub(crate) fn settle(&mut self) {
        self.list.sort_by(|a, b| {
            let key = |each: &Diagnostic| (each.place.is_none(), each.place.clone(), each.code);
            key(a).cmp(&key(b))
        });
        self.list.dedup();
    }
}

/// A diagnostic that was just added.
pub(crate) struct Report<'a>(Option<&'a mut Diagnostic>);

impl Report<'_> {
    /// Sets the words beside the caret.
    pub(crate) fn label(mut self, label: impl Into<String>) -> Self {
        if let Some(diagnostic) = &mut self.0 {
            diagnostic.label = label.into();
        }
        self
    }

    /// Adds a line of help; an empty one adds nothing.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        let help = help.into();
        if let Some(diagnostic) = &mut self.0
            && !help.is_empty()
        {
            diagnostic.help.push(help);
        }
        self
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, more: I) {
        self.list.extend(more);
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        let list = vec![diagnostic];
        Diagnostics { list }
    }
}

impl std::error::Error for Diagnostics {}
