//! NVRTC: finding it, its identity, and CUDA kernels to cubins.

pub mod apart;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, iter};

use serde::{Deserialize, Serialize};
use serde_json::Number;
use sha2::{Digest, Sha256};
use sweeper_cache::Kind;
use sweeper_program::KernelSource;

use super::digests::Digests;
use super::elf;
use super::toolchain::{self, LanguageFacts, Made};
use super::{Bounds, CompileError};
use crate::device::cuda::compiler::{Compilation, Compiler, Refusal, Text};
use sweeper_model::library_folders::{FOLDERS_VARIABLE, children, folders};

/// How every kernel is compiled, beside its architecture: the assembler reports registers and
/// spills.
pub const OPTIONS: &[&str] = &["--std=c++17", "--ptxas-options=-v"];

/// Since this version NVRTC has a cache of its own, beside the driver's. A cubin out of that cache
/// has no report of the assembler, and its time says nothing about the cost of compiling: that
/// cache is not used.
const FIRST_WITH_CACHE: (i32, i32) = (12, 9);

/// The option that turns this cache off.
const NO_CACHE: &str = "--no-cache";

/// The beginning of the library's name; its major version follows.
const NAME: &str = "libnvrtc.so.";

/// Major versions that can be used, the best first.
const MAJORS: [u32; 2] = [13, 12];

/// The compiler recurses over the source; a thread of its own has room for that.
const STACK_BYTES: usize = 64 << 20;

/// How often a wait for the compiler looks whether it should stop.
const TICK: Duration = Duration::from_millis(20);

/// Threads whose compilations did not finish in time.
static LATE: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// True while NVRTC compiles for a caller that no longer waits. A process that ended as usual would
/// run NVRTC's destructors under it, and crash.
pub fn is_left_at_work() -> bool {
    let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    if late.iter().any(|thread| !thread.is_finished()) {
        return true;
    }
    for thread in late.drain(..) {
        // An error is a panic of the thread, whose result is not needed any more.
        let _ = thread.join();
    }
    false
}

/// NVRTC.
#[derive(Clone)]
pub struct Nvrtc {
    compiler: Arc<Compiler>,
    /// Where it was found.
    pub path: PathBuf,
    /// NVRTC's version, such as `13.0`.
    pub version: String,
    /// The version of the package that it is from, such as `13.0.88`; NVRTC itself does not say.
    pub build: String,
    /// Digest of its libraries and its version: changes whenever the compiler would.
    pub identity: String,
    /// Whether it would answer from a cache of its own.
    has_cache: bool,
    /// Architectures that it compiles for, by number such as 90; empty where it does not say.
    architectures: Vec<i32>,
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Nvrtc {} ({})", self.version, self.path.display())
    }
}

/// The version in the name of the library's file, as a toolkit has it, or of the Python package
/// that it lies in.
fn build(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let is_full = |version: &&str| version.split('.').count() > 2;
    let of_file = file.file_name()?.to_str()?.strip_prefix(NAME);
    if let Some(version) = of_file.filter(is_full) {
        return Some(version.to_owned());
    }
    let mut above = file.ancestors();
    let packages = above.find(|it| it.ends_with("nvidia"))?.parent()?;
    let names = fs::read_dir(packages).ok()?;
    let mut versions = names.filter_map(|item| {
        let name = item.ok()?.file_name().into_string().ok()?;
        let of_package = name.strip_prefix("nvidia_cuda_nvrtc")?;
        let (_, version) = of_package.strip_suffix(".dist-info")?.split_once('-')?;
        Some(version.to_owned()).filter(|version| is_full(&version.as_str()))
    });
    // Of several packages nobody knows which one it is.
    versions.next().filter(|_| versions.next().is_none())
}

impl Nvrtc {
    /// The first NVRTC in the folders that `SWEEPER_CUDA_LIBS` names, in those of the CUDA toolkit,
    /// and in those of Python packages.
    ///
    /// # Errors
    /// The libraries that were found and failed, and the package to install.
    pub fn find(digests: &Digests) -> Result<Self, String> {
        Nvrtc::find_in(&folders(), digests)
    }

