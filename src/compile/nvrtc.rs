//! NVRTC: where it is, what it is, and CUDA kernels to cubins.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use serde_json::Number;
use sha2::{Digest, Sha256};
use sweeper_kernels::program::KernelSource;

use super::CompileError;
use crate::device::cuda::compiler::{Compilation, Compiler, Refusal, Text};

/// How every kernel is compiled, beside its architecture: the assembler tells what it used.
pub const OPTIONS: &[&str] = &["--std=c++17", "--ptxas-options=-v"];

/// Names a list of folders that are looked into before all others, separated as in `PATH`.
pub const FOLDERS_VARIABLE: &str = "SWEEPER_CUDA_LIBS";

/// Names of the library, the best first.
const NAMES: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];

/// The compiler recurses over the source; a thread of its own has room for that.
const STACK_BYTES: usize = 64 << 20;

/// NVRTC.
#[derive(Clone)]
pub struct Nvrtc {
    compiler: Arc<Compiler>,
    /// Where it was found.
    pub path: PathBuf,
    /// Its version, such as `13.0`.
    pub version: String,
    /// Digest of its libraries and its version: changes whenever the compiler would.
    pub identity: String,
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Nvrtc {} ({})", self.version, self.path.display())
    }
}

impl Nvrtc {
    /// The first NVRTC in the folders that `SWEEPER_CUDA_LIBS` names, in those of the CUDA toolkit,
    /// and in those of Python packages.
    ///
    /// # Errors
    /// What was found and failed, and what to install.
    pub fn find() -> Result<Self, String> {
        Nvrtc::find_in(&folders())
    }

    /// The first NVRTC in `folders`.
    ///
    /// # Errors
    /// What was found and failed, and what to install.
    pub fn find_in(folders: &[PathBuf]) -> Result<Self, String> {
        let paths = folders
            .iter()
            .flat_map(|folder| NAMES.map(|name| folder.join(name)));
        let mut failed = Vec::new();
        for path in paths.filter(|path| path.is_file()) {
            match Nvrtc::at(path) {
                Ok(found) => return Ok(found),
                Err(reason) => failed.push(reason),
            }
        }
        let failed = match failed.as_slice() {
            [] => String::new(),
            _ => format!(" ({})", failed.join("; ")),
        };
        Err(format!(
            "no {}{failed}: install the CUDA toolkit 13, or `pip install nvidia-cuda-nvrtc==13.0.88`, \
             or set {FOLDERS_VARIABLE} to the folder that holds it",
            NAMES[0]
        ))
    }

    fn at(path: PathBuf) -> Result<Self, String> {
        let (compiler, builtins) = Compiler::load(&path)?;
        let (major, minor) = compiler.version()?;
        let version = format!("{major}.{minor}");
        let mut hasher = Sha256::new();
        for part in [&path, &builtins] {
            let mut file =
                File::open(part).map_err(|error| format!("{}: {error}", part.display()))?;
            std::io::copy(&mut file, &mut hasher)
                .map_err(|error| format!("{}: {error}", part.display()))?;
        }
        hasher.update(&version);
        Ok(Nvrtc {
            compiler: Arc::new(compiler),
            path,
            version,
            identity: hex::encode(hasher.finalize()),
        })
    }

    /// Compiles one kernel for an architecture, such as `sm_90a`, straight to a cubin.
    ///
    /// NVRTC can't be interrupted: where it does not finish in time, its thread is left to itself.
    ///
    /// # Errors
    /// NVRTC's complaints, a time-out, or what kept it from running.
    pub fn compile(
        &self,
        source: &KernelSource,
        arch: &str,
        limit: Duration,
    ) -> Result<Compilation, CompileError> {
        let files = texts(source)?;
        let options = options(source, arch)?;
        let compiler = Arc::clone(&self.compiler);
        let (sender, receiver) = mpsc::sync_channel(1);
        std::thread::Builder::new()
            .name("nvrtc".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                // Nobody waits any more after a time-out.
                let _ = sender.send(compiler.compile(&files, &options));
            })
            .map_err(|error| CompileError::Surroundings(format!("a thread: {error}")))?;
        match receiver.recv_timeout(limit) {
            Ok(Ok(compilation)) => Ok(compilation),
            Ok(Err(Refusal::Source { log })) => Err(CompileError::Rejected { log }),
            Ok(Err(Refusal::Compiler(reason))) => Err(CompileError::Surroundings(reason)),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(CompileError::Timeout { limit }),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(CompileError::Surroundings(
                "the thread that compiles panicked".to_owned(),
            )),
        }
    }
}

fn texts(source: &KernelSource) -> Result<Vec<Text>, CompileError> {
    let files = source.files.iter();
    files
        .map(|file| {
            Ok(Text {
                name: zero_ended(file.name.as_ref())?,
                text: zero_ended(file.text.as_ref())?,
            })
        })
        .collect()
}

