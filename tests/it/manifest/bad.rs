use std::collections::BTreeSet;

use sweeper::manifest::Overrides;

use crate::support::{golden, resolve, toml_files};

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
    assert_eq!(manifest.warnings().iter().len(), 3);
    assert_eq!(manifest.warnings().errors(), 0);
}
