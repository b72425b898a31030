//! `sweeper plan`: the points and programs of a run, before it starts.

use std::cmp::Reverse;

use clap::Args;
use serde_json::{Value as Json, json};
use sweeper_cache::{Cache, Catalog};
use sweeper_program::{Binding, KernelSource, Program, Step};

use super::exit::Exit;
use super::repeats::{self, Block};
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::target::{ArchArgs, Target};
use super::why::kernels::in_words;
use super::{place, why};
use crate::run::compiling;
use sweeper_engine::compile::kernels::Kernels;
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::{Plan, Planned, describe};
use sweeper_model::quantity;

/// Arguments of `plan`.
#[derive(Args)]
pub struct PlanArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    arch: ArchArgs,
    /// Print the graph for Graphviz
    #[arg(long, conflicts_with_all = ["list", "explain"])]
    dot: bool,
    /// Print a line for each point
    #[arg(long, conflicts_with = "explain")]
    list: bool,
    /// Print the program of a point: an id's first digits, or words such as `T=128 fused forward`
    #[arg(long, value_name = "POINT")]
    explain: Option<String>,
}

/// Shows a plan.
pub fn plan(args: &PlanArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    if args.dot && screen.json {
        screen.error("--dot and --json are two formats of one plan: choose one");
        return Exit::Usage;
    }
    let target = match Target::new(&args.arch, &manifest, screen) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    if !args.dot && !args.list && args.explain.is_none() {
        return show(&manifest, &target, screen);
    }
    let plan = Plan::new(&manifest, target.plan.clone());
    if let Some(wanted) = &args.explain {
        return match why::find(&plan, wanted) {
            Ok(point) => explain(&plan, point, screen),
            Err(message) => {
                screen.error(&message);
                Exit::Usage
            }
        };
    }
    match (args.dot, screen.json) {
        (true, _) => screen.out(&describe::dot(&plan)),
        (false, true) => screen.json(&describe::json(&plan)),
        (false, false) => screen.out(&describe::list(&plan)),
    }
    Exit::Fine
}

/// Shows the summary of a plan.
pub fn show(manifest: &Manifest, target: &Target, screen: &Screen) -> Exit {
    let plan = Plan::new(manifest, target.plan.clone());
    if screen.json {
        screen.json(&describe::json(&plan));
        return Exit::Fine;
    }
    screen.line(&format!("{}: {}", manifest.name, manifest.about.trim()));
    show_points(&plan, target, screen);
    let earlier = why::measured::earlier(&plan, target);
    if let Some(text) = earlier.in_words(plan.points.len()) {
        screen.line(&format!("edited     {text}"));
    }
    show_sampling(&plan, screen);
    show_tuning(&plan, screen);
    show_shapes(&plan, screen);
    show_kernels(&plan, target, screen);
    show_cost(&plan, screen);
    Exit::Fine
}