    /// The first NVRTC in `folders`.
    ///
    /// # Errors
    /// The libraries that were found and failed, and the package to install.
    pub fn find_in(folders: &[PathBuf], digests: &Digests) -> Result<Self, String> {
        let paths = folders
            .iter()
            .flat_map(|folder| MAJORS.map(|major| folder.join(format!("{NAME}{major}"))));
        let mut failed = Vec::new();
        for path in paths.filter(|path| path.is_file()) {
            match Nvrtc::at(path, digests) {
                Ok(found) => return Ok(found),
                Err(reason) => failed.push(reason),
            }
        }
        failed.extend(others(folders));
        let failed = match failed.as_slice() {
            [] => String::new(),
            _ => format!(" ({})", failed.join("; ")),
        };
        Err(format!(
            "no {NAME}{}{failed}: install the CUDA toolkit 13, or `pip install \
             nvidia-cuda-nvrtc==13.0.88`, or set {FOLDERS_VARIABLE} to the folder that holds it",
            MAJORS[0]
        ))
    }

    fn at(path: PathBuf, digests: &Digests) -> Result<Self, String> {
        let (compiler, builtins) = Compiler::load(&path)?;
        let (major, minor) = compiler.version()?;
        let version = format!("{major}.{minor}");
        let mut hasher = Sha256::new();
        for part in [&path, &builtins] {
            let digest = digests.of(part);
            hasher.update(digest.map_err(|error| format!("{}: {error}", part.display()))?);
        }
        hasher.update(&version);
        Ok(Nvrtc {
            build: build(&path).unwrap_or_else(|| version.clone()),
            architectures: compiler.architectures(),
            compiler: Arc::new(compiler),
            path,
            version,
            has_cache: (major, minor) >= FIRST_WITH_CACHE,
            identity: hex::encode(hasher.finalize()),
        })
    }

    /// Why it can't compile for an architecture, if it can't.
    fn refuses(&self, arch: &str) -> Option<String> {
        let number = arch.trim_start_matches("sm_");
        let number = number.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let known = &self.architectures;
        if known.is_empty() || number.parse().is_ok_and(|number| known.contains(&number)) {
            return None;
        }
        let known: Vec<String> = known.iter().map(|number| format!("sm_{number}")).collect();
        Some(format!(
            "NVRTC {} does not compile for {arch}; it does for {}",
            self.version,
            known.join(", ")
        ))
    }

    /// Compiles one kernel for an architecture, such as `sm_90a`, straight to a cubin.
    ///
    /// NVRTC can't be interrupted: where it does not finish in time, its thread is left to itself,
    /// and [`is_left_at_work`] until it ends.
    ///
    /// # Errors
    /// NVRTC's complaints, a time-out, or the reason why it could not run.
    pub fn compile(
        &self,
        source: &KernelSource,
        arch: &str,
        bounds: &Bounds<'_>,
    ) -> Result<Compilation, CompileError> {
        if let Some(reason) = self.refuses(arch) {
            return Err(CompileError::Unavailable(reason));
        }
        let mut order = Order::new(source, arch);
        if self.has_cache {
            order.options.push(NO_CACHE.to_owned());
        }
        if source.user.as_ref().is_some_and(|user| user.is_untrusted) {
            return apart::compile(&self.path, &order, bounds);
        }
        let compiler = Arc::clone(&self.compiler);
        let (sender, receiver) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("nvrtc".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // After a time-out there is no receiver any more.
                let _ = sender.send(order.fill(&compiler));
            })
            .map_err(|error| CompileError::Surroundings(format!("a thread: {error}")))?;
        let start = Instant::now();
        let answer = loop {
            let answer = receiver.recv_timeout(TICK);
            let is_late = start.elapsed() >= bounds.limit;
            if !matches!(answer, Err(mpsc::RecvTimeoutError::Timeout)) {
                break answer;
            }
            if is_late || bounds.is_stopped() {
                let mut late = LATE.lock().unwrap_or_else(PoisonError::into_inner);
                late.push(thread);
                return Err(match is_late {
                    true => CompileError::Timeout {
                        limit: bounds.limit,
                    },
                    false => CompileError::Stopped,
                });
            }
        };
        // The thread has answered, or panicked; NVRTC's memory for a thread is gone when the thread
        // is.
        let _ = thread.join();
        match answer {
            Ok(answer) => understood(answer),
            Err(_) => Err(CompileError::Surroundings(
                "the thread that compiles panicked".to_owned(),
            )),
        }
    }
}

