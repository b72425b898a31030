//! The kinds of values that settings have: integers, numbers, texts, paths, words.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{Data, Kind};
use crate::grammar::json;
use crate::grammar::section::Context;
use crate::model::manifest::Manifest;
use crate::text::diagnostics::Code;
use crate::text::tree::Node;
use sweeper_model::word::Word;

/// Longest time that a setting can ask for, in seconds: a hundred years.
const MAX_SECONDS: f64 = 3.2e9;

/// Reads a field; none where it has no value.
pub(super) type Get<T> = fn(&Manifest) -> Option<T>;
/// Sets a field.
pub(super) type Set<T> = fn(&mut Manifest, T);

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

/// A kind for settings that all have equal bounds.
macro_rules! plain {
    ($($(#[$about:meta])* $name:ident($type:ty): $read:expr, $data:expr, $schema:expr;)*) => { $(
        $(#[$about])*
        pub(super) struct $name {
            pub(super) get: Get<$type>,
            pub(super) set: Set<$type>,
        }

        impl Kind for $name {
            fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
                let read: fn(&mut Context<'_>, &Node, &str) -> Option<$type> = $read;
                if let Some(value) = read(cx, node, key) {
                    (self.set)(manifest, value);
                }
            }

            fn get(&self, manifest: &Manifest) -> Option<Data> {
                let data: fn($type) -> Data = $data;
                (self.get)(manifest).map(data)
            }

            fn schema(&self) -> Json {
                $schema
            }
        }
    )* };
}
pub(super) use plain;

plain! {
    /// A number over zero.
    Number(f64): |cx, node, key| cx.positive(node, key), Data::Float, json::positive();

    /// A time over zero, in seconds.
    Seconds(Duration): seconds, Data::Time, json::positive();

    /// A number from 0 to less than 1.
    Fraction(f64): fraction, Data::Float,
        json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 });

    /// True or false.
    Boolean(bool): |cx, node, key| cx.boolean(node, key), Data::Bool, json!({ "type": "boolean" });

    /// A string.
    Text(String): |cx, node, key| cx.text(node, key), Data::text, json::string();

    /// Strings, at least one.
    Texts(Vec<String>): texts, Data::texts, json::list(json::string());

    /// A path, in which environment variables are expanded.
    Path(PathBuf): |cx, node, key| cx.path(node, key),
        |path| Data::text(path.to_string_lossy()), json::string();

    /// Paths, possibly none.
    Paths(Vec<PathBuf>): paths,
        |paths| Data::texts(paths.iter().map(|path| path.to_string_lossy())),
        json::list(json::string());
}

fn seconds(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Duration> {
    let seconds = cx.positive(node, key)?;
    Some(Duration::from_secs_f64(seconds.min(MAX_SECONDS)))
}

fn fraction(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<f64> {
    let value = cx.number(node, key)?;
    if (0.0..1.0).contains(&value) {
        return Some(value);
    }
    let message = format!("`{key}` is out of bounds");
    cx.report(Code::OutOfBounds, node.at, message)
        .label("from 0 to less than 1");
    None
}

fn texts(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<String>> {
    let words = cx.words(node, key)?.into_iter();
    Some(words.map(|word| word.value).collect())
}

fn paths(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Vec<PathBuf>> {
    let items = node.items();
    Some(items.iter().filter_map(|item| cx.path(item, key)).collect())
}

/// Whole numbers from 1 on, each once, at least one; kept ascending.
pub(super) struct Counts {
    pub(super) to: u32,
    pub(super) get: Get<Vec<u32>>,
    pub(super) set: Set<Vec<u32>>,
}

impl Kind for Counts {
    fn read(&self, cx: &mut Context<'_>, node: &Node, key: &str, manifest: &mut Manifest) {
        let mut counts: Vec<u32> = Vec::new();
        for item in cx.items(node, key).into_iter().flatten() {
            let most = i64::from(self.to);
            let read = cx.integer(item, key, 1, most);
            let Some(count) = read.and_then(|count| u32::try_from(count).ok()) else {
                continue;
            };
            match counts.contains(&count) {
                true => cx.twice(item.at, key, &count.to_string()),
                false => counts.push(count),
            }
        }
        counts.sort_unstable();
        if !counts.is_empty() {
            (self.set)(manifest, counts);
        }
    }

    fn get(&self, manifest: &Manifest) -> Option<Data> {
        let counts = (self.get)(manifest)?;
        Some(Data::List(
            counts
                .into_iter()
                .map(|count| Data::Integer(count.into()))
                .collect(),
        ))
    }

    fn schema(&self) -> Json {
        json::list(json!({ "type": "integer", "minimum": 1, "maximum": self.to }))
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
