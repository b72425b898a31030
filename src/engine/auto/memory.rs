//! What was found out about loops, kept beside kernels: a second run of a loop is compiled from its
//! first iteration, and one that did not pay is not compiled again.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sweeper_cache::{Artifact, Cache, Key, KeyBuilder, Kind, Lookup, Metadata};

use crate::compile::CachePlace;
use crate::compile::background::Scope;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::row::hot_path::HotOutcome;
use sweeper_model::word::Word as _;

/// Version of a key's fields and of an entry's contents.
const SCHEMA: &str = "sweeper loop 4";
const REFUSED_SCHEMA: &str = "sweeper refused loop 1";

/// Loops that begin with one operation, at most.
const PLACES: u32 = 8;

/// The decision on a program of a loop. It is made once: another compiler, device or version of the
/// program asks again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Decision {
    /// What the program compiles.
    pub(super) scope: Scope,
    /// It is faster than what ran before.
    pub(super) is_faster: bool,
    /// Time of an iteration, operation by operation, in nanoseconds.
    pub(super) eager_ns: f64,
    /// Time of an iteration of the program, in nanoseconds.
    pub(super) compiled_ns: f64,
}

impl Decision {
    /// The word for people.
    fn word(self) -> &'static str {
        match (self.scope, self.is_faster) {
            (Scope::Whole, true) => HotOutcome::Kept.word(),
            (Scope::Parts, true) => HotOutcome::KeptParts.word(),
            (_, false) => HotOutcome::Back.word(),
        }
    }
}

/// A loop, and the decision on one of its programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// The loop, as its dispatcher wrote it.
    pub(super) bytes: Vec<u8>,
    pub(super) decision: Decision,
}

/// The decisions on the programs of one loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Decisions {
    of: [Option<Decision>; 2],
}

impl Decisions {
    pub(super) fn get(&self, scope: Scope) -> Option<Decision> {
        self.of[scope as usize]
    }

    pub(super) fn add(&mut self, decision: Decision) {
        self.of[decision.scope as usize] = Some(decision);
    }

    /// The program that is to run: the whole one where it is faster, else that of parts.
    pub(super) fn kept(&self) -> Option<Decision> {
        let both = [Scope::Whole, Scope::Parts].map(|scope| self.get(scope));
        let mut faster = both.into_iter().flatten().filter(|held| held.is_faster);
        faster.next()
    }
}

/// Loops that begin with one operation.
pub(super) struct Memory {
    cache: Option<Cache>,
    keys: Vec<Key>,
    /// Of loops without a program.
    refused: Vec<Key>,
}

/// A loop without a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Refused {
    /// Its signature, which all sizes of a bucket have: no compiler takes their kernels either.
    pub(super) signature: [u8; 32],
    /// Why, in a sentence.
    pub(super) reason: String,
}

impl Memory {
    /// The memory in a cache, for loops on a device whose kernels a compiler makes. `settings` are
    /// those that decide, in words; operations, the first one by itself and as one of a bucket of
    /// sizes. Without a cache nothing is remembered.
    pub(super) fn open(
        place: Option<&CachePlace>,
        (device, compiler): (&DeviceIdentity, &str),
        [operation, family]: [[u8; 32]; 2],
        settings: &str,
    ) -> Self {
        let cache = place.and_then(|place| Cache::open(place.config()).ok());
        let key = |schema: &str, operation: [u8; 32], place: u32| {
            let mut builder = KeyBuilder::new(schema)
                .field("kernels", sweeper_model::digests::digests().kernels)
                .field("device", &device.name)
                .field("operation", operation)
                .field("settings", settings)
                .field("place", place.to_string());
            for (name, value) in &device.details {
                builder = builder.field(&format!("device {name}"), value);
            }
            builder.compiler(compiler).finish()
        };
        Memory {
            cache,
            keys: (0..PLACES)
                .map(|place| key(SCHEMA, operation, place))
                .collect(),
            refused: (0..PLACES)
                .map(|place| key(REFUSED_SCHEMA, family, place))
                .collect(),
        }
    }

    /// Loops that became compiled, and those that went back.
    pub(super) fn all(&self) -> Vec<Remembered> {
        self.read(&self.keys)
    }

    /// Loops without a program.
    pub(super) fn refused(&self) -> Vec<Refused> {
        self.read(&self.refused)
    }

    fn read<T: DeserializeOwned>(&self, keys: &[Key]) -> Vec<T> {
        let Some(cache) = &self.cache else {
            return Vec::new();
        };
        let entries = keys.iter().filter_map(|key| cache.peek(key));
        let remembered = entries.map(|entry| postcard::from_bytes(entry.payload()).ok());
        remembered.flatten().collect()
    }

