//! A plan as JSON and as a list: equal bytes for equal manifests and devices.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value as Json, json};
use sweeper_program::Refusal;

use super::Plan;
use super::graph::{Step, graph};
use super::published::{self, Group};
use super::selection::{Selection, Taken};
use crate::grid::Grid;
use sweeper_model::tuning::family_of;
use sweeper_model::tuning::race::LEAST_SAMPLES;

/// So many of the published shapes are listed without being asked.
const FEW_GROUPS: usize = 12;

/// The plan as JSON: points, skips, canonical shapes with their members, kernels. It is written
/// point by point: a plan may have a million.
pub struct Described<'p, 'm>(pub &'p Plan<'m>);

impl Serialize for Described<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = self.0;
        let shapes: Vec<Json> = members(plan)
            .into_iter()
            .map(|(shape, members)| json!({ "shape": shape_json(plan, shape), "points": members }))
            .collect();
        let mut map = serializer.serialize_map(None)?;
        // In the order of their names, as all of our JSON.
        map.serialize_entry("canonical_shapes", &shapes)?;
        map.serialize_entry("device", &plan.device.kind)?;
        map.serialize_entry("kernels", &kernels_json(plan))?;
        map.serialize_entry("name", &plan.manifest().name)?;
        map.serialize_entry("over_budget", &plan.selection.over_budget)?;
        map.serialize_entry("plan", &1)?;
        map.serialize_entry("points", &Points(plan))?;
        if plan.selection.published.is_some() {
            let published = published_json(&plan.grid, &plan.selection);
            map.serialize_entry("published_shapes", &published)?;
        }
        map.serialize_entry("sampled_out", &plan.selection.sampled_out)?;
        map.serialize_entry("skips", &Skips(plan))?;
        map.end()
    }
}

struct Points<'p, 'm>(&'p Plan<'m>);

impl Serialize for Points<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let plan = self.0;
        serializer.collect_seq(plan.points.iter().map(|point| {
            let refusal = point.refusal.as_ref().map(ToString::to_string);
            json!({
                "point": point.id.0.hex(),
                "label": plan.label(point),
                "canonical": shape_json(plan, point.shape),
                "kernels": point.kernels,
                "memory_bytes": point.memory_bytes,
                "launches": point.launches,
                "refusal": refusal,
            })
        }))
    }
}

struct Skips<'p, 'm>(&'p Plan<'m>);

impl Serialize for Skips<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let grid = &self.0.grid;
        let skips = grid.skips().iter();
        serializer.collect_seq(
            skips.map(|skip| json!({ "label": grid.label(skip.point), "reason": &*skip.reason })),
        )
    }
}

fn kernels_json(plan: &Plan<'_>) -> Vec<Json> {
    let kernels = plan.kernels.iter();
    kernels
        .map(|kernel| {
            let defines: BTreeMap<&str, &str> = kernel
                .defines
                .iter()
                .map(|(name, value)| (name.as_ref(), value.as_str()))
                .collect();
            json!({ "source": kernel.main_file(), "language": kernel.language, "defines": defines })
        })
        .collect()
}

/// As [`Described`], at once.
pub fn json(plan: &Plan<'_>) -> Json {
    serde_json::to_value(Described(plan)).unwrap_or_default()
}

/// The groups of the published sampling: each shape with its configurations, and those that are
/// measured.
pub fn published_json(grid: &Grid<'_>, selection: &Selection) -> Json {
    let of_case = |(index, case): (usize, &crate::model::case::Case)| {
        let groups = selection.published.iter();
        let groups = groups.flat_map(move |sampling| sampling.groups_of(index));
        let name = case.name.clone();
        groups.map(move |group| {
            json!({
                "case": &*name,
                "shape": published::json(&group.shape),
                "configurations": group.members.iter().map(published::json).collect::<Vec<_>>(),
                "measured": group.chosen.iter().map(published::json).collect::<Vec<_>>(),
            })
        })
    };
    let cases = grid.manifest().cases.iter().enumerate();
    Json::Array(cases.flat_map(of_case).collect())
}

/// The published sampling by name, a line for each shape: those that were taken, or `all`.
pub fn sampling(grid: &Grid<'_>, selection: &Selection, all: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, case) in grid.manifest().cases.iter().enumerate() {
        let Some(sampling) = &selection.published else {
            break;
        };
        let groups = sampling.groups_of(index);
        lines.push(format!("{}: {}", case.name, taken(groups)));
        let shown = groups
            .iter()
            .filter(|group| all || !group.chosen.is_empty());
        let shown: Vec<&Group> = shown.collect();
        let few = if all { shown.len() } else { FEW_GROUPS };
        lines.extend(shown.iter().take(few).map(|group| group_line(group)));
        if shown.len() > few {
            let more = shown.len() - few;
            lines.push(format!("and {more} more shapes, which --verbose lists"));
        }
    }
    lines
}

