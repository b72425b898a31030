//! The kinds of values that settings have: integers, numbers, texts, paths, words.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::json;
use super::{Data, Kind};
use crate::manifest::Manifest;
use crate::manifest::diagnostics::Code;
use crate::manifest::section::Context;
use crate::manifest::settings::Word;
use crate::manifest::tree::{Node, Raw};

/// Longest time that a setting can ask for, in seconds: a hundred years.
const MAX_SECONDS: f64 = 3.2e9;

/// Reads a field; none where it has no value.
type Get<T> = fn(&Manifest) -> Option<T>;
/// Sets a field.
type Set<T> = fn(&mut Manifest, T);

/// An integer from `from` to `to`.
pub(super) struct Integer<T: 'static> {
    pub(super) from: T,
    pub(super) to: T,
    pub(super) get: Get<T>,
    pub(super) set: Set<T>,
}

impl<T: Copy + Into<u64> + TryFrom<u64> + Sync> Kind for Integer<T> {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        let bound = |value: T| i64::try_from(value.into()).unwrap_or(i64::MAX);
        let read = cx.integer(node, key, bound(self.from), bound(self.to));
        let value = read.and_then(|value| T::try_from(u64::try_from(value).ok()?).ok());
        if let Some(value) = value {
            (self.set)(manifest, value);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(|value| Data::Integer(value.into()))
    }

    fn schema(&self) -> Json {
        let mut schema = json::whole(self.from.into());
        let to = self.to.into();
        if to < u64::from(u32::MAX) {
            schema["maximum"] = to.into();
        }
        schema
    }
}

/// A number over zero.
pub(super) struct Number {
    pub(super) get: Get<f64>,
    pub(super) set: Set<f64>,
}

impl Kind for Number {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(value) = cx.positive(node, key) {
            (self.set)(manifest, value);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::Float)
    }

    fn schema(&self) -> Json {
        json::positive()
    }
}

/// A time over zero, in seconds.
pub(super) struct Seconds {
    pub(super) get: Get<Duration>,
    pub(super) set: Set<Duration>,
}

impl Kind for Seconds {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(seconds) = cx.positive(node, key) {
            (self.set)(manifest, Duration::from_secs_f64(seconds.min(MAX_SECONDS)));
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::Time)
    }

    fn schema(&self) -> Json {
        json::positive()
    }
}

/// A number from 0 to less than 1.
pub(super) struct Fraction {
    pub(super) get: Get<f64>,
    pub(super) set: Set<f64>,
}

impl Kind for Fraction {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        match cx.number(node, key) {
            Some(value) if (0.0..1.0).contains(&value) => (self.set)(manifest, value),
            Some(_) => {
                let message = format!("`{key}` is out of bounds");
                cx.report(Code::OutOfBounds, node.at, message)
                    .label("from 0 to less than 1");
            }
            None => {}
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::Float)
    }

    fn schema(&self) -> Json {
        json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 })
    }
}

/// True or false.
pub(super) struct Boolean {
    pub(super) get: Get<bool>,
    pub(super) set: Set<bool>,
}

impl Kind for Boolean {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(value) = cx.boolean(node, key) {
            (self.set)(manifest, value);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::Bool)
    }

    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }
}

/// A string.
pub(super) struct Text {
    pub(super) get: Get<String>,
    pub(super) set: Set<String>,
}

impl Kind for Text {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(text) = cx.text(node, key) {
            (self.set)(manifest, text);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::text)
    }

    fn schema(&self) -> Json {
        json::string()
    }
}

/// Strings, at least one.
pub(super) struct Texts {
    pub(super) get: Get<Vec<String>>,
    pub(super) set: Set<Vec<String>>,
}

impl Kind for Texts {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(words) = cx.words(node, key) {
            let texts = words.into_iter().map(|word| word.value);
            (self.set)(manifest, texts.collect());
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(Data::texts)
    }

    fn schema(&self) -> Json {
        json::list(json::string())
    }
}

/// A path, in which environment variables are expanded.
pub(super) struct Path {
    pub(super) get: Get<PathBuf>,
    pub(super) set: Set<PathBuf>,
}

impl Kind for Path {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(path) = cx.path(node, key) {
            (self.set)(manifest, path);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(|path| Data::text(path.to_string_lossy()))
    }

    fn schema(&self) -> Json {
        json::string()
    }
}

/// Paths, perhaps none.
pub(super) struct Paths {
    pub(super) get: Get<Vec<PathBuf>>,
    pub(super) set: Set<Vec<PathBuf>>,
}

impl Kind for Paths {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        let items = match &node.raw {
            Raw::Array(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let paths = items.iter().filter_map(|item| cx.path(item, key)).collect();
        (self.set)(manifest, paths);
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        let paths = (self.get)(manifest)?;
        Some(Data::texts(paths.iter().map(|path| path.to_string_lossy())))
    }

    fn schema(&self) -> Json {
        json::list(json::string())
    }
}

/// One of the words of `W`.
pub(super) struct OneOf<W: 'static> {
    pub(super) get: Get<W>,
    pub(super) set: Set<W>,
}

impl<W: Word> Kind for OneOf<W> {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(word) = cx.word(node, key) {
            (self.set)(manifest, word);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        (self.get)(manifest).map(|word| Data::text(word.word()))
    }

    fn schema(&self) -> Json {
        json::words::<W>()
    }
}

/// Words of `W`, at least one.
pub(super) struct SeveralOf<W: 'static> {
    pub(super) get: Get<Vec<W>>,
    pub(super) set: Set<Vec<W>>,
}

impl<W: Word> Kind for SeveralOf<W> {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        if let Some(words) = cx.word_list(node, key).filter(|words| !words.is_empty()) {
            (self.set)(manifest, words);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        let words = (self.get)(manifest)?;
        Some(Data::texts(words.iter().map(|word| word.word())))
    }

    fn schema(&self) -> Json {
        json::list(json::words::<W>())
    }
}
