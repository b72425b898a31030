//! What rounding does to functions of libraries with arrays: honest programs against the model of
//! the child.

use std::process::Command;

use crate::support::{has_package, python};

/// The error over the predicted one: the model is no more than so much too small, or too large.
const RANGE: std::ops::Range<f64> = 0.02..2.0;

/// Functions of a library whose cases print a line each.
fn conform(cases: &str, arguments: &[&str], count: usize) {
    let mut command = Command::new(python());
    command.args([
        &format!("tests/it/python/{cases}.py"),
        "src/engine/device/foreign/python/child",
    ]);
    let ran = command.args(arguments).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(
        ran.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let lines: Vec<Vec<&str>> = said
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    assert_eq!(lines.len(), count, "{said}");
    for line in lines {
        let [dtype, name, ratio, unknown] = line.try_into().unwrap();
        let ratio: f64 = ratio.parse().unwrap();
        assert!(RANGE.contains(&ratio), "{dtype} {name}: {ratio}");
        assert_eq!(unknown, "{}", "{dtype} {name}: operations without a model");
    }
}

#[test]
fn honest_programs_are_as_far_out_as_the_model_says() {
    if has_package("torch", "torch") {
        conform("rounding_cases", &[], 27);
    }
    for library in ["numpy", "jax"] {
        if has_package(library, library) {
            conform("array_rounding_cases", &[library], 10);
        }
    }
}
