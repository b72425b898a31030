//! Texts as TOML has them. Whatever a manifest that is written here gets from outside (names of
//! files and kernels, words of other formats) goes through these: a text never becomes structure.

use std::fmt::Write as _;

use sweeper_program::Value;

/// A string.
pub fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_hidden(c) => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A key, or a part of one between dots.
pub fn key(name: &str) -> String {
    let is_plain = |c: char| matches!(c, '_' | '-') || c.is_ascii_alphanumeric();
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => string(name),
    }
}

/// A list of values that are TOML already.
pub fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// A list of strings.
pub fn strings<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    list(texts.map(string))
}

/// An inline table of keys with values that are TOML already.
pub fn inline<'t>(entries: impl Iterator<Item = (&'t str, String)>) -> String {
    let entries = entries.map(|(name, value)| format!("{} = {value}", key(name)));
    format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
}

/// A value of an axis.
pub fn value(value: &Value) -> String {
    match value {
        Value::Text(word) => string(word),
        Value::Float(number) => float(*number),
        other => other.to_string(),
    }
}

/// A float as text that is read again as an equal float.
pub fn float(value: f64) -> String {
    format!("{value:?}")
}

/// A part of a comment, which ends with its line.
pub fn in_comment(text: &str) -> String {
    let shown = |c: char| match c {
        c if c.is_whitespace() => ' ',
        c if is_hidden(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}

/// Characters that are not seen, or that change how others are seen: controls, line separators,
/// and marks of the direction of text.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Texts that would be structure where they were not encoded.
#[cfg(any(test, feature = "testing"))]
pub const HOSTILE: [&str; 6] = [
    "a\"\n[backend.pwned]\ncommand = [\"id\"]\nb = \"",
    "a'''\n[pwned]\n",
    "\\\" ]\npwned = 1 #",
    "\r\n[pwned]\u{0}\u{7f}\u{1b}[31m",
    "\u{202e}]denwp[\u{2028}pwned = 1",
    "\"\"\"\n[[pwned]]",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_text_is_read_as_it_was_written(text in any::<String>(), name in any::<String>()) {
            let written = format!(
                "{} = {} # {}\n",
                key(&name),
                string(&text),
                in_comment(&text)
            );
            let read: toml::Table = written.parse().unwrap();
            prop_assert_eq!(read.len(), 1);
            prop_assert_eq!(read[&name].as_str(), Some(&*text));
        }
    }

    #[test]
    fn hostile_texts_are_texts() {
        for text in HOSTILE {
            let (name, held) = (key(text), string(text));
            let written = format!("# {}\n{name} = {held}\n", in_comment(text));
            let read: toml::Table = written.parse().unwrap();
            assert_eq!(read.keys().collect::<Vec<_>>(), [text]);
            assert!(
                !written.chars().any(|c| c != '\n' && is_hidden(c)),
                "{written:?}"
            );
        }
    }
}