fn show_points(plan: &Plan<'_>, target: &Target, screen: &Screen) {
    let refused = plan
        .points
        .iter()
        .filter(|point| point.refusal.is_some())
        .count();
    let over_budget = match plan.selection.over_budget {
        0 => String::new(),
        count => format!("{count} beyond limits.max_points, "),
    };
    screen.line(&format!(
        "points     {} on {} ({} problems), {} skipped by the manifest, {} sampled out, {over_budget}{refused} refused",
        plan.points.len(),
        target.name(),
        plan.blocks.len(),
        plan.grid.skips().len(),
        plan.selection.sampled_out,
    ));
    let mut reasons: Vec<(String, usize)> = Vec::new();
    let skips = plan.grid.skips().iter().map(|skip| skip.reason.to_string());
    let refusals = plan.points.iter();
    let refusals = refusals.filter_map(|point| Some(point.refusal.as_ref()?.to_string()));
    for reason in skips.chain(refusals) {
        match reasons.iter_mut().find(|(held, _)| *held == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    for (reason, count) in reasons {
        screen.line(&format!("           {count} x {reason}"));
    }
}

/// Shows the points that the published sampling took, by name.
fn show_sampling(plan: &Plan<'_>, screen: &Screen) {
    for line in describe::sampling(&plan.grid, &plan.selection, screen.verbose) {
        screen.line(&format!("sampling   {line}"));
    }
}

/// Shows how many configurations tuned backends have for a problem, and which of them race.
fn show_tuning(plan: &Plan<'_>, screen: &Screen) {
    for line in describe::tuning(plan) {
        screen.line(&format!("tuning     {line}"));
    }
}

/// So many canonical shapes are listed without being asked.
const FEW_SHAPES: usize = 12;

fn show_shapes(plan: &Plan<'_>, screen: &Screen) {
    let members = describe::members(plan);
    screen.line(&format!(
        "shapes     {} canonical shapes that kernels are compiled for",
        members.len()
    ));
    if screen.verbose || members.len() <= FEW_SHAPES {
        for (shape, count) in members {
            let shape = &plan.canonical.shapes()[shape as usize];
            screen.line(&format!("           {shape}: {count} points"));
        }
    }
    for waste in plan.canonical.waste() {
        screen.line(&format!(
            "           {} padded by {} on average, {} at most",
            waste.name,
            quantity::percent(waste.mean),
            quantity::percent(waste.max)
        ));
    }
}

fn show_kernels(plan: &Plan<'_>, target: &Target, screen: &Screen) {
    let manifest = plan.manifest();
    let (dir, why) = place::cache_dir(Some(manifest));
    let cache = Cache::open_to_read(compiling::config(&dir, manifest)).ok();
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let kernels = Kernels {
        toolchain: &toolchain,
        cache: cache.as_ref(),
        device: target.device(),
        limit: manifest.limits.compile_timeout,
        require_cached: true,
        stop: &sweeper_engine::compile::NEVER,
    };
    let missing: Vec<&KernelSource> = plan
        .kernels
        .iter()
        .filter(|source| !kernels.is_cached(source))
        .collect();
    screen.line(&format!(
        "kernels    {} needed, {} in the cache, {} to compile; {} ({why})",
        plan.kernels.len(),
        plan.kernels.len() - missing.len(),
        missing.len(),
        dir.display()
    ));
    for warning in cache.iter().flat_map(Cache::take_warnings) {
        screen.warning(&warning.to_string());
    }
    if !missing.is_empty()
        && let Some(catalog) = cache.as_ref().and_then(|cache| cache.catalog().ok())
    {
        show_differences(&kernels, &missing, &catalog, screen);
    }
}

/// So many kernels are compared with the cache, and so many reasons are shown.
const MOST_EXPLAINED: usize = 200;
const MOST_REASONS: usize = 5;

/// Why kernels are not in the cache: the fields in which the nearest entries differ, the most
/// frequent first.
fn show_differences(
    kernels: &Kernels<'_>,
    missing: &[&KernelSource],
    catalog: &Catalog,
    screen: &Screen,
) {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for source in missing.iter().take(MOST_EXPLAINED) {
        let Some(nearest) = kernels.explain(source, catalog).nearest else {
            return;
        };
        // Entries that differ in more than a field or two are other kernels.
        let reason = match &nearest.differences[..] {
            few @ ([_] | [_, _]) => in_words(few),
            _ => "new".to_owned(),
        };
        match reasons.iter_mut().find(|(held, _)| *held == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    reasons.sort_by_key(|(_, count)| Reverse(*count));
    for (reason, count) in reasons.iter().take(MOST_REASONS) {
        screen.line(&format!("           {count} x {reason}"));
    }
    if reasons.len() > MOST_REASONS || missing.len() > MOST_EXPLAINED {
        screen.line("           ...; `sweeper why` says it of a point");
    }
}

fn show_cost(plan: &Plan<'_>, screen: &Screen) {
    let most = plan
        .points
        .iter()
        .map(|point| point.memory_bytes)
        .max()
        .unwrap_or(0);
    let limit = plan.manifest().limits.max_memory_bytes;
    let over = plan
        .points
        .iter()
        .filter(|point| limit.is_some_and(|limit| point.memory_bytes > limit));
    screen.line(&format!(
        "memory     {} at most for one point, {} points over the limit",
        quantity::bytes(most),
        over.count()
    ));
    screen.line(&format!(
        "time       about {} (a rough guess)",
        quantity::time_ns(plan.guess_ns(place::processors().0))
    ));
}

/// Prints the program of a point.
fn explain(plan: &Plan<'_>, point: &Planned, screen: &Screen) -> Exit {
    let backend = plan.grid.backend(point.point).name;
    let (phase, shape, target) = (point.point.phase, plan.shape(point), &plan.device.target);
    let problem = plan.problem(point.point);
    let passes = problem.as_ref().ok();
    let passes = passes.and_then(|problem| problem.explain(backend, phase, shape, target));
    let made = problem.and_then(|problem| {
        let made = problem.program(backend, phase, shape, target);
        made.map_err(|refusal| refusal.to_string())
    });
    if screen.json {
        screen.json(&json!({
            "point": point.id.0.hex(),
            "label": plan.label(point),
            "canonical": shape.to_string(),
            "passes": passes,
            "refusal": made.as_ref().err(),
            "program": made.as_ref().ok().map(program_json),
        }));
        return Exit::Fine;
    }
    screen.line(&format!("{} {}", point.id, plan.label(point)));
    screen.line(&format!("canonical shape: {shape}"));
    if let Some(passes) = passes {
        screen.line("passes:");
        for (name, launches) in by_pass(&passes) {
            screen.line(&format!("  {name}"));
            show_blocks(&repeats::launches(&launches), "launches", screen);
        }
    }
    match made {
        Err(reason) => screen.line(&format!("no program: {reason}")),
        Ok(program) => show_program(&program, screen),
    }
    Exit::Fine
}

fn program_json(program: &Program) -> Json {
    let buffers: Vec<Json> = program
        .buffers
        .iter()
        .map(|buffer| {
            json!({
                "name": buffer.name, "role": buffer.role.name(), "dtype": buffer.dtype,
                "len": buffer.len, "bytes": buffer.size_bytes(), "result": buffer.result(),
            })
        })
        .collect();
    let totals = program.totals();
    json!({
        "buffers": buffers,
        "prologue": lines_of(program, &program.prologue),
        "steps": lines_of(program, &program.steps),
        "launches": totals.launches,
        "read_bytes": totals.read_bytes,
        "written_bytes": totals.written_bytes,
        "memory_bytes": program.memory_bytes(),
    })
}

fn show_program(program: &Program, screen: &Screen) {
    screen.line("buffers:");
    let buffers = program.buffers.iter().map(|buffer| {
        let (len, dtype, role) = (buffer.len, buffer.dtype, buffer.role.name());
        let bytes = quantity::bytes(buffer.size_bytes());
        let is_updated = matches!(buffer.binding, Binding::Updated { .. });
        let updated = if is_updated { "  updated in place" } else { "" };
        let key = format!("{len:>10} x {dtype}  {role:10} {bytes}{updated}");
        let lines = vec![format!("{:24} {key}", buffer.name)];
        Block { key, lines }
    });
    show_blocks(&buffers.collect::<Vec<_>>(), "buffers", screen);
    let show = |steps: &[Step]| {
        let lines = lines_of(program, steps).into_iter();
        let blocks = lines.map(|line| Block {
            key: line.clone(),
            lines: vec![line],
        });
        show_blocks(&blocks.collect::<Vec<_>>(), "launches", screen);
    };
    if !program.prologue.is_empty() {
        screen.line("prologue (untimed):");
        show(&program.prologue);
    }
    screen.line("steps (timed):");
    show(&program.steps);
    let totals = program.totals();
    screen.line(&format!(
        "{} launches, {} read, {} written, {} of memory",
        totals.launches,
        quantity::bytes(totals.read_bytes),
        quantity::bytes(totals.written_bytes),
        quantity::bytes(program.memory_bytes())
    ));
}

/// The passes of an explanation: the line that names each, and its launches.
fn by_pass(passes: &str) -> Vec<(&str, String)> {
    let mut found: Vec<(&str, String)> = Vec::new();
    for line in passes.lines() {
        match found.last_mut() {
            Some((_, launches)) if line.starts_with(' ') => *launches += &format!("{line}\n"),
            _ => found.push((line, String::new())),
        }
    }
    found
}

/// Prints blocks, of which those that repeat are shown once.
fn show_blocks(blocks: &[Block], noun: &str, screen: &Screen) {
    for line in repeats::folded(blocks, noun) {
        screen.line(&format!("  {line}"));
    }
}

/// Steps, a line each, with the bytes that they move.
fn lines_of(program: &Program, steps: &[Step]) -> Vec<String> {
    let mut lines = Vec::new();
    add_steps(program, steps, &mut Vec::new(), &mut lines);
    lines
}

/// `counts` are the iterations of the loops around the steps; bytes are those of one iteration on
/// average.
fn add_steps(program: &Program, steps: &[Step], counts: &mut Vec<u64>, lines: &mut Vec<String>) {
    let indent = "  ".repeat(counts.len());
    for step in steps {
        let text = match step {
            Step::Repeat { count, body } => {
                lines.push(format!("{indent}repeat {count}:"));
                counts.push(*count);
                add_steps(program, body, counts, lines);
                counts.pop();
                continue;
            }
            Step::Launch {
                kernel, geometry, ..
            } => {
                format!(
                    "launch {} x{}",
                    program.kernels[kernel.0].name(),
                    geometry.grid[0]
                )
            }
            Step::Copy { from, to } => format!(
                "copy {} -> {}",
                program.buffers[from.buffer.0].name, program.buffers[to.buffer.0].name
            ),
            Step::Fill { view, value } => {
                format!("fill {} with {value}", program.buffers[view.buffer.0].name)
            }
        };
        let all = program.totals_of(std::slice::from_ref(step), counts);
        let moved = (all.read_bytes + all.written_bytes) / counts.iter().product::<u64>().max(1);
        let moved = quantity::bytes(moved);
        lines.push(format!("{indent}{text}  ({moved})"));
    }
}
