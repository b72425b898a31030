//! The compilers of a machine.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use serde_json::Number;
use sweeper_cache::Kind;
use sweeper_program::{KernelSource, Language};

use super::cc;
use super::digests::Digests;
use super::nvrtc;
use super::{Bounds, CompileError, NEVER};
use crate::device::platform::platform;
use sweeper_model::hardware::DeviceKind;

/// A compiler that was found.
pub trait Compiler: Debug + Send + Sync {
    /// A digest that changes whenever the compiler would.
    fn identity(&self) -> &str;

    /// Its name, version and identity, for run ids.
    fn describe(&self) -> String;

    /// Its version and where it is from, for people.
    fn summary(&self) -> String;

    /// The options of every kernel, in the order given.
    fn options(&self) -> Vec<String>;

    /// Compiles one kernel for an instruction set.
    ///
    /// # Errors
    /// The compiler's complaints, a time-out, a stop, or the trouble that kept it from running.
    fn compile(
        &self,
        source: &KernelSource,
        arch: &str,
        bounds: &Bounds<'_>,
    ) -> Result<Made, CompileError>;
}

/// The output of a compiler.
#[derive(Default)]
pub struct Made {
    /// A shared object or a cubin.
    pub payload: Vec<u8>,
    /// Symbols of what the source was asked for by name expressions.
    pub symbols: BTreeMap<String, String>,
    /// What the compiler reported.
    pub log: String,
    /// How long it took, in nanoseconds.
    pub compile_ns: u64,
}

/// A language of kernels: its properties that count without a compiler, and how to find one.
pub struct LanguageFacts {
    /// The word of kernel keys.
    pub word: &'static str,
    /// The name of its compiler.
    pub compiler: &'static str,
    /// The word of the doctor's line about that.
    pub subject: &'static str,
    /// How every kernel is compiled, as kernel keys have it.
    pub options: &'static [&'static str],
    /// The kind of its artifacts in the cache.
    pub artifact: Kind,
    /// A kernel's use of a processor, as far as the compiler's report has it.
    pub resources: fn(&Made) -> BTreeMap<String, Number>,
    /// Looks for the compiler, or says why there is none, and the package to install.
    pub find: fn(&Search) -> Result<Box<dyn Compiler>, String>,
}

/// How many languages there are.
const LANGUAGES: usize = Language::Cuda as usize + 1;

/// The properties of a language.
pub fn facts(language: Language) -> &'static LanguageFacts {
    match language {
        Language::C => &cc::FACTS,
        Language::Cuda => &nvrtc::FACTS,
    }
}

/// How compilers are looked for.
#[derive(Debug)]
pub struct Search {
    /// The C compiler to use instead of the usual ones.
    pub named_cc: Option<PathBuf>,
    /// Digests of compilers that were looked at before.
    pub digests: Digests,
    /// Ends a search.
    pub stop: &'static AtomicBool,
}

/// The compilers that this machine has. Each is looked for when it is first asked for: that runs
/// programs, or reads a hundred megabytes.
#[derive(Clone, Debug)]
pub struct Toolchain {
    found: Arc<Found>,
}

/// Compilers, or why there are none, as far as anybody asked.
#[derive(Debug)]
struct Found {
    search: Search,
    /// By the number of each language.
    compilers: [OnceLock<Result<Box<dyn Compiler>, String>>; LANGUAGES],
}

/// A search that was begun ahead. It ends before the owner of this value does: a process that ended
/// in the middle of loading NVRTC would run destructors of objects that NVRTC is just constructing,
/// and crash.
#[must_use = "dropping it waits for the search"]
pub struct Ahead {
    thread: Option<JoinHandle<()>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A tool that a panicked search did not find is looked for again when it is needed.
            let _ = thread.join();
        }
    }
}

impl Toolchain {
    /// This machine's compilers. `cc` names the C compiler to use instead of the usual ones;
    /// digests of compilers are remembered in the folder of a cache.
    pub fn here(cc: Option<PathBuf>, cache: Option<&Path>) -> Self {
        Toolchain::here_until(cc, cache, &NEVER)
    }

    /// The compilers of this machine; searches end when `stop` is set, and then find none.
    pub fn here_until(
        cc: Option<PathBuf>,
        cache: Option<&Path>,
        stop: &'static AtomicBool,
    ) -> Self {
        let search = Search {
            named_cc: cc,
            digests: Digests::remembered_in(cache),
            stop,
        };
        Toolchain::with(search, [const { OnceLock::new() }; LANGUAGES])
    }

    /// No compilers, for this reason.
    pub fn none(reason: &str) -> Self {
        let search = Search {
            named_cc: None,
            digests: Digests::default(),
            stop: &NEVER,
        };
        let none = |_| OnceLock::from(Err(reason.to_owned()));
        Toolchain::with(search, std::array::from_fn(none))
    }

    fn with(
        search: Search,
        compilers: [OnceLock<Result<Box<dyn Compiler>, String>>; LANGUAGES],
    ) -> Self {
        Toolchain {
            found: Arc::new(Found { search, compilers }),
        }
    }

    /// Begins to look for the compiler that a kind of device needs, if it needs one, while the
    /// caller does something else.
    pub fn look_ahead(&self, kind: DeviceKind) -> Ahead {
        if !kind.facts().computes {
            return Ahead { thread: None };
        }
        let toolchain = self.clone();
        let look = move || drop(toolchain.identity(kind));
        let thread = thread::Builder::new().name("toolchain".to_owned());
        Ahead {
            // Without a thread, it is found when it is asked for.
            thread: thread.spawn(look).ok(),
        }
    }

    /// One line that identifies everything that counts for a kind of device, for run ids; equal
    /// lines, equal compilers.
    pub fn identity(&self, kind: DeviceKind) -> String {
        self.describe(platform(kind).language)
    }

    /// The compiler of a language, for people and run ids.
    pub(super) fn describe(&self, language: Language) -> String {
        match self.compiler(language) {
            Ok(compiler) => compiler.describe(),
            Err(_) => format!("no {}", facts(language).compiler),
        }
    }

    /// The compiler of a language.
    ///
    /// # Errors
    /// Why there is none, and the package to install.
    pub fn compiler(&self, language: Language) -> Result<&dyn Compiler, &str> {
        let Found { search, compilers } = &*self.found;
        let found = compilers[language as usize].get_or_init(|| (facts(language).find)(search));
        found.as_deref().map_err(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn no_search_outlives_who_began_it() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than it takes to get to the end of this test.
        let slow = folder.path().join("slow");
        fs::write(&slow, "#!/bin/sh\nsleep 0.3\nexit 1\n").unwrap();
        fs::set_permissions(&slow, fs::Permissions::from_mode(0o755)).unwrap();
        let toolchain = Toolchain::here(Some(slow), None);
        drop(toolchain.look_ahead(DeviceKind::Null));
        assert!(
            toolchain.found.compilers[0].get().is_none(),
            "it needs no compiler"
        );
        drop(toolchain.look_ahead(DeviceKind::Cpu));
        assert!(
            toolchain.found.compilers[0].get().is_some(),
            "it is still looked for"
        );
        let begun_and_failed = || -> Result<(), String> {
            let _ahead = toolchain.look_ahead(DeviceKind::Cuda);
            Err("something else".to_owned())?;
            Ok(())
        };
        begun_and_failed().unwrap_err();
        assert!(toolchain.found.compilers[1].get().is_some());
        assert_eq!(Arc::strong_count(&toolchain.found), 1);
    }
}
