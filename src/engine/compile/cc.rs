//! The system's C compiler: its identity, and kernels to shared objects.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};
use sweeper_cache::Kind;
use sweeper_program::KernelSource;

use super::digests::Digests;
use super::elf;
use super::process::{first_line, output, run};
use super::toolchain::{Compiler, LanguageFacts, Made};
use super::{Bounds, CompileError};
use crate::device::memory;
use crate::device::sandbox::Sandbox;
use sweeper_model::files;
use sweeper_model::scratch::{self, Scratch};

/// How every kernel is compiled. Not `-ffast-math`: gcc then switches the thread that loads the
/// kernel to flush-to-zero, and assumes that there are no infinities. No build id, so that equal
/// sources give equal bytes.
pub const OPTIONS: &[&str] = &[
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-shared",
    "-fPIC",
    "-s",
    "-Wl,--build-id=none",
];

/// Only where the compiler knows it: without, gcc halves its vectors on many processors.
const WIDE_VECTORS: &str = "-mprefer-vector-width=512";

/// The headers of C's standard library, whose text is a part of what kernels are compiled from.
const HEADERS: [&str; 22] = [
    "assert.h",
    "complex.h",
    "ctype.h",
    "errno.h",
    "fenv.h",
    "float.h",
    "inttypes.h",
    "limits.h",
    "locale.h",
    "math.h",
    "setjmp.h",
    "stdarg.h",
    "stdatomic.h",
    "stdbool.h",
    "stddef.h",
    "stdint.h",
    "stdio.h",
    "stdlib.h",
    "string.h",
    "tgmath.h",
    "time.h",
    "wchar.h",
];

/// How a compiler is called: a program, and words that stand before all others, as in `ccache gcc`.
#[derive(Clone, Debug)]
struct Driver {
    program: PathBuf,
    words: Vec<String>,
}

impl Driver {
    /// The driver that a variable names: a file, or a command.
    fn named(name: &OsStr) -> Self {
        let words = name.to_str().unwrap_or_default().split_whitespace();
        let mut words: Vec<String> = words.map(str::to_owned).collect();
        if words.len() < 2
            || files::program(Path::new(name), Path::new("")).is_some_and(|path| path.exists())
        {
            // Kernels are compiled in other folders.
            let file = Path::new(name);
            let is_path = file.components().count() > 1;
            let program = std::path::absolute(file).ok().filter(|_| is_path);
            return Driver {
                program: program.unwrap_or_else(|| file.to_owned()),
                words: Vec::new(),
            };
        }
        let program = PathBuf::from(words.remove(0));
        Driver { program, words }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.words);
        command
    }

    fn ask(&self, args: &[&str], stop: &AtomicBool) -> Result<Vec<u8>, String> {
        let mut command = self.command();
        command.args(args);
        output(command, stop)
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.program.display())?;
        self.words
            .iter()
            .try_for_each(|word| write!(out, " {word}"))
    }
}

/// A C compiler.
#[derive(Clone, Debug)]
pub struct Cc {
    driver: Driver,
    options: Vec<String>,
    /// First line of `--version`, for people.
    pub version: String,
    /// The target as the compiler names it.
    pub machine: String,
    /// Digest of the meaning of `-march=native` here, spelt out: all predefined macros.
    pub isa: String,
    /// Digest of the compiler's programs, of C's headers and of [`Cc::isa`]: changes whenever the
    /// compiler would.
    pub identity: String,
}

/// Variables by which a compiler finds headers, libraries and its own programs.
const VARIABLES: [&str; 7] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "COMPILER_PATH",
    "CCC_OVERRIDE_OPTIONS",
    "GCC_EXEC_PREFIX",
    "LIBRARY_PATH",
    "SOURCE_DATE_EPOCH",
];

/// Those of them that are set, as modules of a cluster do.
fn surroundings() -> impl Iterator<Item = (&'static str, String)> {
    VARIABLES.into_iter().filter_map(|name| {
        let value = env::var_os(name).filter(|value| !value.is_empty())?;
        Some((name, value.to_string_lossy().into_owned()))
    })
}

