//! `sweeper check`: validate a manifest, and say what it amounts to.

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use crate::grid::Grid;

/// Arguments of `check`.
#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Print the manifest with everything resolved, and where each value came from
    #[arg(long)]
    resolved: bool,
}

/// Validates a manifest.
pub fn check(args: &CheckArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    if args.resolved {
        screen.out(&manifest.resolved_toml_with_origins());
        return Exit::Fine;
    }
    let grid = Grid::new(&manifest);
    let cases = || manifest.cases.iter().zip(grid.counts());
    if screen.json {
        let cases: Vec<_> = cases()
            .map(|(case, counts)| {
                let steps = counts.steps();
                json!({ "case": &*case.name, "points": counts.points(), "steps": steps })
            })
            .collect();
        screen.json(&json!({ "manifest": manifest.hash().to_string(), "cases": cases }));
    } else if !screen.quiet {
        for (case, counts) in cases() {
            screen.line(&format!("{}: {} points", case.name, counts.points()));
            for (step, left) in counts.steps() {
                screen.line(&format!("  {step:32} {left:>9}"));
            }
        }
        screen.line(&format!("manifest {}: fine", manifest.hash()));
    }
    Exit::Fine
}
