//! Runs plans in f64, launch by launch: the meaning of kernels, without threads or text.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::super::access;
use super::super::body::Source;
use super::super::epilogue::{self, Epilogue};
use super::super::library;
use super::super::lower::{Loops, Memory};
use super::super::order::launches;
use super::super::plan::{Origin, Plan};
use crate::graph::{Graph, NodeId, Op, evaluate};
use crate::nest::{self, CrossBlock, Launch, interpret};
use sweeper_program::tensor::{Data, Dtype, Tensor, Tensors};
use sweeper_program::{Activation, BufferId, Index, Library, Matmul, Precision, Role, View, check};

/// Parts that last reductions are left in.
const PARTS: usize = 3;

type Memories = BTreeMap<Source, Vec<f64>>;

/// The wanted outputs of a plan, by name.
pub(super) fn interpret(plan: &Plan, inputs: &Tensors) -> BTreeMap<String, Vec<f64>> {
    let mut memories = Memories::new();
    for given in plan.graph.given() {
        if let Op::Input(name) = &plan.graph.node(given.node).op {
            let values = check::elements(&inputs[name]).collect();
            memories.insert(Source::Node(given.node), values);
        }
    }
    let launched = launches(plan);
    assert_eq!(launched.iter().flatten().count(), plan.kernels().len());
    for launch in launched {
        let written = match launch[..] {
            [first, last] if plan.is_single_pass(&launch) => total(plan, [first, last], &memories),
            // Kernels of a pack see nothing of each other.
            _ => launch
                .iter()
                .flat_map(|&at| kernel(plan, at, &memories))
                .collect(),
        };
        for source in written.keys() {
            // A result in its memory has overwritten a given tensor.
            if let Source::Node(id) = source
                && let Some(&given) = plan.in_place.get(id)
                && let Some(values) = memories.get_mut(&Source::Node(given))
            {
                values.fill(f64::NAN);
            }
        }
        memories.extend(written);
    }
    let wanted = plan.wanted.iter().map(|&output| {
        let result = &plan.graph.outputs()[output];
        let elements = plan.graph.node(result.node).elements();
        let values = match plan.origin(output) {
            Origin::Number(number) => vec![number; elements],
            Origin::Given(id) | Origin::Made(id) => memories[&Source::Node(id)].clone(),
        };
        (result.name.clone(), values)
    });
    wanted.collect()
}

/// The memory that two kernels of one launch write. The second kernel sees only the partials of the
/// first one.
fn total(plan: &Plan, [first, last]: [usize; 2], memories: &Memories) -> Memories {
    let mut written = kernel(plan, first, memories);
    let parts = written.iter();
    let parts = parts.filter(|(source, _)| matches!(source, Source::Partials(_)));
    let mut seen = memories.clone();
    seen.extend(parts.map(|(source, values)| (*source, values.clone())));
    written.extend(kernel(plan, last, &seen));
    written
}

/// The memory that a kernel writes.
fn kernel(plan: &Plan, at: usize, memories: &Memories) -> Memories {
    let cluster = &plan.clusters[at];
    let nodes = cluster.tasks.iter().map(|&task| plan.tasks[task].node);
    if nodes
        .clone()
        .any(|id| matches!(plan.graph.node(id).op, Op::Attention(_)))
    {
        let value = |id: NodeId| (Source::Node(id), call(plan, id, memories));
        return nodes.map(value).collect();
    }
    if let Some(&task) = cluster.tasks.iter().find(|&&task| plan.is_call(task)) {
        let mut values = call(plan, plan.tasks[task].node, memories);
        let Epilogue {
            scale,
            bias,
            activation,
        } = epilogue::of_cluster(plan, &cluster.tasks, task);
        let scale = f64::from(scale.get());
        values.iter_mut().for_each(|x| *x *= scale);
        if let Some(bias) = bias {
            let bias = &memories[&Source::Node(bias.base)][bias.start..][..bias.span];
            let columns = bias.iter().cycle();
            values.iter_mut().zip(columns).for_each(|(x, y)| *x += y);
        }
        match activation {
            Activation::None => {}
            Activation::Relu => values.iter_mut().for_each(|x| *x = x.max(0.0)),
            Activation::GeluTanh => panic!("not interpreted"),
        }
        // The node of its last task.
        let yields = cluster.tasks.last().map(|&task| plan.tasks[task].node);
        return [(Source::Node(yields.expect("tasks")), values)].into();
    }
    let outputs = plan.outputs(&cluster.tasks, &[at]);
    let loops = plan.loops(&cluster.members(), &outputs).expect("a nest");
    loops.nest.validate().unwrap();
    run(plan, &loops, memories)
}

