//! Combinations of the grid that are not points of the plan, and the rules that leave them out.

use sweeper_manifest::case::Rule;
use sweeper_manifest::grid::{Fate, Point};
use sweeper_manifest::plan::Plan;
use sweeper_manifest::plan::published::{Group, in_words};
use sweeper_manifest::plan::query::Query;
use sweeper_manifest::provenance::Origin;

/// A combination that the plan leaves out.
pub(super) struct LeftOut {
    pub(super) label: String,
    /// In a word: `exclude`, `sampling`, ...
    pub(super) by: &'static str,
    /// In a sentence, with the rule and its line.
    pub(super) reason: String,
    /// Where the rule was written, if it is one.
    pub(super) origin: Option<String>,
}

/// The combinations that a query means and the plan leaves out, in the grid's order.
pub(super) fn find(plan: &Plan<'_>, query: &Query) -> Vec<LeftOut> {
    let mut found = Vec::new();
    plan.grid.fates(|point, fate| {
        let is_in = matches!(fate, Fate::Point(index) if plan.selection.has(index));
        if !is_in && query.matches(&plan.grid, point) {
            found.push(left_out(plan, point, &fate));
        }
    });
    found
}

/// Labels by reason, in order of appearance.
pub(super) fn by_reason(all: &[LeftOut]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for held in all {
        match reasons
            .iter_mut()
            .find(|(reason, _)| *reason == held.reason)
        {
            Some((_, labels)) => labels.push(&held.label),
            None => reasons.push((&held.reason, vec![&held.label])),
        }
    }
    reasons
}

fn left_out(plan: &Plan<'_>, point: Point, fate: &Fate) -> LeftOut {
    let case = plan.grid.case(point);
    let with = |by, reason: String, origin: Option<String>| LeftOut {
        label: plan.grid.label(point),
        by,
        reason,
        origin,
    };
    let excluded = |rule: &Rule| {
        let text = rule.when.text();
        let origin = written(plan, &format!("case.{}.rule.{text}", case.name));
        let place = in_brackets(origin.as_deref());
        // A rule without a reason has its own text as one.
        let reason = match rule.reason.ends_with(&**text) {
            true => String::new(),
            false => format!(": {}", rule.reason),
        };
        let reason = format!("skipped by `exclude` `{text}`{place}{reason}");
        with("exclude", reason, origin)
    };
    match fate {
        Fate::Point(index) if plan.selection.is_sampled_out(*index) => {
            with("sampling", sampled_out(plan, point), None)
        }
        Fate::Point(_) => {
            let origin = written(plan, "limits.max_points");
            let place = in_brackets(origin.as_deref());
            let most = plan.manifest().limits.max_points.unwrap_or_default();
            let reason = format!("beyond the first {most} points, `limits.max_points`{place}");
            with("budget", reason, origin)
        }
        Fate::Merged(index) => {
            let first = plan.grid.label(plan.grid.points()[*index]);
            let reason =
                format!("merged: it is the problem of `{first}`, measured in the same way");
            with("merge", reason, None)
        }
        Fate::Excluded(rule) => excluded(&case.exclude[*rule]),
        Fate::Undefined(error) => with("derive", format!("skipped: {error}"), None),
    }
}

/// Where a key was written, if anywhere.
fn written(plan: &Plan<'_>, path: &str) -> Option<String> {
    match plan.manifest().provenance().origin(path) {
        Origin::Default => None,
        origin => Some(origin.to_string()),
    }
}

fn in_brackets(origin: Option<&str>) -> String {
    origin.map_or(String::new(), |origin| format!(" ({origin})"))
}

fn sampled_out(plan: &Plan<'_>, point: Point) -> String {
    let sampling = plan.selection.published.as_ref();
    match sampling.and_then(|sampling| sampling.group(&plan.grid, point)) {
        Some((group, configuration)) if !group.chosen.contains(&configuration) => of_group(group),
        _ => {
            let origin = written(plan, "limits.sample_configs");
            let place = in_brackets(origin.as_deref());
            format!("sampled out: not among those of `limits.sample_configs`{place}")
        }
    }
}

fn of_group(group: &Group) -> String {
    let shape = in_words(&group.shape);
    let members = group.members.len();
    if group.chosen.is_empty() {
        return format!(
            "sampled out: its published shape {shape} is not among those taken (`plan.max_canonical_shapes`)"
        );
    }
    let chosen: Vec<String> = group.chosen.iter().map(in_words).collect();
    format!(
        "sampled out: of the {members} configurations of the published shape {shape} those measured are {} \
         (`plan.samples_per_shape`)",
        chosen.join(", ")
    )
}
