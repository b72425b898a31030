//! Keys and their fields; hits, misses, and entries that are set aside.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::*;
use sweeper_program::{SourceFile, UserOptions};

fn source(text: &'static str) -> KernelSource {
    KernelSource {
        language: Language::C,
        files: Cow::Owned(vec![SourceFile::embedded("main.c", text)]),
        entry: "f".into(),
        defines: vec![KernelSource::define("N", 4)],
        options: Vec::new(),
        user: None,
    }
}

fn with_kernels<R>(toolchain: &Toolchain, use_it: impl FnOnce(&mut Kernels<'_>) -> R) -> R {
    let folder = tempfile::tempdir().unwrap();
    let config = sweeper_cache::CacheConfig::new(folder.path().join("cache"), 1 << 24);
    let cache = Cache::open(config).unwrap();
    let device = crate::device::cpu::identity::host();
    use_it(&mut Kernels {
        toolchain,
        cache: Some(&cache),
        device: &device,
        limit: Duration::from_secs(60),
        require_cached: false,
        stop: &crate::compile::NEVER,
    })
}

/// Changes to a kernel's source, each of which gives another key.
fn changes() -> Vec<KernelSource> {
    let one = source("int f(void) { return N; }");
    let header = SourceFile::embedded("h.h", "");
    vec![
        KernelSource {
            language: Language::Cuda,
            ..one.clone()
        },
        source("int f(void) { return N + 1; }"),
        KernelSource {
            files: [one.files.to_vec(), vec![header]].concat().into(),
            ..one.clone()
        },
        KernelSource {
            defines: vec![KernelSource::define("N", 5)],
            ..one.clone()
        },
        KernelSource {
            defines: vec![KernelSource::define("M", 4)],
            ..one.clone()
        },
        KernelSource {
            defines: vec![],
            ..one.clone()
        },
        KernelSource {
            files: vec![SourceFile::embedded("other.c", "int f(void) { return N; }")].into(),
            ..one.clone()
        },
        KernelSource {
            options: vec!["-ffast-math".into()],
            ..one.clone()
        },
        of_user(&one, |user| user.libraries.push("-ffast-math".to_owned())),
        of_user(&one, |user| user.names.push("-ffast-math".to_owned())),
    ]
}

/// A source with options of the user.
fn of_user(source: &KernelSource, change: impl FnOnce(&mut UserOptions)) -> KernelSource {
    let mut user = UserOptions::default();
    change(&mut user);
    KernelSource {
        user: Some(Box::new(user)),
        ..source.clone()
    }
}

#[test]
fn whatever_machine_code_depends_on_changes_the_key() {
    let one = source("int f(void) { return N; }");
    let of = |source: &KernelSource| key(source, "v3", &["-O3", "-g"], "gcc 12");
    let mut keys: Vec<Key> = changes().iter().map(of).collect();
    keys.extend([
        of(&one),
        key(&one, "v4", &["-O3", "-g"], "gcc 12"),
        key(&one, "v3", &["-O3"], "gcc 12"),
        key(&one, "v3", &["-O2", "-g"], "gcc 12"),
        key(&one, "v3", &["-O3", "-g"], "gcc 13"),
    ]);
    let names: BTreeSet<String> = keys.iter().map(key_text).collect();
    assert_eq!(names.len(), keys.len());
    // The name of the called function is not part of the key, nor are options that nobody gave.
    let other = KernelSource {
        entry: "g".into(),
        ..one.clone()
    };
    for same in [&other, &of_user(&one, |_| ())] {
        assert_eq!(key_text(&of(same)), key_text(&of(&one)));
    }
}

#[test]
fn a_key_is_that_of_this_machine() {
    let toolchain = Toolchain::here(None, None);
    with_kernels(&toolchain, |kernels| {
        let text = |key: Key| format!("{key:?}");
        let compiler = &toolchain.compiler(Language::C).unwrap().identity();
        let one = source("int f(void) { return N; }");
        let options = facts(Language::C).options;
        let meant = key(&one, &kernels.device.details["isa"], options, compiler);
        assert_eq!(text(kernels.key(&one)), text(meant));
        let mut device = kernels.device.clone();
        let isa = "another instruction set".to_owned();
        device.details.insert("isa".to_owned(), isa.clone());
        let elsewhere = Kernels {
            device: &device,
            ..*kernels
        };
        let meant = key(&one, &isa, options, compiler);
        assert_eq!(text(elsewhere.key(&one)), text(meant));
        let cuda = KernelSource {
            language: Language::Cuda,
            ..one
        };
        let compiler = toolchain.compiler(Language::Cuda).map(Compiler::identity);
        let options = facts(Language::Cuda).options;
        let meant = key(&cuda, &isa, options, compiler.unwrap_or_default());
        assert_eq!(text(elsewhere.key(&cuda)), text(meant));
    });
}

#[test]
fn what_another_compiler_made_is_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("cc");
    std::fs::write(&script, "#!/bin/sh\nexec cc \"$@\"\n").unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, executable).unwrap();
    let toolchain = Toolchain::here(None, None);
    with_kernels(&toolchain, |kernels| {
        let kernel = source("int f(void) { return N; }");
        assert_eq!(kernels.get(&kernel).unwrap().origin, Origin::Built);
        let another = Toolchain::here(Some(script), None);
        let another = Kernels {
            toolchain: &another,
            ..*kernels
        };
        assert_eq!(another.get(&kernel).unwrap().origin, Origin::Built);
        assert_eq!(another.get(&kernel).unwrap().origin, Origin::Hit);
        assert_eq!(kernels.get(&kernel).unwrap().origin, Origin::Hit);
    });
}

