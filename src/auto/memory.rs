//! What was found out about loops, kept beside kernels: a second run of a loop is compiled from its
//! first iteration, and one that did not pay is not compiled again.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sweeper_cache::{Artifact, Cache, Key, KeyBuilder, Kind, Lookup, Metadata};

use crate::compile::CachePlace;
use crate::hardware::DeviceIdentity;

/// Version of a key's fields and of an entry's contents.
const SCHEMA: &str = "sweeper loop 2";
const REFUSED_SCHEMA: &str = "sweeper refused loop 1";

/// Loops that begin with one operation, at most.
const PLACES: u32 = 8;

/// The decision on a loop. It is made once: another compiler, device or version of the program
/// asks again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Decision {
    /// The program is faster: times of an iteration by both, in nanoseconds.
    Kept { eager_ns: f64, compiled_ns: f64 },
    /// It is not.
    Back { eager_ns: f64, compiled_ns: f64 },
}

/// A loop, and the decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Remembered {
    /// The loop, as its dispatcher wrote it.
    pub(super) bytes: Vec<u8>,
    pub(super) decision: Decision,
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
                .field("kernels", env!("SWEEPER_KERNELS_DIGEST"))
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
        let word = match remembered.decision {
            Decision::Kept { .. } => "kept",
            Decision::Back { .. } => "back",
        };
        self.write(&self.keys, remembered, word);
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
            decision: Decision::Back {
                eager_ns: 1.0,
                compiled_ns: 2.0,
            },
        }
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