impl Cc {
    /// The compiler `named`, a file or a command such as `ccache gcc`, or else `cc`, `gcc`,
    /// `clang`, the first that answers. A stop ends the search.
    ///
    /// # Errors
    /// The commands that were tried, and the package to install.
    pub fn find(
        named: Option<&OsStr>,
        digests: &Digests,
        stop: &AtomicBool,
    ) -> Result<Self, String> {
        let candidates = match named {
            Some(name) => vec![name],
            None => ["cc", "gcc", "clang"].map(OsStr::new).to_vec(),
        };
        let mut tried = Vec::new();
        for driver in candidates.into_iter().map(Driver::named) {
            match Cc::at(&driver, digests, stop) {
                Ok(cc) => return Ok(cc),
                Err(reason) => tried.push(format!("{driver}: {reason}")),
            }
        }
        Err(format!(
            "no C compiler answers ({}); install one (Debian: apt-get install gcc) or set CC",
            tried.join("; ")
        ))
    }

    fn at(driver: &Driver, digests: &Digests, stop: &AtomicBool) -> Result<Self, String> {
        let ask = |args: &[&str]| driver.ask(args, stop);
        let version = first_line(&ask(&["--version"])?);
        let machine = first_line(&ask(&["-dumpmachine"])?);
        let macros = |option: &str| ask(&[option, "-dM", "-E", "-x", "c", "/dev/null"]);
        let isa = hex::encode(Sha256::digest(macros("-march=native")?));
        let mut hasher = Sha256::new();
        hasher.update(&isa);
        for (name, value) in surroundings() {
            hasher.update(format!("\0{name}={value}"));
        }
        // Without names of files: equal headers elsewhere are these. A C library that lacks one is
        // told apart by the compiler alone.
        let mut of_headers = vec!["-std=gnu11", "-E", "-P", "-dD"];
        of_headers.extend(HEADERS.iter().flat_map(|header| ["-include", header]));
        of_headers.extend(["-x", "c", "/dev/null"]);
        hasher.update(Sha256::digest(ask(&of_headers).unwrap_or_default()));
        let own = std::iter::once(driver.program.clone());
        let parts = ["cc1", "as", "ld"].into_iter().filter_map(|part| {
            let said = ask(&[&format!("-print-prog-name={part}")]).ok()?;
            Some(PathBuf::from(first_line(&said)))
        });
        for program in own.chain(parts) {
            if let Some(digest) = program_digest(&program, digests) {
                hasher.update(digest);
            }
        }
        for word in &driver.words {
            hasher.update(format!("\0{word}"));
            if let Some(digest) = program_digest(Path::new(word), digests) {
                hasher.update(digest);
            }
        }
        let mut options: Vec<String> = OPTIONS.iter().map(|&option| option.to_owned()).collect();
        if macros(WIDE_VECTORS).is_ok() {
            options.push(WIDE_VECTORS.to_owned());
        }
        let identity = hex::encode(hasher.finalize());
        Ok(Cc {
            driver: driver.clone(),
            options,
            version,
            machine,
            isa,
            identity,
        })
    }

