//! Sets of values that manifests and files spell as words.

/// A set of values that manifests spell as words.
pub trait Word: Copy + PartialEq + 'static {
    /// Every value with its word, in the order in which they are listed.
    const WORDS: &'static [(&'static str, Self)];

    /// The word of manifests and files.
    fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, value)| *value == self);
        found.map_or("", |(word, _)| word)
    }

    /// The value of a word.
    fn parse(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(held, _)| *held == word);
        found.map(|(_, value)| *value)
    }
}
