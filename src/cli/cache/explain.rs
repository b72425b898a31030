//! `sweeper cache explain`: the field of a key in which the nearest entry differs.

use std::path::{Path, PathBuf};

use clap::Args;
use sweeper_cache::{CacheError, Explanation, FindError};

use super::Place;
use crate::cli::exit::Exit;
use crate::cli::screen::Screen;
use crate::cli::settings;
use crate::cli::target::{ArchArgs, Target};
use crate::cli::why::{self, kernels};
use sweeper_manifest::Overrides;
use sweeper_manifest::plan::Plan;
use sweeper_model::quantity;

/// Arguments of `cache explain`.
#[derive(Args)]
pub struct ExplainArgs {
    /// First digits of an entry's key; with --manifest a point: its id's first digits, or words
    /// such as `T=128 K=4 fused forward`
    #[arg(required = true)]
    what: Vec<String>,
    /// The manifest that the point is of
    #[arg(long, short, value_name = "FILE")]
    manifest: Option<PathBuf>,
    #[command(flatten)]
    arch: ArchArgs,
    #[command(flatten)]
    place: Place,
}

/// Explains the kernels of a point, or an entry.
pub(super) fn explain(args: &ExplainArgs, screen: &Screen) -> Exit {
    match &args.manifest {
        Some(manifest) => of_point(args, manifest, screen).unwrap_or_else(|exit| exit),
        None => of_key(args, screen).unwrap_or_else(|error| {
            screen.error(&error.to_string());
            Exit::Files
        }),
    }
}

fn of_point(args: &ExplainArgs, manifest: &Path, screen: &Screen) -> Result<Exit, Exit> {
    let mut overrides = Overrides::new();
    if let Some(dir) = &args.place.cache_dir {
        overrides.flag("--cache-dir", Some(&dir.display().to_string()));
    }
    if let Some(size) = args.place.cache_size_gb {
        overrides.flag("--cache-size-gb", Some(&size.to_string()));
    }
    let manifest = settings::load(manifest, &overrides, screen)?;
    let target = Target::new(&args.arch, &manifest, screen)?;
    let plan = Plan::new(&manifest, target.plan.clone());
    let point = why::find(&plan, &args.what.join(" ")).map_err(|reason| {
        screen.error(&reason);
        Exit::Usage
    })?;
    let kernels = match point.refusal {
        Some(_) => Vec::new(),
        None => kernels::of(&plan, point, &target),
    };
    if screen.json {
        screen.json(&kernels);
        return Ok(Exit::Fine);
    }
    if kernels.is_empty() {
        screen.line("compiles nothing");
    }
    for kernel in kernels {
        screen.line(&kernel.to_string());
    }
    Ok(Exit::Fine)
}

fn of_key(args: &ExplainArgs, screen: &Screen) -> Result<Exit, CacheError> {
    let cache = args.place.look()?;
    let name = match cache.find(&args.what.join(" ")) {
        Ok(entry) => entry.name,
        Err(error) => {
            let hint = match error {
                FindError::NotAPrefix { .. } => "; a point needs its manifest, --manifest FILE",
                _ => "",
            };
            screen.error(&format!("{error}{hint}"));
            return Ok(Exit::Usage);
        }
    };
    match cache.catalog()?.explain_entry(&name) {
        None => {
            screen
                .error("what is under that name is not an entry; `sweeper cache verify` says why");
            return Ok(Exit::Files);
        }
        Some(explanation) if screen.json => screen.json(&explanation),
        Some(explanation) => show(&explanation, screen),
    }
    Ok(Exit::Fine)
}

fn show(explanation: &Explanation, screen: &Screen) {
    screen.line(&format!("entry {}", explanation.name));
    let Some(nearest) = &explanation.nearest else {
        return screen.line("is the only one");
    };
    screen.line(&format!(
        "the nearest of {} others, {}, last used {}, differs in",
        explanation.compared,
        nearest.name,
        quantity::date(nearest.last_use_ns as f64 / 1e9)
    ));
    for words in kernels::words(&nearest.differences) {
        screen.line(&format!("  {words}"));
    }
}