    /// Remembers a loop.
    pub(super) fn keep(&self, remembered: &Remembered) {
        self.write(&self.keys, remembered, remembered.decision.word());
    }

    /// Remembers that there is no program.
    pub(super) fn refuse(&self, refused: &Refused) {
        self.write(&self.refused, refused, "failed");
    }

    /// Writes into the first place that is free. Where none is, it is forgotten.
    fn write(&self, keys: &[Key], remembered: &impl Serialize, word: &str) {
        let Some(cache) = &self.cache else {
            return;
        };
        let Ok(payload) = postcard::to_stdvec(remembered) else {
            return;
        };
        for key in keys {
            match cache.try_lookup(key) {
                Some(Lookup::Miss(slot)) => {
                    slot.publish(Artifact {
                        kind: Kind::Loop,
                        payload,
                        metadata: metadata(word),
                    });
                    return;
                }
                // Another process fills it, or has filled it.
                None => {}
                Some(Lookup::Hit(entry)) if entry.payload() == payload => return,
                Some(Lookup::Hit(_)) => {}
            }
        }
    }
}

fn metadata(word: &str) -> Metadata {
    Metadata {
        sources: vec![format!("loop: {word}")],
        options: Vec::new(),
        arch: String::new(),
        compiler: String::new(),
        compile_ns: 0,
        created_ns: 0,
        resources: BTreeMap::new(),
        symbols: BTreeMap::default(),
        log_tail: String::new(),
        key_fields: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::null::Null;

    fn remembered(number: u8) -> Remembered {
        Remembered {
            bytes: vec![number; 3],
            decision: Decision {
                scope: Scope::Whole,
                is_faster: false,
                eager_ns: 1.0,
                compiled_ns: 2.0,
            },
        }
    }

    #[test]
    fn the_whole_program_runs_where_it_is_faster() {
        let decision = |scope, is_faster| Decision {
            scope,
            is_faster,
            ..remembered(1).decision
        };
        let kept = |all: &[Decision]| {
            let mut decisions = Decisions::default();
            all.iter().for_each(|&held| decisions.add(held));
            decisions.kept().map(|held| held.scope)
        };
        let (parts, whole) = (decision(Scope::Parts, true), decision(Scope::Whole, true));
        let [no_parts, no_whole] = [Scope::Parts, Scope::Whole].map(|scope| decision(scope, false));
        assert_eq!(kept(&[]), None);
        assert_eq!(kept(&[parts]), Some(Scope::Parts));
        assert_eq!(kept(&[parts, whole]), Some(Scope::Whole));
        assert_eq!(kept(&[parts, no_whole]), Some(Scope::Parts));
        assert_eq!(kept(&[no_parts, no_whole]), None);
        let words = [parts, whole, no_whole].map(Decision::word);
        assert_eq!(words, ["kept_parts", "kept", "back"]);
    }

    #[test]
    fn loops_are_remembered_by_device_compiler_and_first_operation() {
        let folder = tempfile::tempdir().unwrap();
        let place = CachePlace {
            dir: folder.path().to_owned(),
            capacity_bytes: 1 << 30,
            upstream: Vec::new(),
        };
        let device = Null::default().identity().clone();
        let open = |compiler: &str, operation: u8, settings: &str| {
            let operations = [[operation; 32], [7; 32]];
            Memory::open(Some(&place), (&device, compiler), operations, settings)
        };
        let memory = open("cc 12", 1, "");
        assert_eq!(memory.all(), []);
        memory.keep(&remembered(1));
        memory.keep(&remembered(1));
        memory.keep(&remembered(2));
        let all = open("cc 12", 1, "").all();
        assert_eq!(all, [remembered(1), remembered(2)]);
        assert_eq!(open("cc 13", 1, "").all(), []);
        assert_eq!(open("cc 12", 2, "").all(), []);
        assert_eq!(open("cc 12", 1, "threshold 3").all(), []);
        for number in 3..20 {
            memory.keep(&remembered(number));
        }
        assert_eq!(memory.all().len(), PLACES as usize);
        // Other sizes of a bucket have another first operation.
        let refused = Refused {
            signature: [4; 32],
            reason: "no".to_owned(),
        };
        memory.refuse(&refused);
        assert_eq!(open("cc 12", 9, "").refused(), [refused]);
        assert_eq!(open("cc 13", 1, "").refused(), []);
        let nowhere = Memory::open(None, (&device, ""), [[0; 32]; 2], "");
        nowhere.keep(&remembered(1));
        assert_eq!(nowhere.all(), []);
    }
}
