//! The vectors of kernels for CPUs, lane by lane, by each instruction set that can run here.

use std::fs;
use std::path::Path;
use std::process::Command;

use sweeper_program::SourceFile;
use sweeper_program::headers::{ELEMENTARY_H, FUNCTIONS_H, NONTEMPORAL_H, VECTOR_H};

use crate::support::skip;

/// Compilers that lower vectors each in its way, and whether a machine usually has them.
const COMPILERS: [(&str, bool); 6] = [
    ("gcc", true),
    ("gcc-13", false),
    ("gcc-14", false),
    ("clang", true),
    ("clang-16", false),
    ("clang-19", false),
];

/// The instruction sets by GCC's names, and how many floats a vector has.
fn x86_64_levels() -> Vec<(&'static str, &'static str)> {
    #[cfg(target_arch = "x86_64")]
    return [
        ("x86-64", "4 lanes", true),
        ("x86-64-v2", "4 lanes", is_x86_feature_detected!("sse4.2")),
        ("x86-64-v3", "8 lanes", is_x86_feature_detected!("avx2")),
        (
            "x86-64-v4",
            "16 lanes",
            is_x86_feature_detected!("avx512vl"),
        ),
    ]
    .into_iter()
    .filter(|(_, _, is_here)| *is_here)
    .map(|(level, lanes, _)| (level, lanes))
    .collect();
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

/// Compiles the checks, runs them by a command, and yields their output.
fn checked(compiler: &str, options: &[&str], run_by: Option<&str>) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let checks = SourceFile::embedded("vectors.c", include_str!("vectors.c"));
    for file in [checks, FUNCTIONS_H, ELEMENTARY_H, NONTEMPORAL_H, VECTOR_H] {
        fs::write(folder.path().join(&*file.name), &*file.text).unwrap();
    }
    let program = folder.path().join("vectors");
    let mut compile = Command::new(compiler);
    compile.current_dir(folder.path()).arg("-o").arg(&program);
    compile.args(["-O3", "-Wno-psabi"]).args(options);
    let compiled = compile.args(["vectors.c", "-lm"]).output().ok()?;
    let told = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{compiler} {options:?}: {told}");
    let mut run = Command::new(run_by.map_or(program.as_path(), Path::new));
    let ran = run.args(run_by.map(|_| &program)).output().ok()?;
    Some(String::from_utf8(ran.stdout).unwrap())
}

#[test]
fn lanes_hold_what_loops_compute() {
    for (level, lanes) in x86_64_levels() {
        for (compiler, is_common) in COMPILERS {
            match checked(compiler, &[&format!("-march={level}")], None) {
                Some(told) => assert_eq!(told.trim(), lanes, "{compiler}, {level}"),
                None if is_common => skip(compiler, &format!("{compiler} is not here")),
                None => {}
            }
        }
    }
    match checked("aarch64-linux-gnu-gcc", &["-static"], Some("qemu-aarch64")) {
        Some(told) => assert_eq!(told.trim(), "4 lanes", "NEON"),
        None => skip("aarch64", "no compiler for Arm, or no qemu-user"),
    }
}