    /// Compiles one kernel to a shared object.
    ///
    /// # Errors
    /// The compiler's complaints, a time-out, a stop, or the trouble that kept it from running.
    pub fn compile(
        &self,
        source: &KernelSource,
        bounds: &Bounds<'_>,
    ) -> Result<Vec<u8>, CompileError> {
        let surroundings = |error: std::io::Error| {
            CompileError::Surroundings(format!("temporary folder: {error}"))
        };
        let folder = Scratch::new().map_err(surroundings)?;
        for file in source.files.iter() {
            let path = folder.path().join(file.name.as_ref());
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(surroundings)?;
            }
            fs::write(path, file.text.as_ref()).map_err(surroundings)?;
        }
        let mut command = self.driver.command();
        command.current_dir(folder.path()).args(&self.options);
        // Should all processes of the compiler be killed, the files between them are deleted with
        // the folder.
        command.env("TMPDIR", folder.path());
        for (name, value) in &source.defines {
            command.arg(format!("-D{name}={value}"));
        }
        let user = source.user.as_deref();
        if user.is_some() {
            // A function that is missing is found now, not when the kernel is loaded.
            command.arg("-Werror=implicit-function-declaration");
        }
        command.args(source.options.iter().map(AsRef::<str>::as_ref));
        command.args([source.main_file(), "-o", "kernel.so"]);
        let libraries = user.map_or(&[][..], |user| &user.libraries);
        command.args(libraries.iter().map(|library| format!("-l{library}")));
        if user.is_some_and(|user| user.is_untrusted) {
            self.enclose(&mut command, folder.path())?;
        }
        run(command, bounds)?;
        let broken = |reason: String| {
            CompileError::Surroundings(format!(
                "the compiler complained of nothing, but the shared object that it was to write {reason}"
            ))
        };
        let object = scratch::read(&folder.path().join("kernel.so"), MOST_BYTES).map_err(broken)?;
        elf::check(&object).map_err(|reason| broken(reason.to_owned()))?;
        Ok(object)
    }

    /// Has the compiler work in a sandbox: a source that nobody trusts may name any file, as in
    /// `#include` and `.incbin`, and may expand without end.
    fn enclose(&self, command: &mut Command, folder: &Path) -> Result<(), CompileError> {
        let program = files::program(&self.driver.program, Path::new(""));
        let program = program.and_then(|path| path.canonicalize().ok());
        // Programs lie in `bin`, and what they read beside it.
        let own = program.and_then(|path| Some(path.parent()?.parent()?.to_owned()));
        let named = surroundings().flat_map(|(_, value)| {
            let paths: Vec<PathBuf> = env::split_paths(&value).collect();
            paths
        });
        let home = env::home_dir();
        let private = env::current_dir().into_iter().chain(home);
        let sandbox = Sandbox::new(folder)
            .reading(own.into_iter().chain(named))
            .hiding(private)
            .with_memory(memory::available_bytes() / 2);
        let enclosed = sandbox.enclose(command);
        enclosed.map_err(|error| CompileError::Unavailable(error.to_string()))
    }
}

/// The properties of C.
pub const FACTS: LanguageFacts = LanguageFacts {
    word: "c",
    compiler: "cc",
    subject: "compiler",
    options: OPTIONS,
    artifact: Kind::SharedObject,
    // The logs of C compilers have none.
    resources: |_| BTreeMap::new(),
    find: |search| {
        let named = search.named_cc.as_deref().map(Path::as_os_str);
        Ok(Box::new(Cc::find(named, &search.digests, search.stop)?))
    },
};

impl Compiler for Cc {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn describe(&self) -> String {
        let identity = &self.identity[..12];
        format!("cc {} ({}, {identity})", self.version, self.machine)
    }

    fn summary(&self) -> String {
        format!("{} for {}", self.version, self.machine)
    }

    fn options(&self) -> Vec<String> {
        self.options.clone()
    }

    fn compile(
        &self,
        source: &KernelSource,
        _arch: &str,
        bounds: &Bounds<'_>,
    ) -> Result<Made, CompileError> {
        Ok(Made {
            payload: self.compile(source, bounds)?,
            ..Made::default()
        })
    }
}

