//! Kernels through the cache: found, or compiled and stored.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Number;
use sweeper_cache::{
    Cache, Catalog, Entry, Explanation, Key, KeyBuilder, Kind, Lookup, Metadata, Slot, Warning,
};
use sweeper_program::{KernelSource, Language};

use super::toolchain::{Compiler, Made, Toolchain, facts};
use super::{Bounds, CompileError};
use crate::device::Artifact;
use sweeper_model::hardware::DeviceIdentity;

/// Version of the fields below; a new one makes every kernel new.
const KEY_SCHEMA: &str = "sweeper kernel 2";

/// The most of a compiler's log that is kept with an entry, in bytes.
const LOG_TAIL_BYTES: usize = 4096;

/// Where a kernel came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The cache held it.
    Hit,
    /// The kernel was compiled now.
    Built,
}

/// A kernel that is ready to be loaded.
#[derive(Clone, Debug)]
pub struct Built {
    /// The artifact that the device loads.
    pub artifact: Artifact,
    /// Where it came from.
    pub origin: Origin,
    /// How long compiling it took, then or now, in nanoseconds.
    pub compile_ns: u64,
    /// When that ended, in nanoseconds since 1970.
    pub compiled_at_ns: u64,
    /// How long it took to read it from the cache: back again, if it was compiled now. Absent where
    /// it did not come to be in a cache.
    pub read_ns: Option<u64>,
    /// The compiler that made it.
    pub compiler: String,
    /// The kernel's use of a processor, as far as the compiler's log has it: registers, bytes of
    /// spills.
    pub resources: BTreeMap<String, Number>,
    /// Why the cache did not take it, if that is so.
    pub warning: Option<Warning>,
    /// The kernel was found, and another compiler than this machine's made it.
    pub is_foreign: bool,
}

impl Built {
    /// Bytes that a thread writes to memory because it has no registers for them.
    pub fn spilled_bytes(&self) -> u64 {
        let spilled = self.resources.get("spill_store_bytes");
        spilled.and_then(Number::as_u64).unwrap_or(0)
    }
}

/// Registers and spilled bytes of a thread, in words; none where the compiler's log has none.
pub fn resources_in_words(resources: &BTreeMap<String, Number>) -> Option<String> {
    let count = |name: &str| resources.get(name).and_then(Number::as_u64);
    let registers = count("registers")?;
    Some(match count("spill_store_bytes") {
        Some(bytes) if bytes > 0 => format!("{registers} registers, {bytes} bytes spilled"),
        _ => format!("{registers} registers"),
    })
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Compiles kernels for one device.
pub struct Kernels<'a> {
    /// The compilers.
    pub toolchain: &'a Toolchain,
    /// The cache; without one everything is compiled.
    pub cache: Option<&'a Cache>,
    /// The device that the kernels are for.
    pub device: &'a DeviceIdentity,
    /// How long one kernel may take.
    pub limit: Duration,
    /// Fail instead of compiling.
    pub require_cached: bool,
    /// Set when the run is to stop: compilers are ended then, and no wait goes on.
    pub stop: &'a AtomicBool,
}

/// The key of a kernel that a compiler makes for an instruction set with some options.
fn key(source: &KernelSource, arch: &str, options: &[&str], compiler: &str) -> Key {
    let language = facts(source.language).word;
    let mut builder = KeyBuilder::new(KEY_SCHEMA)
        .field("language", language)
        .field("arch", arch);
    for file in source.files.iter() {
        builder = builder.field(&format!("file {}", file.name), file.text.as_bytes());
    }
    for option in options {
        builder = builder.field("option", option);
    }
    for (name, value) in &source.defines {
        builder = builder.field(&format!("define {name}"), value);
    }
    for option in &source.options {
        builder = builder.field("own option", option.as_ref());
    }
    if let Some(user) = &source.user {
        let fields = [("library", &user.libraries), ("name", &user.names)];
        for (field, values) in fields {
            for value in values {
                builder = builder.field(field, value);
            }
        }
        // What a sandbox keeps a compiler from reading must not be missing for others.
        if user.is_untrusted {
            builder = builder.field("sandbox", "yes");
        }
    }
    builder.compiler(compiler).finish()
}