#[test]
fn what_an_assembler_reports_is_said() {
    let log = |spilled: u32| {
        format!("0 bytes stack frame, {spilled} bytes spill stores\nUsed 40 registers")
    };
    let made = |log| Made {
        log,
        ..Made::default()
    };
    let words =
        |language, spilled| resources_in_words(&(facts(language).resources)(&made(log(spilled))));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(words(Language::Cuda, 0), some("40 registers"));
    assert_eq!(
        words(Language::Cuda, 8),
        some("40 registers, 8 bytes spilled")
    );
    assert_eq!(words(Language::C, 8), None);
}

#[test]
fn a_kernel_is_compiled_once_and_found_without_a_compiler() {
    let toolchain = Toolchain::here(None, None);
    with_kernels(&toolchain, |kernels| {
        let kernel = source("int f(void) { return N; }");
        let built = kernels.get(&kernel).unwrap();
        assert_eq!(built.origin, Origin::Built);
        let found = kernels.get(&kernel).unwrap();
        assert_eq!(
            (found.origin, &found.artifact),
            (Origin::Hit, &built.artifact)
        );
        let without = Toolchain::none("no C compiler");
        let offline = Kernels {
            toolchain: &without,
            ..*kernels
        };
        assert_eq!(
            offline.get(&kernel).unwrap().artifact.bytes,
            built.artifact.bytes
        );
        assert!(matches!(
            offline.get(&source("int g;")),
            Err(CompileError::Unavailable(_))
        ));
    });
}

#[test]
fn functions_of_one_source_are_one_kernel() {
    let toolchain = Toolchain::here(None, None);
    with_kernels(&toolchain, |kernels| {
        let one = source("int f(void) { return N; } int g(void) { return 1; }");
        let other = KernelSource {
            entry: "g".into(),
            ..one.clone()
        };
        assert_eq!(kernels.get(&one).unwrap().origin, Origin::Built);
        assert_eq!(kernels.get(&other).unwrap().origin, Origin::Hit);
    });
}

#[test]
fn refusals_are_remembered_and_require_cached_compiles_nothing() {
    let toolchain = Toolchain::here(None, None);
    with_kernels(&toolchain, |kernels| {
        let bad = source("int f(void) { return missing; }");
        assert!(matches!(
            kernels.get(&bad),
            Err(CompileError::Rejected { .. })
        ));
        kernels.require_cached = true;
        assert!(matches!(
            kernels.get(&bad),
            Err(CompileError::Rejected { .. })
        ));
        let new = source("int f(void) { return 1; }");
        assert!(matches!(
            kernels.get(&new),
            Err(CompileError::Unavailable(_))
        ));
    });
}

#[test]
fn all_results_come_in_order() {
    let toolchain = Toolchain::here(None, None);
    with_kernels(&toolchain, |kernels| {
        let (good, bad) = (source("int f(void) { return 7; }"), source("nonsense"));
        let results = kernels.get_all(&[&good, &bad, &good], 3, &|_, _| {});
        assert!(results[0].is_ok() && results[1].is_err() && results[2].is_ok());
    });
}
