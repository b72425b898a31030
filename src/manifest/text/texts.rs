//! Texts that a manifest is read from, and places in them.

use std::ops::Range;
use std::sync::Arc;

use super::diagnostics::Place;

/// A file, or the text of a setting from elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    /// Path as it was given, or the name of the flag.
    pub(crate) name: Arc<str>,
    pub(crate) text: Arc<str>,
    pub(crate) is_file: bool,
    /// Offsets of the beginnings of lines.
    lines: Arc<[u32]>,
}

impl Text {
    pub(crate) fn new(name: String, text: String, is_file: bool) -> Self {
        let ends = text.bytes().zip(1..).filter(|(byte, _)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(_, next)| next));
        Text {
            lines: lines.collect(),
            name: name.into(),
            text: text.into(),
            is_file,
        }
    }

    /// The line that a byte is in, counted from 0, and where it begins.
    fn line_of(&self, byte: usize) -> (usize, usize) {
        let after = self.lines.partition_point(|begin| *begin as usize <= byte);
        let line = after.saturating_sub(1);
        (line, self.lines[line] as usize)
    }
}

/// A range of bytes of one of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) source: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl At {
    pub(crate) fn new(source: usize, range: Range<usize>) -> Self {
        let word = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        At {
            source: word(source),
            start: word(range.start),
            end: word(range.end),
        }
    }
}

/// All texts of one manifest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts(pub(crate) Vec<Text>);

impl Texts {
    fn get(&self, at: At) -> &Text {
        &self.0[at.source as usize]
    }

    /// The text at `at`.
    pub(crate) fn slice(&self, at: At) -> &str {
        let text = &self.get(at).text;
        let start = floor(text, at.start as usize);
        &text[start..floor(text, at.end as usize).max(start)]
    }

    /// The line of `at`, from 1.
    pub(crate) fn line(&self, at: At) -> usize {
        self.line_and_column(at).0
    }

    fn line_and_column(&self, at: At) -> (usize, usize) {
        let source = self.get(at);
        let byte = floor(&source.text, at.start as usize);
        let (line, begin) = source.line_of(byte);
        let column = source.text[begin..byte].chars().count() + 1;
        (line + 1, column)
    }

    /// The place of `at`, for people.
    pub(crate) fn place(&self, at: At) -> Place {
        let source = self.get(at);
        let (line, column) = self.line_and_column(at);
        let begin = source.lines[line - 1] as usize;
        let text = source.text[begin..].split('\n').next().unwrap_or("");
        let text = text.trim_end_matches('\r');
        let (start, end) = (
            floor(&source.text, at.start as usize),
            floor(&source.text, at.end as usize),
        );
        let marked = source.text[start..end.max(start)]
            .split('\n')
            .next()
            .unwrap_or("");
        Place {
            source: at.source as usize,
            name: source.name.to_string(),
            is_file: source.is_file,
            line,
            column,
            width: marked.trim_end().chars().count().max(1),
            text: text.to_owned(),
        }
    }

    /// The part `span` of the string `value`, whose literal is at `at`.
    ///
    /// Escapes make a literal longer than its value, so both are walked together.
    pub(crate) fn inside(&self, at: At, value: &str, span: Range<usize>) -> At {
        let text = &self.get(at).text;
        let literal = &text[floor(text, at.start as usize)..floor(text, at.end as usize)];
        let quotes = literal.len() - literal.trim_start_matches(['"', '\'']).len();
        // An empty string is quotes only.
        let open = if quotes >= 3 { 3 } else { quotes.min(1) };
        let mut offset = at.start as usize + open;
        if open == 3 && literal[3..].starts_with(['\n', '\r']) {
            offset += literal[3..].find('\n').map_or(0, |end| end + 1);
        }
        let escapes = literal.starts_with('"');
        let start = advance(text, offset, &value[..span.start], escapes);
        let end = advance(text, start, &value[span.clone()], escapes);
        At::new(at.source as usize, start..end)
    }
}

/// The offset in `text`, in a literal that starts at `offset`, after the spelling of `value`.
fn advance(text: &str, mut offset: usize, value: &str, escapes: bool) -> usize {
    for _ in value.chars() {
        let rest = &text[floor(text, offset)..];
        let mut chars = rest.chars();
        offset += match chars.next() {
            Some('\\') if escapes => match chars.next() {
                Some('x') => 4,
                Some('u') => 6,
                Some('U') => 10,
                _ => 2,
            },
            Some(c) => c.len_utf8(),
            None => 0,
        };
    }
    floor(text, offset)
}

/// The greatest boundary between characters that is not after `index`.
fn floor(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}
