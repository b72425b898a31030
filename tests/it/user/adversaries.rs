//! Kernels that do what they must not: each has its own status and reason, and the others are
//! measured undisturbed.

use std::collections::BTreeMap;

use super::{copied, rows};
use crate::place::text;

#[test]
fn adversaries_are_named_and_the_sweep_goes_on() {
    let folder = copied();
    let ran = folder.sweeper(&["run", "adversaries.toml", "--device", "cpu"]);
    assert_eq!(ran.status.code(), Some(4), "{}", text(&ran));
    let rows = rows(&folder);
    let found: BTreeMap<&str, (&str, &str)> = rows
        .iter()
        .map(|row| (&*row["backend"], (&*row["status"], &*row["reason"])))
        .collect();
    for (backend, status, reason) in [
        ("right", "ok", ""),
        ("prints", "ok", ""),
        ("with_copy", "ok", ""),
        ("overwrites", "wrong", "it overwrote the input `x`"),
        ("leaves_tail", "wrong", "`y` is not finite"),
        ("zeros", "wrong", "`y` is off by 1"),
        ("fickle", "wrong", "`y` is off by"),
        ("dies", "crashed", "signal 6"),
        ("leaves", "crashed", "signal 6"),
        ("exits", "crashed", "the worker ended with code 0"),
        ("hangs", "timeout", "no progress within 3"),
        ("gone", "compile_error", "implicit declaration of function"),
    ] {
        let (was, why) = found[backend];
        assert_eq!(was, status, "{backend}: {why}");
        assert!(why.contains(reason), "{backend}: {why}");
    }
    assert_eq!(found.len(), 12);
}
