//! A plan as JSON and as a list: the same bytes for the same manifest and device.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value as Json, json};
use sweeper_kernels::Refusal;

use super::Plan;
use super::graph::{Step, graph};

/// The plan as JSON: points, skips, canonical shapes with their members, kernels.
pub fn json(plan: &Plan<'_>) -> Json {
    let points: Vec<Json> = plan
        .points
        .iter()
        .map(|point| {
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
        })
        .collect();
    let skips: Vec<Json> = plan
        .grid
        .skips()
        .iter()
        .map(|skip| json!({ "label": plan.grid.label(skip.point), "reason": &*skip.reason }))
        .collect();
    let shapes: Vec<Json> = members(plan)
        .into_iter()
        .map(|(shape, members)| json!({ "shape": shape_json(plan, shape), "points": members }))
        .collect();
    let kernels: Vec<Json> = plan
        .kernels
        .iter()
        .map(|kernel| {
            let defines: BTreeMap<&str, &str> = kernel
                .defines
                .iter()
                .map(|(name, value)| (name.as_ref(), value.as_str()))
                .collect();
            json!({ "source": kernel.main_file(), "language": kernel.language, "defines": defines })
        })
        .collect();
    json!({
        "plan": 1,
        "name": plan.manifest().name,
        "device": plan.device.kind,
        "points": points,
        "skips": skips,
        "sampled_out": plan.sampled_out,
        "canonical_shapes": shapes,
        "kernels": kernels,
    })
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

/// One line a point: id, label, what it needs or why it is left out.
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
            Step::Report => ("report".to_owned(), "box"),
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
