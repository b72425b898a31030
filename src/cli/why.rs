//! `sweeper why`: why a point is in or out, would be measured again, would be compiled.

use clap::Args;
use sweeper_cache::{Cache, CacheConfig};

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::{place, plan};
use crate::compile::kernels::Kernels;
use crate::plan::{Plan, Planned};
use crate::record::environment::RunIdentity;
use crate::record::find;
use crate::record::folder::Recorded;
use crate::run;

/// Arguments of `why`.
#[derive(Args)]
pub struct WhyArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// The point: its id's first digits, or words such as `T=128 K=4 fused forward`
    #[arg(required = true)]
    point: Vec<String>,
}

/// Says why.
pub fn why(args: &WhyArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let plan = match plan::make(&manifest, screen) {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    let wanted = args.point.join(" ");
    match find(&plan, &wanted) {
        Ok(point) => {
            why_measured(&plan, point, screen);
            Exit::Fine
        }
        Err(message) => match skipped(&plan, &wanted) {
            Some(text) => {
                screen.line(&text);
                Exit::Fine
            }
            None => {
                screen.error(&message);
                Exit::Usage
            }
        },
    }
}

/// The point that an id's first digits, or words of its label, name.
///
/// # Errors
/// A sentence: none, or several and which.
pub fn find<'p>(plan: &'p Plan<'_>, wanted: &str) -> Result<&'p Planned, String> {
    let by_id: Vec<&Planned> = plan
        .points
        .iter()
        .filter(|point| point.id.has_prefix(wanted))
        .collect();
    let found = if by_id.is_empty() {
        plan.points
            .iter()
            .filter(|point| has_words(&plan.label(point), wanted))
            .collect()
    } else {
        by_id
    };
    match found[..] {
        [point] => Ok(point),
        [] => Err(format!(
            "no point of the plan is `{wanted}`; `sweeper plan --list` shows all"
        )),
        _ => {
            let some: Vec<String> = found
                .iter()
                .take(5)
                .map(|point| format!("  {} {}", point.id, plan.label(point)))
                .collect();
            Err(format!(
                "`{wanted}` is {} points, among them\n{}",
                found.len(),
                some.join("\n")
            ))
        }
    }
}

fn has_words(label: &str, wanted: &str) -> bool {
    let words: Vec<&str> = label.split_whitespace().collect();
    !wanted.trim().is_empty() && wanted.split_whitespace().all(|word| words.contains(&word))
}

/// The declared reason for which a point is out, if one matches.
fn skipped(plan: &Plan<'_>, wanted: &str) -> Option<String> {
    let skips = plan.grid.skips().iter();
    let mut found = skips.filter(|skip| has_words(&plan.grid.label(skip.point), wanted));
    let first = found.next()?;
    let more = found.count();
    let more = if more > 0 {
        format!(" (and {more} more points)")
    } else {
        String::new()
    };
    Some(format!(
        "{}{more}\nout: skipped by the manifest: {}",
        plan.grid.label(first.point),
        first.reason
    ))
}

fn why_measured(plan: &Plan<'_>, point: &Planned, screen: &Screen) {
    screen.line(&format!("{} {}", point.id, plan.label(point)));
    screen.line(&format!("in: canonical shape {}", plan.shape(point)));
    if let Some(refusal) = &point.refusal {
        screen.line(&format!("no program: {refusal}"));
        return;
    }
    let manifest = plan.manifest();
    let (dir, _) = place::cache_dir(Some(manifest));
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let device = plan::device(plan);
    let identity = RunIdentity::new(
        manifest.hash(),
        run::local_devices(manifest).unwrap_or_default(),
        &run::toolchain_for(plan.device.kind, &toolchain),
    );
    screen.line(&why_again(plan, point, &identity));
    let config = CacheConfig::new(&dir, manifest.cache.size_bytes);
    let cache = dir.exists().then(|| Cache::open(config).ok()).flatten();
    let kernels = Kernels {
        toolchain: &toolchain,
        cache: cache.as_ref(),
        device: &device,
        limit: manifest.limits.compile_timeout,
        require_cached: true,
        stop: &crate::compile::NEVER,
    };
    if point.kernels.is_empty() {
        screen.line("compiles nothing");
    }
    for &number in &point.kernels {
        let source = &plan.kernels[number as usize];
        let key = kernels.key(source);
        let state = if kernels.is_cached(source) {
            "in the cache".to_owned()
        } else {
            let nearest = cache.as_ref().and_then(|cache| cache.explain(&key).ok());
            match nearest.and_then(|explanation| explanation.nearest) {
                None => "to compile: the cache has nothing like it".to_owned(),
                Some(nearest) => {
                    let fields: Vec<String> = nearest
                        .differences
                        .iter()
                        .map(|difference| format!("{difference:?}"))
                        .collect();
                    format!(
                        "to compile: the nearest entry differs in {}",
                        fields.join(", ")
                    )
                }
            }
        };
        screen.line(&format!("kernel {} {key}: {state}", source.title()));
    }
}

/// Whether the point has a row, or in what the nearest run that has one differs.
fn why_again(plan: &Plan<'_>, point: &Planned, identity: &RunIdentity) -> String {
    let manifest = plan.manifest();
    let found = find::list(&manifest.output.dir).unwrap_or_default().runs;
    let runs: Vec<Recorded> = found
        .into_iter()
        .filter_map(|found| found.run.ok())
        .collect();
    let has_row = |run: &Recorded| {
        let rows = run.rows().unwrap_or_default();
        rows.into_iter().find(|row| row.point == point.id)
    };
    if let Some(own) = runs
        .iter()
        .find(|run| run.environment.identity.run == identity.run)
        && let Some(row) = has_row(own)
    {
        return format!(
            "measured: run {} has it as {}; --fresh measures it again",
            identity.run, row.outcome.status
        );
    }
    let nearest = runs
        .iter()
        .filter(|run| has_row(run).is_some())
        .map(|run| (run, identity.differences(&run.environment.identity)))
        .min_by_key(|(_, differences)| differences.len());
    match nearest {
        None => format!(
            "to be measured: no run in {} has it",
            manifest.output.dir.display()
        ),
        Some((run, differences)) => {
            let fields: Vec<String> = differences
                .iter()
                .map(|difference| {
                    format!(
                        "  {}: now {}, then {}",
                        difference.field, difference.own, difference.other
                    )
                })
                .collect();
            format!(
                "to be measured: run {} has it, but differs in\n{}",
                run.environment.identity.run,
                fields.join("\n")
            )
        }
    }
}
