//! The kernel cache as people use it: shared with other machines, explained, and said to be too
//! small.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use crate::place::{Place, code, cpu_manifest, text};

/// A place with a cache of a sweep's kernels, exported as `kernels.bundle`.
fn with_bundle() -> Place {
    let place = Place::new(&cpu_manifest(""));
    let done = place.sweeper(&["compile", "m.toml", "--cache-dir", "there"]);
    assert_eq!(code(&done), 0, "{}", text(&done));
    let export = ["cache", "export", "kernels.bundle", "--cache-dir", "there"];
    let done = place.sweeper(&export);
    assert_eq!(code(&done), 0, "{}", text(&done));
    assert!(text(&done).contains("--cache-upstream kernels.bundle"));
    place
}

fn said(output: &Output, words: &str) {
    let all = text(output);
    assert!(all.contains(words), "{words}: {all}");
}

/// A node that has no compiler, or may not use it, measures with kernels of other nodes.
#[test]
fn kernels_of_upstreams_are_not_compiled_again() {
    let place = with_bundle();
    for (own, upstream) in [("a", "there"), ("b", "kernels.bundle")] {
        let settings = ["--cache-dir", own, "--cache-upstream", upstream];
        let run = ["run", "m.toml", "--require-cached", "--output-dir", own];
        let done = place.sweeper(&[&run[..], &settings].concat());
        assert_eq!(code(&done), 0, "{}", text(&done));
        said(&done, "6 ok");
        let compiled = place.sweeper(&["compile", "m.toml", "--cache-dir", own]);
        said(&compiled, " 0 compiled");
        said(
            &place.sweeper(&["cache", "stats", "--cache-dir", own]),
            "from an upstream",
        );
    }
    let settings = ["--cache-dir", "c", "--cache-upstream", "there"];
    said(
        &place.sweeper(&[&["plan", "m.toml"], &settings[..]].concat()),
        " 0 to compile",
    );
    assert!(!place.path("c").exists(), "a plan makes nothing");
    let compiled = place.sweeper(&[&["compile", "m.toml"], &settings[..]].concat());
    said(&compiled, " 0 compiled");
    said(&compiled, "in an upstream)");
    let import = ["cache", "import", "kernels.bundle", "--cache-dir", "d"];
    assert_eq!(code(&place.sweeper(&import)), 0);
    said(
        &place.sweeper(&["compile", "m.toml", "--cache-dir", "d"]),
        " 0 compiled",
    );
}

#[test]
fn an_upstream_that_is_not_there_is_said_and_the_sweep_goes_on() {
    let place = Place::new(&cpu_manifest("[cache]\nupstream = \"nowhere\"\n"));
    for verb in ["plan", "compile", "run"] {
        let done = place.sweeper(&[verb, "m.toml"]);
        assert_eq!(code(&done), 0, "{}", text(&done));
        said(&done, "warning: upstream nowhere: ");
        assert_eq!(text(&done).matches("upstream nowhere").count(), 1);
    }
}

#[test]
fn a_plan_says_that_another_compiler_is_why_kernels_are_compiled() {
    let place = with_bundle();
    let wrapper = place.path("other-cc");
    fs::write(&wrapper, "#!/bin/sh\nexec cc \"$@\"\n").unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let with_other = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("CC", &wrapper).output().unwrap()
    };
    let of_point = [
        "m.toml",
        "elements=1000",
        "compiled",
        "--cache-dir",
        "there",
    ];
    for args in [
        &["plan", "m.toml", "--cache-dir", "there"][..],
        &[&["why"], &of_point[..]].concat(),
        &[&["cache", "explain", "-m"], &of_point[..]].concat(),
    ] {
        let done = with_other(args);
        assert_eq!(code(&done), 0, "{}", text(&done));
        let all = text(&done);
        let line = all.lines().find(|line| line.contains("compiler: cc "));
        let (was, now) = line
            .and_then(|line| line.split_once(" -> "))
            .unwrap_or_else(|| panic!("{args:?}: {all}"));
        assert!(
            was.contains("compiler: cc ") && now.starts_with("cc "),
            "{all}"
        );
        assert_eq!(all.matches("compiler:").count(), 1, "{all}");
    }
}

