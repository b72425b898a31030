//! The oracle's answers, kept in the cache beside kernels: a problem that was judged once is judged
//! again without waiting for f64 on the host.
//!
//! An answer is found by the digest of the workloads' sources (the oracle's among them), by the
//! identity of the problem (workload, parameters, type, inputs), by the shapes of the smaller
//! problem that may stand for it, and by the phase. Like every entry it is checksummed, and goes
//! when room is needed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use safetensors::tensor::SafeTensors;
use sweeper_cache::{
    Artifact, Cache, Key, KeyBuilder, Kind, Lookup, MAX_ENTRY_BYTES, Metadata, Slot,
};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Phase, Problem, Tensors};

use crate::compile::CachePlace;
use sweeper_model::tensor_file;

/// Version of a key's fields and of an entry's contents.
const SCHEMA: &str = "sweeper oracle 1";

/// Answers that one worker stores take this part of the cache at most: kernels want room, too.
const SHARE: u64 = 4;

/// An answer is kept where making it takes longer than reading so many bytes a second would.
const READ_BYTES_PER_S: f64 = 5e8;

/// Room for names and shapes beside a file's elements.
const HEAD_BYTES: u64 = 1 << 16;

/// Answers that were given before, where there is a cache.
#[derive(Default)]
pub struct Answers {
    place: Option<CachePlace>,
    cache: Option<Cache>,
    /// Bytes that may still be stored.
    left_bytes: Mutex<u64>,
}

impl Answers {
    /// Opens the cache that a worker was told of. Without one the oracle is asked every time: the
    /// main process says why there is none.
    pub fn open(place: Option<&CachePlace>) -> Self {
        let Some(place) = place else {
            return Answers::default();
        };
        Answers {
            place: Some(place.clone()),
            cache: Cache::open(place.config()).ok(),
            left_bytes: Mutex::new(place.capacity_bytes / SHARE),
        }
    }

    /// The cache that they are in.
    pub fn place(&self) -> Option<&CachePlace> {
        self.place.as_ref()
    }

    /// The right outputs for `phase`, from the cache or by asking `oracle`. `id` is the identity of
    /// the problem, or of the problem that a smaller one stands for.
    ///
    /// # Errors
    /// Those of `oracle`.
    pub fn of<E>(
        &self,
        problem: &dyn Problem,
        id: &[u8; 32],
        phase: Phase,
        oracle: impl FnOnce() -> Result<Tensors, E>,
    ) -> Result<Tensors, E> {
        let Some(cache) = &self.cache else {
            return oracle();
        };
        let specs = problem.outputs(phase);
        let key = key(problem, &specs, id, phase);
        let slot = match cache.try_lookup(&key) {
            Some(Lookup::Hit(entry)) => {
                match read(entry.payload(), &specs) {
                    Some(answers) => return Ok(answers),
                    // No answer of this program.
                    None => _ = cache.set_aside(&entry.name()),
                }
                None
            }
            Some(Lookup::Miss(slot)) => Some(slot),
            // Another process computes the answer; waiting takes as long as asking.
            None => None,
        };
        let start = Instant::now();
        let answers = oracle()?;
        if let Some(slot) = slot {
            self.keep(slot, &answers, start.elapsed(), phase);
        }
        Ok(answers)
    }

    /// The right outputs for `phase`, if the cache has them.
    pub fn known(&self, problem: &dyn Problem, id: &[u8; 32], phase: Phase) -> Option<Tensors> {
        let specs = problem.outputs(phase);
        let key = key(problem, &specs, id, phase);
        let entry = self.cache.as_ref()?.peek(&key)?;
        read(entry.payload(), &specs)
    }

    /// Stores an answer that took longer than reading it will. One that is not stored is asked for
    /// again.
    fn keep(&self, slot: Slot, answers: &Tensors, took: Duration, phase: Phase) {
        let bytes = size_bytes(answers) + HEAD_BYTES;
        if took.as_secs_f64() > bytes as f64 / READ_BYTES_PER_S
            && bytes < MAX_ENTRY_BYTES
            && self.takes(bytes)
            && let Ok(payload) = tensor_file::to_file(answers)
        {
            let _ = slot.publish(Artifact {
                kind: Kind::Answer,
                payload,
                metadata: Metadata {
                    sources: vec![format!("oracle {phase}")],
                    options: Vec::new(),
                    arch: String::new(),
                    compiler: String::new(),
                    compile_ns: took.as_nanos() as u64,
                    created_ns: 0,
                    resources: std::collections::BTreeMap::new(),
                    symbols: Default::default(),
                    log_tail: String::new(),
                    key_fields: Vec::new(),
                },
            });
        }
    }

