//! TOML as a tree in which every key and value knows its place.

use toml::de::{DeTable, DeValue};

use super::diagnostics::{Code, Diagnostic, Diagnostics};
use super::texts::{At, Texts};

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: At,
    pub(crate) raw: Raw,
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    /// A date or time, which the format has no use for.
    Date,
    Array(Vec<Node>),
    Table(Table),
}

/// A table, in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: At,
    pub(crate) value: Node,
}

impl Table {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn value(&self, key: &str) -> Option<&Node> {
        self.get(key).map(|entry| &entry.value)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.key == key)
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Entry> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index))
    }

    /// Sets a key, in place if it is there.
    pub(crate) fn set(&mut self, entry: Entry) {
        match self.get_mut(&entry.key) {
            Some(held) => *held = entry,
            None => self.entries.push(entry),
        }
    }
}

impl Node {
    /// The kind of value in the words of error messages.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.raw {
            Raw::Bool(_) => "a boolean",
            Raw::Int(_) => "an integer",
            Raw::Float(_) => "a float",
            Raw::Text(_) => "a string",
            Raw::Date => "a date",
            Raw::Array(_) => "an array",
            Raw::Table(_) => "a table",
        }
    }

    pub(crate) fn table(&self) -> Option<&Table> {
        match &self.raw {
            Raw::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.raw {
            Raw::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.raw {
            Raw::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list; another value is a list of one.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.raw {
            Raw::Array(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// The entries of a table; none of another value.
    pub(crate) fn entries(&self) -> &[Entry] {
        self.table().map_or(&[], |table| &table.entries)
    }

    /// The value of a key, if this is a table that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.table()?.value(key)
    }

    /// Calls `visit` with every node below this one and the key it stands under.
    pub(crate) fn walk<'a>(&'a self, key: &'a str, visit: &mut impl FnMut(&'a str, &'a Node)) {
        visit(key, self);
        match &self.raw {
            Raw::Array(items) => items.iter().for_each(|item| item.walk(key, visit)),
            Raw::Table(table) => {
                let entries = table.entries.iter();
                entries.for_each(|entry| entry.value.walk(&entry.key, visit));
            }
            _ => {}
        }
    }
}

/// What messages of the parser say of arrays and inline tables that are not closed.
const BRACKETS: [&str; 4] = ["array", "must be quoted", "inline table", "key-value pairs"];

/// Reads one of the texts; a part that can't be read is reported and left out.
pub(crate) fn parse(texts: &Texts, source: usize, diagnostics: &mut Diagnostics) -> Node {
    let text = &texts.0[source].text;
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut errors: Vec<_> = errors
        .into_iter()
        .map(|error| (error.span().unwrap_or(0..0), error))
        .collect();
    errors.sort_by_key(|(span, _)| span.start);
    let mut bracket_error = None;
    let mut second_table = 0..0;
    for (span, error) in errors {
        let start = span.start;
        let place = texts.place(At::new(source, span));
        let message = error.message().trim().replace('\n', ", ");
        // A bracket that is never closed makes an error of every line after it: the first one will
        // do.
        let in_brackets = BRACKETS.iter().any(|words| message.contains(words));
        let before = std::mem::replace(&mut bracket_error, in_brackets.then_some(place.line));
        if in_brackets && before.is_some_and(|line| place.line <= line + 1) {
            continue;
        }
        let is_twice = message.starts_with("duplicate key");
        // So does a table that is there already of each of its keys.
        if is_twice && second_table.contains(&start) {
            continue;
        }
        let line = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let is_header = text[line..start].trim_start().starts_with('[');
        let code = if is_twice {
            Code::DuplicateKey
        } else {
            Code::Syntax
        };
        let mut diagnostic = Diagnostic::new(code, message).at(place);
        if is_twice && is_header {
            let rest = text[start..].find("\n[");
            second_table = start..rest.map_or(text.len(), |length| start + length);
            diagnostic = diagnostic.help("the table is there already, above");
        }
        if in_brackets {
            diagnostic = diagnostic.help("is a bracket above it closed?");
        }
        diagnostics.push(diagnostic);
        // The rest of the text was read as the inside of the bracket.
        if in_brackets && text[line..start].trim().is_empty() {
            break;
        }
    }
    let mut reader = Reader {
        texts,
        source,
        diagnostics,
    };
    let at = At::new(source, table.span());
    let raw = Raw::Table(reader.table(table.into_inner()));
    Node { at, raw }
}

/// Reads a single value, such as the text of a flag.
pub(crate) fn parse_value(text: &str, source: usize) -> Result<Node, toml::de::Error> {
    let value = DeValue::parse(text)?;
    let mut reader = Reader {
        texts: &Texts::default(),
        source,
        diagnostics: &mut Diagnostics::default(),
    };
    let at = At::new(source, value.span());
    let raw = reader.raw(value.into_inner(), at).unwrap_or(Raw::Date);
    Ok(Node { at, raw })
}

struct Reader<'a> {
    texts: &'a Texts,
    source: usize,
    diagnostics: &'a mut Diagnostics,
}

impl Reader<'_> {
    fn table(&mut self, table: DeTable<'_>) -> Table {
        let mut entries: Vec<_> = table
            .into_iter()
            .filter_map(|(key, value)| {
                let key_at = At::new(self.source, key.span());
                let at = At::new(self.source, value.span());
                let raw = self.raw(value.into_inner(), at)?;
                Some(Entry {
                    key: key.into_inner().into_owned(),
                    key_at,
                    value: Node { at, raw },
                })
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_at);
        Table { entries }
    }

    fn raw(&mut self, value: DeValue<'_>, at: At) -> Option<Raw> {
        Some(match value {
            DeValue::String(text) => Raw::Text(text.into_owned()),
            DeValue::Boolean(value) => Raw::Bool(value),
            DeValue::Datetime(_) => Raw::Date,
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(value) => Raw::Int(value),
                    Err(_) => return self.bad_number(at, "an integer of 64 bits"),
                }
            }
            DeValue::Float(number) => match number.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() => Raw::Float(value),
                _ => return self.bad_number(at, "a finite float"),
            },
            DeValue::Array(items) => Raw::Array(
                items
                    .into_iter()
                    .filter_map(|item| {
                        let at = At::new(self.source, item.span());
                        let raw = self.raw(item.into_inner(), at)?;
                        Some(Node { at, raw })
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Raw::Table(self.table(table)),
        })
    }

    fn bad_number(&mut self, at: At, wanted: &str) -> Option<Raw> {
        if self.source < self.texts.0.len() {
            let message = format!("this number is not {wanted}");
            let diagnostic = Diagnostic::new(Code::WrongType, message);
            self.diagnostics.push(diagnostic.at(self.texts.place(at)));
        }
        None
    }
}