/// The properties of CUDA.
pub const FACTS: LanguageFacts = LanguageFacts {
    word: "cuda",
    compiler: "nvrtc",
    subject: "nvrtc",
    options: OPTIONS,
    artifact: Kind::Cubin,
    resources: |made| resources(&made.log, &made.symbols),
    find: |search| Ok(Box::new(Nvrtc::find(&search.digests)?)),
};

impl toolchain::Compiler for Nvrtc {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn describe(&self) -> String {
        format!("nvrtc {} ({})", self.build, &self.identity[..12])
    }

    fn summary(&self) -> String {
        format!("{} at {}", self.version, self.path.display())
    }

    fn options(&self) -> Vec<String> {
        OPTIONS.iter().map(ToString::to_string).collect()
    }

    fn compile(
        &self,
        source: &KernelSource,
        arch: &str,
        bounds: &Bounds<'_>,
    ) -> Result<Made, CompileError> {
        let compilation = self.compile(source, arch, bounds)?;
        elf::check(&compilation.cubin)
            .map_err(|reason| CompileError::Surroundings(format!("NVRTC's cubin {reason}")))?;
        Ok(Made {
            payload: compilation.cubin,
            symbols: compilation.symbols,
            log: compilation.log,
            compile_ns: 0,
        })
    }
}

/// A sentence about libraries in `folders` whose versions can't be used.
fn others(folders: &[PathBuf]) -> Option<String> {
    let is_major = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let found = folders.iter().flat_map(|folder| children(folder, NAME));
    let mut foreign = found.filter_map(|path| {
        let name = path.file_name()?.to_str()?;
        let major = name.strip_prefix(NAME).filter(|major| is_major(major))?;
        let usable = MAJORS.iter().any(|usable| usable.to_string() == major);
        (!usable).then(|| format!("{} is NVRTC {major}, 13 or 12 is needed", path.display()))
    });
    foreign.next()
}

/// A kernel as NVRTC takes it.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// Names and texts of files, the kernel's first.
    files: Vec<(String, String)>,
    options: Vec<String>,
    /// Expressions whose symbols are asked for.
    names: Vec<String>,
}

impl Order {
    fn new(source: &KernelSource, arch: &str) -> Self {
        let files = source.files.iter();
        let files = files.map(|file| (file.name.to_string(), file.text.to_string()));
        let arch = format!("--gpu-architecture={arch}");
        let common = OPTIONS.iter().map(|&option| option.to_owned());
        let defines = source.defines.iter();
        let defines = defines.map(|(name, value)| format!("-D{name}={value}"));
        let own = source.options.iter().map(ToString::to_string);
        let options = iter::once(arch).chain(common).chain(own).chain(defines);
        let names = source.user.iter().flat_map(|user| &user.names);
        Order {
            files: files.collect(),
            options: options.collect(),
            names: names.map(ToString::to_string).collect(),
        }
    }

    fn fill(&self, compiler: &Compiler) -> Result<Compilation, Refusal> {
        let files = self.files.iter();
        let files = files.map(|(name, text)| {
            Ok(Text {
                name: zero_ended(name)?,
                text: zero_ended(text)?,
            })
        });
        let files = files.collect::<Result<Vec<Text>, Refusal>>()?;
        let all = |texts: &[String]| texts.iter().map(|text| zero_ended(text)).collect();
        let (options, names): (Result<Vec<CString>, _>, Result<Vec<CString>, _>) =
            (all(&self.options), all(&self.names));
        compiler.compile(&files, &options?, &names?)
    }
}

