//! A plan as people read it: kernels with their nodes and memory, launches and bytes.

use std::collections::BTreeSet;
use std::fmt;

use super::body::Source;
use super::lower::{Loops, Memory};
use super::order::{launches, read, side_of};
use super::plan::{Kind, Plan, Side, Task, TaskId};
use super::{Explained, Stage};
use crate::graph::Op;

/// A plan after a pass.
pub(super) fn stage(name: &'static str, plan: &Plan) -> Stage {
    let (mut count, mut bytes) = (0, 0);
    let mut text = String::new();
    for launch in launches(plan) {
        let what = match side_of(plan, &launch) {
            Side::Setup => "setup",
            Side::Forward => "forward",
            Side::Backward => "backward",
        };
        let kernels = launch.iter().map(|&at| kernel(plan, at));
        let (lines, each): (Vec<String>, Vec<u64>) = kernels.unzip();
        let moved: u64 = each.iter().sum();
        match &lines[..] {
            [line] => text += &format!("{what} {line}"),
            lines => {
                let together = match plan.is_single_pass(&launch) {
                    true => "single-pass reduction".to_owned(),
                    false => format!("{} kernels in one launch", lines.len()),
                };
                text += &format!("{what} {together}, {moved} bytes\n");
                let lines = lines.iter().flat_map(|kernel| kernel.lines());
                lines.for_each(|line| text += &format!("  {line}\n"));
            }
        }
        // A convolution on a CPU is one call, too: unfolding is not counted.
        count += 1;
        bytes += moved;
    }
    Stage {
        name,
        text,
        launches: count,
        bytes,
    }
}

/// One kernel, and the bytes that it moves.
fn kernel(plan: &Plan, at: usize) -> (String, u64) {
    let cluster = &plan.clusters[at];
    let outputs = plan.outputs(&cluster.tasks, &[at]);
    let nodes = cluster.tasks.iter().map(|&task| node(plan, task));
    let copies = cluster.copies.iter();
    let copies = copies.map(|&task| format!("again {}", node(plan, task)));
    let mut nodes: Vec<String> = nodes.collect();
    nodes.extend(copies);
    let is_call = cluster.tasks.iter().any(|&task| plan.is_call(task));
    let loops = (!is_call).then(|| plan.loops(&cluster.members(), &outputs));
    let (memory, moved, kind) = match loops.flatten() {
        Some(loops) => {
            let (read, written) = loops.bytes();
            (of_loops(plan, &loops), read + written, loops_name(&loops))
        }
        None => {
            let cost = plan.cost(&cluster.members(), &cluster.tasks, &[at]);
            let moved = cost.map_or(0, |cost| cost.bytes);
            (of_call(plan, at, &outputs), moved, "call".to_owned())
        }
    };
    let text = format!("{kind}: {}\n  {memory}, {moved} bytes\n", nodes.join(", "));
    (text, moved)
}

fn loops_name(loops: &Loops) -> String {
    let rows: Vec<String> = loops.extents.rows.iter().map(u64::to_string).collect();
    match loops.combines_partials {
        true => format!("kernel [partials x {}]", loops.extents.columns),
        false => format!("kernel [{} x {}]", rows.join(", "), loops.extents.columns),
    }
}

fn node(plan: &Plan, task: TaskId) -> String {
    let Task { node, kind, .. } = plan.tasks[task];
    let name = plan.graph.node(node).op.name();
    match kind {
        Kind::Combine => format!("{node} combine partials of {name}"),
        Kind::Compute if plan.graph.node(node).op.is_view() => format!("{node} copy of {name}"),
        Kind::Compute => format!("{node} {name}"),
    }
}

/// Memory as a list: each node once, with its shape.
fn listed(mut held: Vec<String>) -> String {
    let mut listed = BTreeSet::new();
    held.retain(|name| listed.insert(name.clone()));
    match held.is_empty() {
        true => "nothing".to_owned(),
        false => held.join(" "),
    }
}

fn of_loops(plan: &Plan, loops: &Loops) -> String {
    let in_place = |memory: &Memory| match memory.source {
        Source::Node(id) if memory.is_written => plan.in_place.get(&id),
        Source::Node(_) | Source::Rounded(_) | Source::Partials(_) => None,
    };
    let of = |is_written: bool| {
        let memory = loops.memory.iter();
        let memory = memory.filter(|memory| memory.is_written == is_written);
        let names = memory.map(|memory| match in_place(memory) {
            None => source(plan, memory.source),
            Some(&given) => {
                let given = source(plan, Source::Node(given));
                format!("{} as {given}", source(plan, memory.source))
            }
        });
        listed(names.collect())
    };
    format!("reads {} writes {}", of(false), of(true))
}

fn source(plan: &Plan, source: Source) -> String {
    match source {
        Source::Partials(id) => format!("partials of {id}{:?}", plan.graph.node(id).shape),
        Source::Rounded(id) => format!("{id}{:?} in bf16", plan.graph.node(id).shape),
        Source::Node(id) => {
            let node = plan.graph.node(id);
            match &node.op {
                Op::Input(name) => format!("{name}{:?}", node.shape),
                _ => format!("{id}{:?}", node.shape),
            }
        }
    }
}

fn of_call(plan: &Plan, at: usize, outputs: &[TaskId]) -> String {
    let tasks = plan.clusters[at].tasks.iter();
    let given = tasks.flat_map(|&task| {
        let operands = plan.graph.node(plan.tasks[task].node).operands.iter();
        let bases = operands.flat_map(|&operand| plan.bases(operand));
        bases.filter(|&base| matches!(plan.graph.node(base).op, Op::Input(_)))
    });
    let made = read(plan, at).into_iter().map(|task| plan.tasks[task].node);
    let read = given.chain(made).map(|id| source(plan, Source::Node(id)));
    let written = outputs
        .iter()
        .map(|&task| source(plan, Source::Node(plan.tasks[task].node)));
    format!(
        "reads {} writes {}",
        listed(read.collect()),
        listed(written.collect())
    )
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stage {
            name,
            text,
            launches,
            bytes,
        } = self;
        writeln!(out, "after {name}: {launches} launches, {bytes} bytes")?;
        text.lines().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.passes.iter().try_for_each(|stage| stage.fmt(out))
    }
}
