//! What was found out about loops, kept beside kernels: a second run of a loop is compiled from its
//! first iteration, and one that did not pay is not compiled again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sweeper_cache::{Artifact, Cache, Key, KeyBuilder, Kind, Lookup, Metadata};

use crate::compile::CachePlace;
use crate::hardware::DeviceIdentity;

/// Version of a key's fields and of an entry's contents.
const SCHEMA: &str = "sweeper loop 1";

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
    /// There is no program, for this reason.
    Failed(String),
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
}

impl Memory {
    /// The memory in a cache, for loops on a device whose kernels a compiler makes. `settings` are
    /// those that decide, in words. Without a cache nothing is remembered.
    pub(super) fn open(
        place: Option<&CachePlace>,
        (device, compiler): (&DeviceIdentity, &str),
        first_operation: [u8; 32],
        settings: &str,
    ) -> Self {
        let cache = place.and_then(|place| Cache::open(place.config()).ok());
        let key = |place: u32| {
            let mut builder = KeyBuilder::new(SCHEMA)
                .field("kernels", env!("SWEEPER_KERNELS_DIGEST"))
                .field("device", &device.name)
                .field("operation", first_operation)
                .field("settings", settings)
                .field("place", place.to_string());
            for (name, value) in &device.details {
                builder = builder.field(&format!("device {name}"), value);
            }
            builder.compiler(compiler).finish()
        };
        Memory {
            cache,
            keys: (0..PLACES).map(key).collect(),
        }
    }

    /// All that is remembered.
    pub(super) fn all(&self) -> Vec<Remembered> {
        let Some(cache) = &self.cache else {
            return Vec::new();
        };
        let entries = self.keys.iter().filter_map(|key| cache.peek(key));
        let remembered = entries.map(|entry| postcard::from_bytes(entry.payload()).ok());
        remembered.flatten().collect()
    }

    /// Remembers a loop, in the first place that is free. Where none is, it is forgotten.
    pub(super) fn keep(&self, remembered: &Remembered) {
        let Some(cache) = &self.cache else {
            return;
        };
        let Ok(payload) = postcard::to_stdvec(remembered) else {
            return;
        };
        for key in &self.keys {
            match cache.try_lookup(key) {
                Some(Lookup::Miss(slot)) => {
                    slot.publish(Artifact {
                        kind: Kind::Loop,
                        payload,
                        metadata: metadata(remembered),
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

fn metadata(remembered: &Remembered) -> Metadata {
    let decision = match &remembered.decision {
        Decision::Kept { .. } => "kept",
        Decision::Back { .. } => "back",
        Decision::Failed(_) => "failed",
    };
    Metadata {
        sources: vec![format!("loop: {decision}")],
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
            decision: Decision::Failed("no".to_owned()),
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
            Memory::open(Some(&place), (&device, compiler), [operation; 32], settings)
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
        let nowhere = Memory::open(None, (&device, ""), [0; 32], "");
        nowhere.keep(&remembered(1));
        assert_eq!(nowhere.all(), []);
    }
}
