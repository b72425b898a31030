//! Words of manifests and files, and the sets of values that are spelt as words.

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

/// A word with its first letter in upper case.
pub fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// A noun with its article: `an integer`.
pub fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}