    /// True if so many more bytes may be stored.
    fn takes(&self, bytes: u64) -> bool {
        let Ok(mut left) = self.left_bytes.lock() else {
            return false;
        };
        let rest = left.checked_sub(bytes);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }
}

fn key(problem: &dyn Problem, specs: &[TensorSpec], id: &[u8; 32], phase: Phase) -> Key {
    let mut builder = KeyBuilder::new(SCHEMA)
        .field("kernels", sweeper_model::digests::digests().kernels)
        .field("problem", id)
        .field("phase", phase.to_string());
    for spec in problem.inputs().iter().chain(specs) {
        let shape = format!("{} {:?}", spec.dtype, spec.shape);
        builder = builder.field(&format!("tensor {}", spec.name), shape);
    }
    builder.compiler("").finish()
}

fn size_bytes(tensors: &Tensors) -> u64 {
    let sizes = tensors.values().map(|tensor| {
        let elements: usize = tensor.shape().iter().product();
        elements as u64 * tensor.dtype().size_bytes() as u64
    });
    sizes.sum()
}

/// The answers that an entry holds, if it has all outputs that are asked for.
fn read(payload: &[u8], specs: &[TensorSpec]) -> Option<Tensors> {
    let file = SafeTensors::deserialize(payload).ok()?;
    let answers = tensor_file::all_of(&file)?;
    let has = |spec: &TensorSpec| {
        let found = answers.get(&spec.name);
        found.is_some_and(|tensor| tensor.shape() == spec.shape)
    };
    specs.iter().all(has).then_some(answers)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use sweeper_program::inputs::InputKey;
    use sweeper_program::{Dtype, Parameters};
    use sweeper_workloads::registry;

    /// A problem, and how often its oracle was asked.
    struct Counted {
        problem: Box<dyn Problem>,
        asked: AtomicUsize,
    }

    fn counted(workload: &str, sizes: &[(&str, i64)]) -> Counted {
        let parameters: Parameters = sizes.iter().copied().collect();
        let workload = registry::workload(workload).unwrap();
        Counted {
            problem: workload.problem(&parameters, Dtype::F32).unwrap(),
            asked: AtomicUsize::new(0),
        }
    }

    fn ask(
        answers: &Answers,
        problem: &Counted,
        id: u8,
        inputs: &Tensors,
        phase: Phase,
    ) -> Tensors {
        let oracle = || {
            problem.asked.fetch_add(1, Ordering::Relaxed);
            // An answer that is read faster than it is made is worth keeping.
            std::thread::sleep(Duration::from_millis(5));
            Ok::<_, ()>(problem.problem.oracle(inputs, phase))
        };
        let answer = answers.of(&*problem.problem, &[id; 32], phase, oracle);
        answer.unwrap()
    }

    fn place(folder: &std::path::Path) -> CachePlace {
        CachePlace {
            dir: folder.join("cache"),
            upstream: Vec::new(),
            capacity_bytes: 100 << 20,
        }
    }

    #[test]
    fn an_answer_is_asked_for_once_by_all_processes_and_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [("T", 12), ("K", 3), ("C", 3), ("B", 2)];
        for problem in [
            counted("semicrf", &sizes),
            counted("mlp", &[]),
            counted(
                "layernorm",
                &[("batch", 2), ("sequence", 3), ("dimension", 8)],
            ),
        ] {
            let inputs = problem.problem.generate(&InputKey([7; 32]));
            let fresh = problem.problem.oracle(&inputs, Phase::Both);
            for round in 0..3 {
                let answers = Answers::open(Some(&place(folder.path())));
                let found = ask(&answers, &problem, 7, &inputs, Phase::Both);
                assert_eq!(found, fresh, "{round}");
                assert_eq!(problem.asked.load(Ordering::Relaxed), 1, "{round}");
                let known = answers.known(&*problem.problem, &[7; 32], Phase::Both);
                assert_eq!(known, Some(fresh.clone()), "{round}");
                let other = answers.known(&*problem.problem, &[9; 32], Phase::Both);
                assert_eq!(other, None);
            }
            // Another problem, another phase, no cache.
            let answers = Answers::open(Some(&place(folder.path())));
            ask(&answers, &problem, 8, &inputs, Phase::Both);
            ask(&answers, &problem, 7, &inputs, Phase::Forward);
            ask(&Answers::default(), &problem, 7, &inputs, Phase::Both);
            assert_eq!(problem.asked.load(Ordering::Relaxed), 4);
        }
    }

    #[test]
    fn answers_leave_room_for_kernels() {
        let answers = Answers {
            place: None,
            cache: None,
            left_bytes: Mutex::new(10),
        };
        assert!(answers.takes(6));
        assert!(!answers.takes(6));
        assert!(answers.takes(4));
    }
}
