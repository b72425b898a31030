use std::path::Path;

use sweeper::grid::Grid;
use sweeper::manifest::{Manifest, Overrides, Sources};

use crate::support::{REGISTRY, errors, manifest};

#[test]
fn paper_resolves() {
    let sources = Sources::read(Path::new("manifests/paper.toml")).unwrap();
    let manifest = Manifest::resolve(&sources, &Overrides::new(), &REGISTRY)
        .unwrap_or_else(|errors| panic!("{errors}"));
    assert!(manifest.warnings().is_empty(), "{}", manifest.warnings());
    let grid = Grid::new(&manifest);
    assert_eq!(grid.points().len(), 96 * 3 * 2 * 4 * 3);
    println!("{}", grid.label(grid.points()[100]));
}

#[test]
fn debug_bad() {
    println!(
        "{}",
        errors(
            r#"
schema = 1
[grid]
T = [128, 256]
K = [4]
C = 3
semirings = "log"
[[exclude]]
when = "layot == 'tn' and K > 3"
[case.semicrf]
workload = "semicrf"
backend = ["fused"]
[plan]
order = "randm"
"#
        )
    );
    let _ = manifest;
}