/// The configurations of each tuned backend of a case: how many a problem has, and whether they
/// race.
pub fn tuning(plan: &Plan<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for case in &plan.manifest().cases {
        let mut families: BTreeMap<&str, usize> = BTreeMap::new();
        for backend in &case.backends {
            *families.entry(family_of(backend.0.name)).or_default() += 1;
        }
        for (family, count) in families.into_iter().filter(|(_, count)| *count > 1) {
            let declared = case.workload.declared;
            let race = match declared.is_some_and(|declared| declared.is_raced(family)) {
                true => format!(
                    "; they race: one that is clearly slower stops, after {LEAST_SAMPLES} samples at \
                     least"
                ),
                false => String::new(),
            };
            lines.push(format!(
                "{}: {count} configurations of {family} for each problem{race}; the best are \
                 measured twice",
                case.name
            ));
        }
    }
    lines
}

/// How much was taken, in words.
pub fn taken(groups: &[Group]) -> String {
    let taken = Taken::of(groups);
    format!(
        "{} of {} configurations, from {} of {} published shapes",
        taken.configurations, taken.of_configurations, taken.shapes, taken.of_shapes
    )
}

/// A published shape and its configurations.
fn group_line(group: &Group) -> String {
    let chosen: Vec<String> = group.chosen.iter().map(published::in_words).collect();
    let measured = match (chosen.len(), group.members.len()) {
        (0, count) => format!("not taken, {count} configurations"),
        (chosen_count, count) if chosen_count == count => chosen.join(", "),
        (_, count) => format!("{} (of {count})", chosen.join(", ")),
    };
    format!(
        "  shape {:20} {measured}",
        published::in_words(&group.shape)
    )
}

/// Points of each canonical shape, by number.
pub fn members(plan: &Plan<'_>) -> BTreeMap<u32, usize> {
    let mut members = BTreeMap::new();
    for point in &plan.points {
        *members.entry(point.shape).or_insert(0) += 1;
    }
    members
}

fn shape_json(plan: &Plan<'_>, shape: u32) -> Json {
    let bounds = plan.canonical.shapes()[shape as usize].iter();
    Json::Object(
        bounds
            .map(|(name, bound)| (name.to_owned(), json!(bound)))
            .collect::<Map<_, _>>(),
    )
}

/// One line a point: id, label, kernels or the reason why it is left out.
pub fn list(plan: &Plan<'_>) -> String {
    let mut text = String::new();
    for point in &plan.points {
        let label = plan.label(point);
        // Writing to a string can't fail.
        let _ = match &point.refusal {
            None => writeln!(text, "{} {label}", point.id),
            Some(Refusal::Undefined(reason)) => {
                writeln!(text, "{} {label}  (skipped: {reason})", point.id)
            }
            Some(Refusal::Unavailable(reason)) => {
                writeln!(text, "{} {label}  (unavailable: {reason})", point.id)
            }
            Some(Refusal::Invalid(reason)) => {
                writeln!(text, "{} {label}  (error: {reason})", point.id)
            }
        };
    }
    for skip in plan.grid.skips() {
        let label = plan.grid.label(skip.point);
        let _ = writeln!(text, "{:12} {label}  (skipped: {})", "-", skip.reason);
    }
    text
}

/// The graph of the plan for Graphviz.
pub fn dot(plan: &Plan<'_>) -> String {
    let graph = graph(plan);
    let mut text = String::from("digraph plan {\n  rankdir=LR;\n");
    for node in graph.node_indices() {
        let (label, shape) = match graph[node] {
            Step::Compile(kernel) => {
                let source = &plan.kernels[kernel as usize];
                (format!("compile {}", source.title()), "box")
            }
            Step::Measure(block) => {
                let planned = &plan.blocks[block as usize];
                (
                    format!(
                        "measure {} ({} points)",
                        planned.problem,
                        planned.points.len()
                    ),
                    "ellipse",
                )
            }
            Step::CaseDone(case) => (
                format!("{} done", plan.manifest().cases[usize::from(case)].name),
                "diamond",
            ),
            Step::Tables => ("write tables and exports".to_owned(), "box"),
        };
        let label = label.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(
            text,
            "  n{} [label=\"{label}\", shape={shape}];",
            node.index()
        );
    }
    for edge in graph.edge_indices() {
        if let Some((from, to)) = graph.edge_endpoints(edge) {
            let _ = writeln!(text, "  n{} -> n{};", from.index(), to.index());
        }
    }
    text.push_str("}\n");
    text
}