impl Kernels<'_> {
    /// The key of a kernel: everything that its machine code depends on. Functions of one source
    /// have one key.
    ///
    /// The instruction set is the device's, so that a machine without a compiler arrives at the
    /// same key; the meaning of `-march=native` is part of the compiler's identity.
    pub fn key(&self, source: &KernelSource) -> Key {
        let options = facts(source.language).options;
        let compiler = self.toolchain.compiler(source.language);
        let compiler = compiler.map_or("", Compiler::identity);
        key(source, self.arch(), options, compiler)
    }

    fn arch(&self) -> &str {
        let details = &self.device.details;
        details
            .get("isa")
            .or(details.get("arch"))
            .map_or("", String::as_str)
    }

    /// The kernel, from the cache or compiled now.
    ///
    /// # Errors
    /// A [`CompileError`]; one that would come again is remembered by the cache.
    pub fn get(&self, source: &KernelSource) -> Result<Built, CompileError> {
        let key = self.key(source);
        let Some(cache) = self.cache else {
            let made = self.compile(source)?;
            return Ok(self.built(source, &key, made));
        };
        let start = Instant::now();
        if let Err(reason) = self.toolchain.compiler(source.language) {
            return match cache.lookup_any_compiler(&key) {
                Some(entry) => self.found(source.language, &key, &entry, start),
                // A search that was stopped found none.
                None if self.bounds().is_stopped() => Err(CompileError::Stopped),
                None => Err(CompileError::Unavailable(reason.to_owned())),
            };
        }
        if self.require_cached {
            // Where nothing may be compiled, a kernel that a login node's compiler made will do;
            // the result says so.
            return match cache.lookup_any_compiler(&key) {
                Some(entry) => self.found(source.language, &key, &entry, start),
                None => Err(CompileError::Unavailable(format!(
                    "`{}` is not in the cache, and --require-cached forbids to compile it",
                    source.title()
                ))),
            };
        }
        match cache.lookup_unless(&key, || self.bounds().is_stopped()) {
            Some(Lookup::Hit(entry)) => self.found(source.language, &key, &entry, start),
            Some(Lookup::Miss(slot)) => self.build(source, &key, slot),
            None => Err(CompileError::Stopped),
        }
    }

    /// How a kernel's key differs from the keys in a cache.
    pub fn explain(&self, source: &KernelSource, catalog: &Catalog) -> Explanation {
        let compiler = self.toolchain.describe(source.language);
        catalog.explain(&self.key(source), &compiler)
    }

    fn bounds(&self) -> Bounds<'_> {
        Bounds {
            limit: self.limit,
            stop: self.stop,
        }
    }

    /// Sets the kernel's entry aside, so that it is compiled again: it can't be used. Yields
    /// whether there was one.
    pub fn set_aside(&self, source: &KernelSource) -> bool {
        let name = self.key(source).name();
        self.cache.is_some_and(|cache| cache.set_aside(&name))
    }

    /// Compiles a kernel, and stores the artifact or the failure.
    fn build(&self, source: &KernelSource, key: &Key, slot: Slot) -> Result<Built, CompileError> {
        match self.compile(source) {
            Ok(mut made) => {
                let metadata = self.metadata(source, &made);
                let published = slot.publish(sweeper_cache::Artifact {
                    kind: facts(source.language).artifact,
                    payload: std::mem::take(&mut made.payload),
                    metadata,
                });
                made.payload = published.entry.payload().to_vec();
                let mut built = self.built(source, key, made);
                built.compiled_at_ns = published.entry.metadata().created_ns;
                built.warning = published.warning;
                built.read_ns = self.read_ns(key);
                Ok(built)
            }
            Err(CompileError::Rejected { log }) => {
                let failed = Made {
                    log,
                    ..Made::default()
                };
                let metadata = self.metadata(source, &failed);
                slot.publish(sweeper_cache::Artifact {
                    kind: Kind::Failure,
                    payload: failed.log.clone().into_bytes(),
                    metadata,
                });
                Err(CompileError::Rejected { log: failed.log })
            }
            Err(error) => Err(error),
        }
    }

    /// True if the cache holds the kernel, without counting it as used.
    pub fn is_cached(&self, source: &KernelSource) -> bool {
        let key = self.key(source);
        let compiler = self.toolchain.compiler(source.language);
        self.cache.is_some_and(|cache| match compiler {
            Ok(_) => cache.peek(&key).is_some(),
            Err(_) => cache.lookup_any_compiler(&key).is_some(),
        })
    }

    /// How long it takes to read an entry from the cache, if it is there.
    fn read_ns(&self, key: &Key) -> Option<u64> {
        let start = Instant::now();
        self.cache?.peek(key)?;
        Some(start.elapsed().as_nanos() as u64)
    }

    /// The kernel in an entry that was looked for since `start`.
    fn found(
        &self,
        language: Language,
        key: &Key,
        entry: &Entry,
        start: Instant,
    ) -> Result<Built, CompileError> {
        let read_ns = Some(start.elapsed().as_nanos() as u64);
        if entry.kind() == Kind::Failure {
            let log = String::from_utf8_lossy(entry.payload()).into_owned();
            return Err(CompileError::Rejected { log });
        }
        let is_here = self.toolchain.compiler(language).is_ok();
        Ok(Built {
            is_foreign: is_here && entry.name() != key.name(),
            artifact: Artifact {
                key: entry.name().hex(),
                bytes: entry.payload().into(),
                symbols: entry.metadata().symbols.clone(),
            },
            origin: Origin::Hit,
            compile_ns: entry.metadata().compile_ns,
            compiled_at_ns: entry.metadata().created_ns,
            read_ns,
            compiler: entry.metadata().compiler.clone(),
            resources: entry.metadata().resources.clone(),
            warning: None,
        })
    }

    fn built(&self, source: &KernelSource, key: &Key, made: Made) -> Built {
        let resources = (facts(source.language).resources)(&made);
        Built {
            artifact: Artifact {
                key: key_text(key),
                bytes: made.payload.into(),
                symbols: made.symbols,
            },
            origin: Origin::Built,
            compile_ns: made.compile_ns,
            compiled_at_ns: now_ns(),
            read_ns: None,
            compiler: self.toolchain.describe(source.language),
            resources,
            warning: None,
            is_foreign: false,
        }
    }

    fn metadata(&self, source: &KernelSource, made: &Made) -> Metadata {
        let log = &made.log;
        let defines = source
            .defines
            .iter()
            .map(|(name, value)| format!("-D{name}={value}"));
        let compiler = self.toolchain.compiler(source.language);
        let options = compiler.map_or_else(|_| Vec::new(), Compiler::options);
        let own = source.options.iter().map(ToString::to_string);
        let start = log.floor_char_boundary(log.len().saturating_sub(LOG_TAIL_BYTES));
        Metadata {
            sources: vec![source.main_file().to_owned()],
            options: options.into_iter().chain(own).chain(defines).collect(),
            arch: self.arch().to_owned(),
            compiler: self.toolchain.describe(source.language),
            compile_ns: made.compile_ns,
            created_ns: 0,
            resources: (facts(source.language).resources)(made),
            symbols: made.symbols.clone(),
            log_tail: log[start..].to_owned(),
            key_fields: Vec::new(),
        }
    }

    fn compile(&self, source: &KernelSource) -> Result<Made, CompileError> {
        if self.require_cached {
            return Err(CompileError::Unavailable(
                "there is no cache, and --require-cached forbids to compile".to_owned(),
            ));
        }
        let start = Instant::now();
        let unavailable = |reason: &str| CompileError::Unavailable(reason.to_owned());
        let compiler = self
            .toolchain
            .compiler(source.language)
            .map_err(unavailable)?;
        let mut made = compiler.compile(source, self.arch(), &self.bounds())?;
        made.compile_ns = start.elapsed().as_nanos() as u64;
        Ok(made)
    }

    /// All of `sources`, in their order, by up to `threads` threads. `done` is told of each as it
    /// is finished, by its position.
    pub fn get_all(
        &self,
        sources: &[&KernelSource],
        threads: usize,
        done: &(dyn Fn(usize, &Result<Built, CompileError>) + Sync),
    ) -> Vec<Result<Built, CompileError>> {
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Result<Built, CompileError>>>> =
            Mutex::new(sources.iter().map(|_| None).collect());
        let work = || {
            loop {
                let position = next.fetch_add(1, Ordering::Relaxed);
                let Some(source) = sources.get(position) else {
                    return;
                };
                let result = match self.bounds().is_stopped() {
                    true => Err(CompileError::Stopped),
                    false => self.get(source),
                };
                done(position, &result);
                if let Ok(mut results) = results.lock() {
                    results[position] = Some(result);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.clamp(1, sources.len().max(1)) {
                // Where there are no more threads, fewer do it.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        let lost = || {
            Err(CompileError::Surroundings(
                "a compile thread panicked".to_owned(),
            ))
        };
        let results = results.into_inner().unwrap_or_default();
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(lost))
            .collect()
    }
}

/// A kernel key in full: the digest of everything but the compiler, then the compiler's.
pub fn key_text(key: &Key) -> String {
    key.name().hex()
}

#[cfg(test)]
mod tests;
