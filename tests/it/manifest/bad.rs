//! The error of every bad manifest, word for word.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sweeper::manifest::{Manifest, Overrides, Sources};

use crate::support::{REGISTRY, golden, resolve, toml_files};

#[test]
fn bad_manifests_say_what_is_wrong() {
    let mut codes = BTreeSet::new();
    let mut wrong = Vec::new();
    let files = toml_files("tests/manifests/bad");
    for path in &files {
        let text = std::fs::read_to_string(path).unwrap();
        let mut overrides = Overrides::new();
        overrides.deny_lints = text.starts_with("# deny");
        match resolve(path, &overrides) {
            Ok(_) => wrong.push(format!("{} is accepted", path.display())),
            Err(diagnostics) => {
                codes.extend(diagnostics.iter().map(|each| each.code.id()));
                let expected = path.with_extension("stderr");
                wrong.extend(golden(&expected, &diagnostics.to_string()).err());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 40, "{} bad manifests", files.len());
    assert!(codes.len() >= 25, "{} codes: {codes:?}", codes.len());
}

#[test]
fn every_expectation_has_a_manifest() {
    for entry in std::fs::read_dir("tests/manifests/bad").unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "stderr")
        {
            assert!(path.with_extension("toml").exists(), "{}", path.display());
        }
    }
}

#[test]
fn warnings_are_no_errors_unless_denied() {
    let path = "tests/manifests/bad/deny_never_fires.toml".as_ref();
    let manifest = resolve(path, &Overrides::new()).unwrap();
    assert_eq!(manifest.warnings().iter().len(), 2);
    assert_eq!(manifest.warnings().errors(), 0);
}

/// Manifests that say a lot, to be damaged.
fn victims() -> Vec<String> {
    let mut paths = toml_files("manifests");
    paths.extend(toml_files("tests/manifests/bad"));
    paths
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damage_is_reported_or_read_as_what_it_says(
        victim in 0usize..1000,
        damages in proptest::collection::vec((0usize..10_000, "[\\[\\]{}=\"'.,#\\n\\\\é0-9a-z@$_*-]{0,3}"), 1..6),
    ) {
        let victims = victims();
        let mut text: Vec<char> = victims[victim % victims.len()].chars().collect();
        for (at, patch) in damages {
            let at = at % text.len().max(1);
            let end = (at + patch.chars().count() / 2 + 1).min(text.len());
            text.splice(at..end, patch.chars());
        }
        let text: String = text.into_iter().collect();
        let sources = Sources::from_text("damaged.toml", &text);
        match Manifest::resolve(&sources, &Overrides::new(), &REGISTRY) {
            Ok(manifest) => {
                let text = manifest.resolved_toml();
                let again = Sources::from_text("again.toml", &text);
                let again = Manifest::resolve(&again, &Overrides::new(), &REGISTRY);
                prop_assert!(again.is_ok_and(|again| again == manifest), "{}", text);
            }
            Err(errors) => prop_assert!(!errors.to_string().is_empty()),
        }
    }
}
