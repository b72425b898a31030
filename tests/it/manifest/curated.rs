//! The manifests that come with the program, and the examples of their page.

use std::path::Path;

use sweeper::grid::Grid;
use sweeper::manifest::{Manifest, Overrides, Sources, key_reference, reference, registry};
use sweeper::plan::canonical::Canonical;
use sweeper::plan::published::Sampling;

use crate::support::{golden, resolve, semicrf, toml_files};

/// Resolves with the workloads of this build.
fn read(path: &Path, overrides: &Overrides) -> Manifest {
    let sources = Sources::read(path).unwrap_or_else(|errors| panic!("{errors}"));
    let manifest = Manifest::resolve(&sources, overrides, &registry());
    manifest.unwrap_or_else(|errors| panic!("{errors}"))
}

fn curated(name: &str) -> Manifest {
    read(
        Path::new(&format!("manifests/{name}.toml")),
        &Overrides::new(),
    )
}

#[test]
fn curated_manifests_resolve_without_a_warning_and_say_what_they_answer() {
    for path in toml_files("manifests") {
        let manifest = read(&path, &Overrides::new());
        assert!(manifest.warnings().is_empty(), "{}", manifest.warnings());
        assert!(
            manifest.about.contains('?'),
            "{}: {}",
            path.display(),
            manifest.about
        );
        assert_eq!(
            path.file_stem().unwrap().to_str(),
            Some(manifest.name.as_str())
        );
    }
}

#[test]
fn what_is_resolved_resolves_to_the_same() {
    for path in toml_files("manifests") {
        let manifest = read(&path, &Overrides::new());
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in manifest.sources() {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let is_declaring = manifest.declared().next().is_some();
        for text in [
            manifest.resolved_toml(),
            manifest.resolved_toml_with_origins(),
        ] {
            let file = folder.path().join("again.toml");
            std::fs::write(&file, &text).unwrap();
            let again = read(&file, &Overrides::new());
            // A declared kernel is known by the path of its source, too.
            assert!(
                again == manifest || is_declaring,
                "{}:\n{text}",
                path.display()
            );
            assert_eq!(again.hash(), manifest.hash(), "{}:\n{text}", path.display());
        }
    }
}

/// Runs are resumed by their id, which a manifest's hash is part of: another hash makes every run
/// that was begun with it another run.
#[test]
fn identities_and_points_of_curated_manifests_stay() {
    let mut lines = String::new();
    for path in toml_files("manifests") {
        let manifest = read(&path, &Overrides::new());
        let grid = Grid::new(&manifest);
        // The identity of a manifest with commands has the digests of this machine's programs.
        let hash = match manifest.resolved_toml().contains("\ncommand = [") {
            true => "of programs ".to_owned(),
            false => manifest.hash().to_string(),
        };
        lines += &format!(
            "{:<24} {hash} {:>6} points {:>5} problems\n",
            manifest.name,
            grid.points().len(),
            grid.problems().len(),
        );
    }
    golden(Path::new("tests/golden/manifests.txt"), &lines)
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_full_suite_has_all_axes() {
    let manifest = curated("paper");
    let grid = Grid::new(&manifest);
    assert_eq!(grid.points().len(), 96 * 3 * 2 * 4 * 3);
    assert_eq!(grid.problems().len(), 96 * 3 * 2);
    // The workload's buckets: six of T, four of which occur, and one of C.
    let canonical = Canonical::of(&grid);
    assert_eq!(canonical.shapes().len(), 4);
    for (index, point) in grid.points().iter().enumerate() {
        let shape = canonical.shape(index);
        for name in ["T", "C"] {
            let value = grid.value(*point, name).unwrap().to_string();
            assert!(shape.bound(name).unwrap() >= value.parse().unwrap());
        }
    }
}

#[test]
fn the_published_sampling_is_reproduced() {
    let mut overrides = Overrides::new();
    assert!(overrides.flag("--compile-friendly", None));
    let path = Path::new("manifests/memory.toml");
    let manifest = read(path, &overrides);
    let grid = Grid::new(&manifest);
    let sampling = Sampling::of(&grid, 8, 2);
    assert_eq!(sampling.groups.len(), 84);
    let configurations: usize = sampling.groups.iter().map(|group| group.chosen.len()).sum();
    assert_eq!(configurations, 11);
    // Three backends, one phase, one semiring.
    assert_eq!(sampling.kept.iter().filter(|kept| **kept).count(), 33);
}

/// A page that has a table between marks; the page with it.
fn with_table(path: &str, name: &str, table: &str) -> String {
    let page = std::fs::read_to_string(path).unwrap();
    let marks = [
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    ];
    let start = page.find(&marks[0]).unwrap() + marks[0].len();
    let end = page.find(&marks[1]).unwrap();
    let whole = format!("{}{table}{}", &page[..start], &page[end..]);
    golden(Path::new(path), &whole).unwrap();
    whole
}

#[test]
fn the_pages_have_every_key() {
    let page = with_table("manifests/README.md", "settings", &reference());
    assert!(page.lines().count() <= 235, "too long to be learnt");
    with_table("docs/keys.md", "keys", &key_reference());
}

#[test]
fn examples_of_the_page_are_manifests() {
    let page = std::fs::read_to_string("manifests/README.md").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let base = semicrf("T = [128, 256]\nK = [8, 16]\nC = [3, 6]", "");
    let base = base.replace("[\"fused\"]", "[\"streaming\", \"fused\"]");
    std::fs::write(folder.path().join("base.toml"), base).unwrap();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let block = block.split("```").next().unwrap();
        let complete = block.contains("schema = 1");
        let head = if complete {
            ""
        } else {
            "schema = 1\nextends = \"base.toml\"\n"
        };
        let path = folder.path().join("example.toml");
        std::fs::write(&path, format!("{head}{block}")).unwrap();
        let manifest = resolve(&path, &Overrides::new());
        let manifest = manifest.unwrap_or_else(|errors| panic!("{errors}\n{block}"));
        assert!(manifest.warnings().is_empty(), "{}", manifest.warnings());
    }
}

#[test]
fn a_point_has_a_line_that_names_it() {
    let manifest = curated("paper");
    let grid = Grid::new(&manifest);
    let label = grid.label(grid.points()[100]);
    assert_eq!(
        label,
        "semicrf T=128 K=4 C=6 B=4 semiring=max potentials=materialized fused backward"
    );
}