/// The memory that a generated kernel writes: as many blocks of rows as there are partials, one
/// after the other.
fn run(plan: &Plan, loops: &Loops, memories: &Memories) -> Memories {
    let launch = launch(plan, loops, memories);
    let mut own: Vec<Vec<f64>> = loops
        .memory
        .iter()
        .map(|memory| match memory.source {
            Source::Node(id) | Source::Rounded(id) | Source::Partials(id) if memory.is_written => {
                vec![f64::NAN; plan.span(id)]
            }
            source => memories[&source].clone(),
        })
        .collect();
    let rows = launch.extents.row_count() as usize;
    let parts = match loops.nest.cross_block {
        CrossBlock::Partials => PARTS.min(rows),
        CrossBlock::OneBlock => 1,
    };
    let piece = rows.div_ceil(parts);
    let mut written = Memories::new();
    for first in (0..rows).step_by(piece) {
        let block = first..rows.min(first + piece);
        interpret::run(&loops.nest, &launch, block, &mut own);
        for (memory, values) in loops.memory.iter().zip(&own) {
            if let (true, Source::Partials(_)) = (memory.is_written, memory.source) {
                let parts = written.entry(memory.source).or_default();
                parts.extend(values);
            }
        }
    }
    for (memory, values) in loops.memory.iter().zip(own) {
        if memory.is_written {
            written.entry(memory.source).or_insert(values);
        }
    }
    written
}

/// A launch of a generated kernel; buffers are numbered by the position of their operands.
fn launch(plan: &Plan, loops: &Loops, memories: &Memories) -> Launch {
    let mut extents = loops.extents.clone();
    if loops.combines_partials {
        let mut of_parts = loops
            .memory
            .iter()
            .filter_map(|memory| match memory.source {
                Source::Partials(id) => {
                    Some(memories[&memory.source].len() / plan.graph.node(id).elements())
                }
                Source::Node(_) | Source::Rounded(_) => None,
            });
        extents.rows[0] = of_parts.next().expect("parts") as u64;
    }
    let memory = |(at, memory): (usize, &Memory)| nest::Memory {
        view: View::new(BufferId(at), Index::from(memory.start), memory.len),
        rows: memory.rows.iter().map(|&step| step as i64).collect(),
        columns: memory.columns as i64,
        index_step: memory.index_step as i64,
    };
    Launch {
        extents,
        operands: loops.memory.iter().enumerate().map(memory).collect(),
        scalars: loops.scalars.clone(),
    }
}

fn call(plan: &Plan, id: NodeId, memories: &Memories) -> Vec<f64> {
    let node = plan.graph.node(id);
    let found = library::call(plan, id, Precision::F32);
    if let Some((Library::Matmul(call), lies)) = found {
        let [a, b] = [0, 1].map(|at: usize| memory(plan, lies[at].base, memories));
        return product(&call, &a[lies[0].start..], &b[lies[1].start..]);
    }
    // The oracle of the operation itself.
    let mut alone = Graph::new();
    let mut inputs = Tensors::new();
    let mut lone = node.clone();
    for (at, operand) in lone.operands.iter_mut().enumerate() {
        let of = plan.graph.node(*operand);
        let values = elements(plan, *operand, memories);
        let name = at.to_string();
        let data = match of.dtype {
            Dtype::I64 => Data::I64(values.into_iter().map(|value| value as i64).collect()),
            _ => Data::F32(values.into_iter().map(|value| value as f32).collect()),
        };
        *operand = alone
            .input(&name, &of.shape, of.dtype, Role::Input)
            .unwrap();
        inputs.insert(name, Tensor::new(of.shape.clone(), data));
    }
    let out = alone.append(lone, None);
    alone.output("out", out, Role::Output);
    let out = &evaluate(&alone, &inputs).unwrap()["out"];
    check::elements(out).collect()
}

/// The elements of a node that is read by strides, in row-major order.
fn elements(plan: &Plan, id: NodeId, memories: &Memories) -> Vec<f64> {
    let shape = &plan.graph.node(id).shape;
    let (base, at) =
        library::position(plan, id, shape, access::axes(shape.len())).expect("strides");
    let memory = memory(plan, base, memories);
    let element = |mut index: usize| {
        let mut place = at.start;
        for (axis, &extent) in shape.iter().enumerate().rev() {
            place += index % extent * at.step(axis);
            index /= extent;
        }
        memory[place]
    };
    (0..plan.graph.node(id).elements()).map(element).collect()
}

/// The memory of a node, or of the parts of a concatenation.
fn memory<'m>(plan: &Plan, id: NodeId, memories: &'m Memories) -> Cow<'m, [f64]> {
    let node = plan.graph.node(id);
    if !matches!(node.op, Op::Concat { .. }) {
        return Cow::Borrowed(&memories[&Source::Node(id)]);
    }
    let mut whole = vec![f64::NAN; node.elements()];
    for base in plan.bases(id) {
        let part = plan.parts[&base];
        let values = memories[&Source::Node(base)].chunks(part.step);
        for (run, values) in whole[part.start..].chunks_mut(part.step).zip(values) {
            run[..part.run].copy_from_slice(&values[..part.run]);
        }
    }
    Cow::Owned(whole)
}

fn product(call: &Matmul, a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut out = Vec::new();
    for (batch, row) in (0..call.batch).flat_map(|batch| (0..call.m).map(move |row| (batch, row))) {
        for column in 0..call.n {
            let term = |inner: usize| {
                let (in_a, in_b) = (&call.a, &call.b);
                let a = a[batch * in_a.batch_step + row * in_a.row_step + inner * in_a.column_step];
                a * b[batch * in_b.batch_step + inner * in_b.row_step + column * in_b.column_step]
            };
            out.push((0..call.k).map(term).sum());
        }
    }
    out
}
