//! `sweeper check`: validate a manifest, and count its points.

use clap::Args;
use serde_json::{Value as Json, json};

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use sweeper_manifest::Manifest;
use sweeper_manifest::grid::Grid;
use sweeper_manifest::plan::canonical::Canonical;
use sweeper_manifest::plan::describe;
use sweeper_manifest::plan::selection::Selection;

/// Arguments of `check`.
#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Print the manifest with everything resolved, and where each value came from
    #[arg(long)]
    resolved: bool,
}

/// Validates a manifest. No device is asked for: counts are equal on all.
pub fn check(args: &CheckArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    match (args.resolved, screen.json) {
        (true, true) => screen.json(&resolved(&manifest)),
        (true, false) => screen.out(&manifest.resolved_toml_with_origins()),
        (false, true) => screen.json(&Meaning::of(&manifest).json()),
        (false, false) if screen.quiet => {}
        (false, false) => Meaning::of(&manifest).show(screen),
    }
    Exit::Fine
}

/// The resolved manifest, and the origin of each key that was given.
fn resolved(manifest: &Manifest) -> Json {
    let keys: toml::Table = manifest.resolved_toml().parse().unwrap_or_default();
    let origins = manifest.provenance().iter();
    let origins: serde_json::Map<String, Json> = origins
        .map(|(path, origin)| (path.to_owned(), json!(origin.to_string())))
        .collect();
    json!({ "manifest": manifest.hash().to_string(), "resolved": keys, "origins": origins })
}

/// The steps from a manifest to its points, each with the points that it leaves.
struct Meaning<'m> {
    grid: Grid<'m>,
    selection: Selection,
    canonical: Canonical,
}

impl<'m> Meaning<'m> {
    fn of(manifest: &'m Manifest) -> Self {
        let grid = Grid::new(manifest);
        Meaning {
            selection: Selection::of(&grid),
            canonical: Canonical::of(&grid),
            grid,
        }
    }

    /// The steps of a case, each with the points that it leaves and a note.
    fn steps(&self, case: usize) -> Vec<(&'static str, u64, String)> {
        let counts = &self.grid.counts()[case];
        let steps = counts.steps().into_iter();
        let mut steps: Vec<_> = steps
            .map(|(step, left)| (step, left, String::new()))
            .collect();
        let points = counts.points();
        let shapes = self.shapes(case);
        steps.push((
            "canonical shapes",
            points,
            format!("{shapes} to compile for"),
        ));
        let [sampled, chosen] = self.selection.left(&self.grid, case);
        let sampling = self.selection.published.as_ref();
        let taken = sampling.map(|sampling| describe::taken(sampling.groups_of(case)));
        steps.push(("sampling", sampled, taken.unwrap_or_default()));
        steps.push(("budget", chosen, String::new()));
        steps
    }

    /// Canonical shapes of a case's points.
    fn shapes(&self, case: usize) -> usize {
        let points = self.grid.points().iter().enumerate();
        let of_case = points.filter(|(_, point)| usize::from(point.case) == case);
        let numbers = of_case.map(|(index, _)| self.canonical.number(index));
        numbers.collect::<std::collections::BTreeSet<_>>().len()
    }

    fn show(&self, screen: &Screen) {
        let manifest = self.grid.manifest();
        for (index, case) in manifest.cases.iter().enumerate() {
            let steps = self.steps(index);
            let points = steps.last().map_or(0, |(_, left, _)| *left);
            screen.line(&format!("{}: {points} points", case.name));
            for (step, left, note) in steps {
                let line = format!("  {step:32} {left:>9}   {note}");
                screen.line(line.trim_end());
            }
        }
        for line in describe::sampling(&self.grid, &self.selection, screen.verbose) {
            screen.line(&line);
        }
        let modes = manifest.measure.modes.len();
        if modes > 1 {
            screen.line(&format!(
                "on a GPU each point is measured in {modes} ways (measure.mode)"
            ));
        }
        screen.line(&format!("manifest {}: fine", manifest.hash()));
    }

    fn json(&self) -> Json {
        let manifest = self.grid.manifest();
        let cases = manifest.cases.iter().enumerate();
        let cases: Vec<Json> = cases
            .map(|(index, case)| {
                let steps = self.steps(index);
                let points = steps.last().map_or(0, |(_, left, _)| *left);
                let steps: Vec<_> = steps.iter().map(|(step, left, _)| (step, left)).collect();
                json!({
                    "case": &*case.name, "points": points, "steps": steps,
                    "canonical_shapes": self.shapes(index),
                })
            })
            .collect();
        let mut json = json!({ "manifest": manifest.hash().to_string(), "cases": cases });
        if self.selection.published.is_some() {
            json["published_shapes"] = describe::published_json(&self.grid, &self.selection);
        }
        json
    }
}