/// The longest shared object that is taken from a compiler, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// The digest of a program, where it is a file.
fn program_digest(program: &Path, digests: &Digests) -> Option<String> {
    digests.of(&files::program(program, Path::new(""))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::NEVER;
    use std::borrow::Cow;
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;
    use sweeper_program::{Language, SourceFile};

    const LONG: Bounds<'static> = Bounds {
        limit: Duration::from_secs(60),
        stop: &NEVER,
    };

    fn kernel(text: &'static str) -> KernelSource {
        KernelSource {
            language: Language::C,
            files: Cow::Owned(vec![SourceFile::embedded("main.c", text)]),
            entry: "f".into(),
            defines: vec![KernelSource::define("ANSWER", 42)],
            options: Vec::new(),
            user: None,
        }
    }

    fn cc() -> Cc {
        Cc::find(None, &Digests::default(), &NEVER).expect("these tests need a C compiler")
    }

    #[test]
    fn headers_of_the_system_are_part_of_the_compiler() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let of = |include: &str, pi: &str| {
            fs::create_dir_all(path(include)).unwrap();
            fs::write(path(include).join("math.h"), format!("#define PI {pi}\n")).unwrap();
            let link = path("link");
            let script = format!("#!/bin/sh\nexec cc -isystem {} \"$@\"\n", link.display());
            fs::write(path("cc"), script).unwrap();
            fs::set_permissions(path("cc"), PermissionsExt::from_mode(0o755)).unwrap();
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(path(include), &link).unwrap();
            let found = Cc::find(Some(path("cc").as_os_str()), &Digests::default(), &NEVER);
            found.unwrap().identity
        };
        assert_eq!(of("one", "3"), of("other", "3"));
        assert_ne!(of("one", "3"), of("one", "3.1"));
    }

    #[test]
    fn the_same_source_gives_the_same_bytes() {
        let (cc, source) = (cc(), kernel("int f(void) { return ANSWER; }"));
        let first = cc.compile(&source, &LONG).unwrap();
        assert!(first.starts_with(b"\x7fELF"));
        assert_eq!(first, cc.compile(&source, &LONG).unwrap());
        assert_eq!(
            cc.identity,
            Cc::find(None, &Digests::default(), &NEVER)
                .unwrap()
                .identity
        );
    }

    #[test]
    fn complaints_are_kept() {
        let result = cc().compile(&kernel("int f(void) { return nothing; }"), &LONG);
        match result {
            Err(CompileError::Rejected { log }) => assert!(log.contains("nothing"), "{log}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_compiler_that_hangs_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("slow-cc");
        let text = "#!/bin/sh\ncase \"$*\" in *kernel.so*) sleep 60;; *) exec cc \"$@\";; esac\n";
        fs::write(&script, text).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, executable).unwrap();
        let cc = Cc::find(Some(script.as_os_str()), &Digests::default(), &NEVER).unwrap();
        let limit = Duration::from_millis(100);
        let bounds = Bounds {
            limit,
            stop: &NEVER,
        };
        let result = cc.compile(&kernel("int f(void) { return 0; }"), &bounds);
        assert_eq!(result, Err(CompileError::Timeout { limit }));
    }

    #[test]
    fn a_broken_shared_object_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("flaky-cc");
        let made = |end: &str| {
            let text = format!(
                "#!/bin/sh\ncase \"$*\" in *kernel.so*) cc \"$@\" && {end};; *) exec cc \"$@\";; esac\n"
            );
            fs::write(&script, text).unwrap();
            fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
            let cc = Cc::find(Some(script.as_os_str()), &Digests::default(), &NEVER).unwrap();
            cc.compile(&kernel("int f(void) { return 0; }"), &LONG)
        };
        made("true").unwrap();
        for end in [
            "truncate -s 4000 kernel.so",
            "truncate -s 0 kernel.so",
            "rm kernel.so",
            "rm kernel.so; mkfifo kernel.so",
            "ln -sf /dev/zero kernel.so",
        ] {
            let broken = made(end);
            assert!(
                matches!(broken, Err(CompileError::Surroundings(_))),
                "{end}"
            );
        }
    }

    #[test]
    fn a_compiler_may_be_a_command_of_several_words() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("wrapper");
        fs::write(&script, "#!/bin/sh\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let find = |words: &str| {
            let command = format!("{} {words}", script.display());
            Cc::find(Some(OsStr::new(&command)), &Digests::default(), &NEVER)
        };
        let (wrapped, other) = (find("cc").unwrap(), find("cc -DANSWER=1").unwrap());
        assert_eq!(wrapped.version, cc().version);
        let source = kernel("int f(void) { return ANSWER; }");
        let plain = cc().compile(&source, &LONG).unwrap();
        assert_eq!(wrapped.compile(&source, &LONG).unwrap(), plain);
        let identities = [&cc().identity, &wrapped.identity, &other.identity];
        assert!(identities.windows(2).all(|two| two[0] != two[1]));
        let message = find("/nowhere/cc -O1").unwrap_err();
        assert!(message.contains("/nowhere/cc -O1: "), "{message}");
    }

    #[test]
    fn a_missing_compiler_says_what_to_install() {
        let named = Some(OsStr::new("/nowhere/cc"));
        let message = Cc::find(named, &Digests::default(), &NEVER).unwrap_err();
        assert!(message.contains("/nowhere/cc"), "{message}");
        assert!(message.contains("apt-get install"), "{message}");
    }
}