/// Where a compiler looks for headers and libraries is part of its identity.
#[test]
fn variables_that_reach_the_compiler_make_new_kernels_and_others_do_not() {
    let place = Place::new(&cpu_manifest(""));
    let compile = |name: &str| {
        let mut command = place.command(&["compile", "m.toml"]);
        text(&command.env(name, place.path("headers")).output().unwrap())
    };
    let first = text(&place.sweeper(&["compile", "m.toml"]));
    assert!(!first.contains(" 0 compiled"), "{first}");
    for name in ["CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH"] {
        let all = compile(name);
        assert!(!all.contains(" 0 compiled"), "{name}: {all}");
    }
    fs::create_dir(place.path("headers")).unwrap();
    for name in ["TMPDIR", "HOME", "LANG"] {
        let all = compile(name);
        assert!(all.contains(" 0 compiled"), "{name}: {all}");
    }
}

#[test]
fn a_bound_that_is_too_small_for_the_sweep_is_said_at_the_start() {
    let place = Place::new(&cpu_manifest(""));
    let small = ["--cache-size-gb", "0.000001"];
    for verb in ["compile", "run"] {
        let done = place.sweeper(&[&[verb, "m.toml"], &small[..]].concat());
        let all = text(&done);
        let line = all.lines().find(|line| line.contains("cache may hold"));
        let line = line.unwrap_or_else(|| panic!("{all}"));
        assert!(line.contains("the sweep's kernels (") && line.contains("cache.size_gb"));
        match all.find("working set") {
            Some(later) => assert!(all.find(line) < Some(later), "{all}"),
            None => assert_eq!(verb, "run", "it was said: {all}"),
        }
    }
    let enough = place.sweeper(&["compile", "m.toml"]);
    assert!(
        !text(&enough).contains("cache may hold"),
        "{}",
        text(&enough)
    );
}

#[test]
fn a_file_that_is_no_bundle_is_neither_read_nor_overwritten() {
    let place = with_bundle();
    let export = place.sweeper(&["cache", "export", "m.toml", "--cache-dir", "there"]);
    assert_eq!(code(&export), 6);
    said(&export, "is not a bundle");
    let import = place.sweeper(&["cache", "import", "m.toml", "--cache-dir", "there"]);
    assert_eq!(code(&import), 6);
    said(&import, "m.toml is neither a kernel cache nor a bundle");
    assert_eq!(code(&place.sweeper(&["check", "m.toml"])), 0, "it is whole");
}

#[test]
fn every_verb_of_the_cache_answers_programs() {
    let place = with_bundle();
    let json = |args: &[&str]| -> serde_json::Value {
        let args = [&["cache"], args, &["--cache-dir", "there", "--json"]].concat();
        let output = place.sweeper(&args);
        assert_eq!(code(&output), 0, "{args:?}: {}", text(&output));
        let answer = serde_json::from_slice(&output.stdout);
        answer.unwrap_or_else(|error| panic!("{args:?}: {error}: {}", text(&output)))
    };
    let key = json(&["ls"])[0]["name"].as_str().unwrap().to_owned();
    assert_eq!(json(&["show", &key])["name"], key.as_str());
    assert_eq!(json(&["explain", &key])["name"], key.as_str());
    let point = json(&["explain", "-m", "m.toml", "elements=1000", "compiled"]);
    assert!(!point.as_array().unwrap().is_empty(), "{point}");
    assert!(json(&["stats"])["entries"].as_u64().unwrap() > 0);
    for args in [
        &["path"][..],
        &["verify"],
        &["verify", "--repair"],
        &["gc", "--dry-run"],
        &["export", "more.bundle"],
        &["import", "kernels.bundle"],
        &["clear"],
    ] {
        assert!(json(args).is_object(), "{args:?}");
    }
}