fn zero_ended(text: &str) -> Result<CString, Refusal> {
    CString::new(text).map_err(|_| Refusal::Source {
        log: "the source or a define holds a zero byte".to_owned(),
    })
}

/// A compilation, or the error that a refusal is.
fn understood(answer: Result<Compilation, Refusal>) -> Result<Compilation, CompileError> {
    answer.map_err(|refusal| match refusal {
        Refusal::Source { log } => CompileError::rejected(&log),
        Refusal::Compiler(reason) => CompileError::Surroundings(reason),
    })
}

/// Resources of those of a cubin's kernels that have these symbols, or of all where none has, out
/// of the assembler's report: registers of a thread, and bytes of a thread's spills and of a
/// block's static shared memory, the greatest of each.
pub fn resources(log: &str, symbols: &BTreeMap<String, String>) -> BTreeMap<String, Number> {
    let kernels = log.split("Compiling entry function '").skip(1);
    let is_meant = |kernel: &&str| {
        let name = kernel.split('\'').next().unwrap_or_default();
        symbols.values().any(|symbol| symbol == name)
    };
    let meant: Vec<&str> = kernels.filter(is_meant).collect();
    let reports = if meant.is_empty() { vec![log] } else { meant };
    let greatest = |before_unit: &str| {
        let counts = reports.iter().flat_map(|report| {
            let places = report.match_indices(before_unit);
            places.filter_map(|(at, _)| {
                let digits = report[..at]
                    .rsplit(|letter: char| !letter.is_ascii_digit())
                    .next();
                digits.and_then(|digits| digits.parse::<u64>().ok())
            })
        });
        counts.max()
    };
    let named = [
        ("registers", " registers"),
        ("spill_store_bytes", " bytes spill stores"),
        ("spill_load_bytes", " bytes spill loads"),
        ("static_shared_bytes", " bytes smem"),
    ];
    let found = named.into_iter().filter_map(|(name, unit)| {
        let count = greatest(unit)?;
        Some((name.to_owned(), Number::from(count)))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::fs;
    use std::io::Write;

    use sweeper_program::{CanonicalShape, Dtype, Language, Parameters, Phase, SourceFile, Target};
    use sweeper_workloads::registry;

    use super::*;

    const LONG: &Bounds<'static> = &Bounds {
        limit: Duration::from_secs(60),
        stop: &crate::compile::NEVER,
    };

    /// NVRTC, unless there is none here and it is not required.
    fn nvrtc() -> Option<Nvrtc> {
        match Nvrtc::find(&Digests::default()) {
            Ok(nvrtc) => Some(nvrtc),
            Err(reason) => {
                let required = std::env::var("SWEEPER_REQUIRE").unwrap_or_default();
                assert!(!required.split(',').any(|what| what == "nvrtc"), "{reason}");
                let thread = std::thread::current();
                let test = thread.name().unwrap_or("a test");
                // Not by a macro: output of macros is kept from the screen where a test passes.
                let said = format!("skipped for want of nvrtc: {test}: {reason}\n");
                std::io::stderr().write_all(said.as_bytes()).unwrap();
                None
            }
        }
    }

    fn kernel(files: &[(&'static str, &'static str)]) -> KernelSource {
        let files = files
            .iter()
            .map(|&(name, text)| SourceFile::embedded(name, text));
        KernelSource {
            language: Language::Cuda,
            files: Cow::Owned(files.collect()),
            entry: "f".into(),
            defines: vec![KernelSource::define("ANSWER", 42)],
            options: Vec::new(),
            user: None,
        }
    }

    /// The kernel of `copy` for an architecture.
    fn copy(arch: &str) -> KernelSource {
        let parameters: Parameters = [("elements", 1000)].into_iter().collect();
        let workload = registry::workload("copy").unwrap();
        let problem = workload.problem(&parameters, Dtype::F32).unwrap();
        let (shape, arch) = (CanonicalShape::default(), arch.to_owned());
        let target = Target::Cuda { arch };
        let program = problem.program("compiled", Phase::Forward, &shape, &target);
        program.unwrap().compiled().next().unwrap().clone()
    }

    #[test]
    fn the_same_source_gives_the_same_bytes() {
        let Some(nvrtc) = nvrtc() else { return };
        for arch in ["sm_80", "sm_90a"] {
            let first = nvrtc.compile(&copy(arch), arch, LONG).unwrap();
            assert!(first.cubin.starts_with(b"\x7fELF"));
            let again = nvrtc.compile(&copy(arch), arch, LONG).unwrap();
            assert_eq!(first.cubin, again.cubin);
            // On a machine with a driver NVRTC would remember the second: then nothing is reported.
            for log in [first.log, again.log] {
                let found = resources(&log, &BTreeMap::new());
                assert!(found.contains_key("registers"), "{log}");
            }
        }
    }

    #[test]
    fn headers_are_found_by_name_and_complaints_are_kept() {
        let Some(nvrtc) = nvrtc() else { return };
        let header = ("answer.h", "__device__ int answer() { return ANSWER; }");
        let main =
            "#include \"answer.h\"\nextern \"C\" __global__ void f(int *x) { *x = answer(); }";
        nvrtc
            .compile(&kernel(&[("main.cu", main), header]), "sm_80", LONG)
            .unwrap();
        let bad = kernel(&[("main.cu", "__global__ void f(int *x) { *x = nothing; }")]);
        match nvrtc.compile(&bad, "sm_80", LONG) {
            Err(CompileError::Rejected { log }) => {
                assert!(log.contains("nothing") && log.contains("main.cu"), "{log}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it was compiled"),
        }
        match nvrtc.compile(&copy("sm_80"), "sm_1", LONG) {
            Err(CompileError::Unavailable(reason)) => {
                assert!(reason.contains("sm_90"), "{reason}");
            }
            _ => panic!("there is no sm_1"),
        }
    }

    #[test]
    fn what_is_missing_is_said_and_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned(), PathBuf::from("/nowhere")];
        let message = || Nvrtc::find_in(&folders, &Digests::default()).unwrap_err();
        let holds = |message: &str, words: &[&str]| {
            for word in words {
                assert!(message.contains(word), "{word}: {message}");
            }
        };
        holds(&message(), &["pip install nvidia-cuda-nvrtc"]);
        fs::write(folder.path().join("libnvrtc.so.11"), "old").unwrap();
        holds(&message(), &["is NVRTC 11, 13 or 12 is needed"]);
        fs::write(folder.path().join("libnvrtc.so.13"), "no library").unwrap();
        let path = folder.path().to_string_lossy().into_owned();
        holds(&message(), &["libnvrtc.so.13", FOLDERS_VARIABLE, &path]);
        let Some(nvrtc) = nvrtc() else { return };
        let copy = folder.path().join(nvrtc.path.file_name().unwrap());
        fs::copy(&nvrtc.path, copy).unwrap();
        holds(&message(), &["is not beside it", "libnvrtc-builtins.so."]);
    }

    #[test]
    fn the_report_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'f' for 'sm_80'\n\
                   ptxas info    : Function properties for f\n    \
                   24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Used 40 registers, used 0 barriers, 512 bytes smem\n\
                   ptxas info    : Compiling entry function 'g' for 'sm_80'\n\
                   ptxas info    : Used 12 registers, used 0 barriers\n";
        let expected = [
            ("registers", 40u64),
            ("spill_load_bytes", 8),
            ("spill_store_bytes", 16),
            ("static_shared_bytes", 512),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), Number::from(count)));
        let symbol = |name: &str| [("entry".to_owned(), name.to_owned())].into();
        for symbols in [BTreeMap::new(), symbol("f"), symbol("h")] {
            assert_eq!(resources(log, &symbols), expected.clone().into());
        }
        let of_other = [("registers".to_owned(), Number::from(12u64))];
        assert_eq!(resources(log, &symbol("g")), of_other.into());
        assert!(resources("", &BTreeMap::new()).is_empty());
    }
}
