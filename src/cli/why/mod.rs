//! `sweeper why`: why a point is in or out, would be measured again, would be compiled.

use clap::Args;
use serde_json::{Value as Json, json};

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::target::{ArchArgs, Target};
use sweeper_manifest::plan::published::in_words;
use sweeper_manifest::plan::query::Query;
use sweeper_manifest::plan::{Plan, Planned};

mod left_out;
pub mod measured;
pub mod kernels;

use left_out::LeftOut;

/// Arguments of `why`.
#[derive(Args)]
pub struct WhyArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    arch: ArchArgs,
    /// The point: its id's first digits, or words such as `T=128 K=4 fused forward`; other names of
    /// backends and semirings are understood
    #[arg(required = true)]
    point: Vec<String>,
}

/// So many points are listed where several are meant.
const MOST_LISTED: usize = 8;

/// Says why.
pub fn why(args: &WhyArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let target = match Target::new(&args.arch, &manifest, screen) {
        Ok(target) => target,
        Err(exit) => return exit,
    };
    let plan = Plan::new(&manifest, target.plan.clone());
    let wanted = args.point.join(" ");
    let meant = Meant::of(&plan, &wanted);
    match (&meant.points[..], &meant.left_out[..]) {
        ([], []) => {
            let query = Query::new(&wanted);
            screen.error(&format!(
                "no point is `{wanted}`: {}; `sweeper plan --list` shows all",
                query.why_nothing(&plan.grid)
            ));
            return Exit::Usage;
        }
        ([point], []) => explain(&plan, point, &target, screen),
        _ if screen.json => screen.json(&meant.json(&plan)),
        _ => meant.show(&plan, &wanted, screen),
    }
    Exit::Fine
}

/// The point of a plan that an id's first digits, or words, name.
///
/// # Errors
/// A sentence: none, or several and which.
pub fn find<'p>(plan: &'p Plan<'_>, wanted: &str) -> Result<&'p Planned, String> {
    let meant = Meant::of(plan, wanted);
    match (&meant.points[..], &meant.left_out[..]) {
        ([point], _) => Ok(point),
        ([], []) => Err(format!(
            "no point of the plan is `{wanted}`: {}; `sweeper plan --list` shows all",
            Query::new(wanted).why_nothing(&plan.grid)
        )),
        ([], _) => Err(format!(
            "no point of the plan is `{wanted}`: it is left out; `sweeper why` says by what"
        )),
        (points, _) => {
            let some = points.iter().take(5);
            let some: Vec<String> = some.map(|point| line(plan, point)).collect();
            Err(format!(
                "`{wanted}` is {} points, among them\n{}",
                points.len(),
                some.join("\n")
            ))
        }
    }
}

fn line(plan: &Plan<'_>, point: &Planned) -> String {
    format!("  {} {}", point.id, plan.label(point))
}

/// The meaning of a query: points of the plan, and combinations that it leaves out.
struct Meant<'p> {
    points: Vec<&'p Planned>,
    left_out: Vec<LeftOut>,
}

impl<'p> Meant<'p> {
    fn of(plan: &'p Plan<'_>, wanted: &str) -> Self {
        let points = plan.points.iter();
        let by_id = points.filter(|point| point.id.has_prefix(wanted.trim()));
        let points: Vec<&Planned> = by_id.collect();
        if !points.is_empty() {
            let left_out = Vec::new();
            return Meant { points, left_out };
        }
        let query = Query::new(wanted);
        if query.is_empty() {
            let (points, left_out) = (Vec::new(), Vec::new());
            return Meant { points, left_out };
        }
        let points = plan.points.iter().filter(|planned| {
            query.mode().is_none_or(|mode| mode == planned.mode)
                && query.matches(&plan.grid, planned.point)
        });
        Meant {
            points: points.collect(),
            left_out: left_out::find(plan, &query),
        }
    }

    /// Shows several points, or some that are out: how many of each, and the rules that leave them
    /// out.
    fn show(&self, plan: &Plan<'_>, wanted: &str, screen: &Screen) {
        let (points, left_out) = (self.points.len(), self.left_out.len());
        if let ([], [only]) = (&self.points[..], &self.left_out[..]) {
            screen.line(&only.label);
            screen.line(&format!("out: {}", only.reason));
            return;
        }
        screen.line(&format!(
            "`{wanted}` is {} combinations of the grid: {points} of {} are in",
            points + left_out,
            points + left_out
        ));
        for point in self.points.iter().take(MOST_LISTED) {
            screen.line(&format!("in: {}", line(plan, point).trim_start()));
        }
        more(points, "", screen);
        for (reason, labels) in left_out::by_reason(&self.left_out) {
            screen.line(&format!("out, {}: {reason}", labels.len()));
            for label in labels.iter().take(MOST_LISTED) {
                screen.line(&format!("  {label}"));
            }
            more(labels.len(), "  ", screen);
        }
        if points > 0 {
            screen.line("words that only one point has, or its id, say more of it");
        }
    }

    fn json(&self, plan: &Plan<'_>) -> Json {
        let point =
            |point: &&Planned| json!({ "point": point.id.0.hex(), "label": plan.label(point) });
        let left_out = self.left_out.iter().map(|held| {
            json!({ "label": held.label, "by": held.by, "reason": held.reason, "origin": held.origin })
        });
        json!({
            "in": self.points.iter().map(point).collect::<Vec<_>>(),
            "out": left_out.collect::<Vec<_>>(),
        })
    }
}

/// Says how many are not listed.
fn more(count: usize, indent: &str, screen: &Screen) {
    if count > MOST_LISTED {
        screen.line(&format!("{indent}and {} more", count - MOST_LISTED));
    }
}

/// Shows all facts about one point of the plan.
fn explain(plan: &Plan<'_>, point: &Planned, target: &Target, screen: &Screen) {
    let sampled = plan.selection.published.as_ref();
    let group = sampled.and_then(|sampling| sampling.group(&plan.grid, point.point));
    let shape = group.map(|(group, _)| in_words(&group.shape));
    let (measured, kernels) = match &point.refusal {
        Some(_) => (None, Vec::new()),
        None => (
            Some(measured::of(plan, point, target)),
            kernels::of(plan, point, target),
        ),
    };
    let refusal = point.refusal.as_ref().map(ToString::to_string);
    if screen.json {
        screen.json(&json!({
            "in": [{
                "point": point.id.0.hex(),
                "label": plan.label(point),
                "canonical": plan.shape(point).to_string(),
                "published_shape": shape,
                "refusal": refusal,
                "measured": measured,
                "kernels": kernels,
            }],
            "out": [],
        }));
        return;
    }
    screen.line(&format!("{} {}", point.id, plan.label(point)));
    screen.line(&format!("in: canonical shape {}", plan.shape(point)));
    if let Some(shape) = shape {
        screen.line(&format!("sampled: of the published shape {shape}"));
    }
    if let Some(refusal) = refusal {
        screen.line(&format!("no program: {refusal}"));
    }
    if let Some(measured) = measured {
        screen.line(&measured.to_string());
        if kernels.is_empty() {
            screen.line("compiles nothing");
        }
    }
    for kernel in kernels {
        screen.line(&kernel.to_string());
    }
}