fn options(source: &KernelSource, arch: &str) -> Result<Vec<CString>, CompileError> {
    let arch = format!("--gpu-architecture={arch}");
    let common = OPTIONS.iter().map(|&option| option.to_owned());
    let defines = source.defines.iter();
    let defines = defines.map(|(name, value)| format!("-D{name}={value}"));
    std::iter::once(arch)
        .chain(common)
        .chain(defines)
        .map(|option| zero_ended(&option))
        .collect()
}

fn zero_ended(text: &str) -> Result<CString, CompileError> {
    CString::new(text).map_err(|_| CompileError::Rejected {
        log: "the source or a define holds a zero byte".to_owned(),
    })
}

/// Where NVRTC may be, the likeliest first, each folder once.
fn folders() -> Vec<PathBuf> {
    let variable = |name: &str| {
        let value = std::env::var_os(name).unwrap_or_default();
        std::env::split_paths(&value)
            .filter(|path| !path.as_os_str().is_empty())
            .collect::<Vec<_>>()
    };
    let mut found = variable(FOLDERS_VARIABLE);
    let mut toolkits: Vec<PathBuf> = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .flat_map(&variable)
        .collect();
    toolkits.extend(children(Path::new("/usr/local"), "cuda"));
    let arch = std::env::consts::ARCH;
    for toolkit in toolkits {
        found.push(toolkit.join(format!("targets/{arch}-linux/lib")));
        found.push(toolkit.join("lib64"));
    }
    found.extend(variable("LD_LIBRARY_PATH"));
    found.push(PathBuf::from(format!("/usr/lib/{arch}-linux-gnu")));
    found.push(PathBuf::from("/usr/lib64"));
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .flat_map(&variable)
        .collect();
    prefixes.extend(variable("HOME").iter().map(|home| home.join(".local")));
    prefixes.extend(["/usr/local", "/usr", "/opt/conda"].map(PathBuf::from));
    for prefix in prefixes {
        for python in children(&prefix.join("lib"), "python3") {
            for packages in ["site-packages", "dist-packages"] {
                let nvidia = python.join(packages).join("nvidia");
                found.extend(["cu13/lib", "cuda_nvrtc/lib"].map(|folder| nvidia.join(folder)));
            }
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|folder| seen.insert(folder.clone()));
    found
}

/// The folders in `parent` whose names start with `prefix`, the last name first: newer versions.
fn children(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.reverse();
    found
}

/// What the assembler's report says of a cubin's kernels: registers of a thread, and bytes of a
/// thread's spills and of a block's static shared memory, the greatest of each.
pub fn resources(log: &str) -> BTreeMap<String, Number> {
    let greatest = |before_unit: &str| {
        let counts = log.match_indices(before_unit).filter_map(|(at, _)| {
            let digits = log[..at]
                .rsplit(|letter: char| !letter.is_ascii_digit())
                .next();
            digits.and_then(|digits| digits.parse::<u64>().ok())
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

    use sweeper_kernels::program::{Language, SourceFile};
    use sweeper_kernels::{CanonicalShape, Dtype, Parameters, Phase, Target, registry};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// NVRTC, unless there is none here and nobody insists on it.
    fn nvrtc() -> Option<Nvrtc> {
        match Nvrtc::find() {
            Ok(nvrtc) => Some(nvrtc),
            Err(reason) => {
                let required = std::env::var("SWEEPER_REQUIRE").unwrap_or_default();
                assert!(!required.split(',').any(|what| what == "nvrtc"), "{reason}");
                eprintln!("skipped: {reason}");
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
            assert!(
                resources(&first.log).contains_key("registers"),
                "{}",
                first.log
            );
            let again = nvrtc.compile(&copy(arch), arch, LONG).unwrap();
            assert_eq!(first.cubin, again.cubin);
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
            Err(CompileError::Rejected { log }) => {
                assert!(log.contains("gpu-architecture"), "{log}");
            }
            _ => panic!("there is no sm_1"),
        }
    }

    #[test]
    fn a_missing_library_says_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().to_owned(), PathBuf::from("/nowhere")];
        let message = Nvrtc::find_in(&folders).unwrap_err();
        assert!(
            message.contains("pip install nvidia-cuda-nvrtc"),
            "{message}"
        );
        fs::write(folder.path().join(NAMES[0]), "no library").unwrap();
        let message = Nvrtc::find_in(&folders).unwrap_err();
        assert!(message.contains(NAMES[0]), "{message}");
        assert!(message.contains(FOLDERS_VARIABLE), "{message}");
        let path = folder.path().to_string_lossy().into_owned();
        assert!(message.contains(&path), "{message}");
    }

    #[test]
    fn the_report_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
                   ptxas info    : Compiling entry function 'f' for 'sm_80'\n\
                   ptxas info    : Function properties for f\n    \
                   24 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Used 40 registers, used 0 barriers, 512 bytes smem\n\
                   ptxas info    : Used 12 registers, used 0 barriers\n";
        let expected = [
            ("registers", 40u64),
            ("spill_load_bytes", 8),
            ("spill_store_bytes", 16),
            ("static_shared_bytes", 512),
        ];
        let expected = expected.map(|(name, count)| (name.to_owned(), Number::from(count)));
        assert_eq!(resources(log), expected.into());
        assert!(resources("").is_empty());
    }
}
