//! Runs plans in f64, nest by nest as their documentation says: what kernels mean, before anything of
//! threads or text.

use std::collections::BTreeMap;

use super::super::body::Source;
use super::super::library;
use super::super::lower::{Loops, Memory};
use super::super::order::launches;
use super::super::plan::{Origin, Plan};
use crate::check;
use crate::graph::{Binary, Graph, NodeId, Op, Reduction, Unary, evaluate};
use crate::nest::{Over, Value};
use crate::program::{Library, Matmul, Precision, Role};
use crate::tensor::{Data, Dtype, Tensor, Tensors};

/// Parts that last reductions are left in.
const PARTS: u64 = 3;

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
        // Kernels of a pack see nothing of each other.
        let written: Vec<Memories> = launch
            .iter()
            .map(|&at| kernel(plan, at, &memories))
            .collect();
        memories.extend(written.into_iter().flatten());
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

/// What a kernel writes.
fn kernel(plan: &Plan, at: usize, memories: &Memories) -> Memories {
    let cluster = &plan.clusters[at];
    if let Some(&task) = cluster.tasks.iter().find(|&&task| plan.is_call(task)) {
        let node = plan.tasks[task].node;
        return [(Source::Node(node), call(plan, node, memories))].into();
    }
    let outputs = plan.outputs(&cluster.tasks, &[at]);
    let loops = plan.loops(&cluster.members(), &outputs).expect("a nest");
    loops.nest.validate().unwrap();
    run(plan, loops, memories)
}

/// The iteration of a launch.
struct At<'a> {
    rows: &'a [u64],
    column: u64,
}

struct Run<'a> {
    loops: &'a Loops,
    memories: &'a Memories,
    /// What reductions over rows and all came to: of a column.
    last: BTreeMap<(usize, u64), f64>,
}

fn rows(loops: &Loops) -> Vec<Vec<u64>> {
    let extents = &loops.extents.rows;
    let all = 0..loops.extents.row_count();
    all.map(|row| {
        let mut rest = row;
        let mut at: Vec<u64> = extents
            .iter()
            .rev()
            .map(|extent| (rest % extent, rest /= extent).0)
            .collect();
        at.reverse();
        at
    })
    .collect()
}

fn address(memory: &Memory, at: &At<'_>) -> usize {
    let rows = memory.rows.iter().zip(at.rows);
    let rows: usize = rows.map(|(step, &row)| step * row as usize).sum();
    memory.start + rows + memory.columns * at.column as usize
}

impl Run<'_> {
    fn value(&self, id: usize, at: &At<'_>) -> f64 {
        let of = |id: &crate::nest::ValueId| self.value(id.0, at);
        match &self.loops.nest.values[id] {
            Value::Load { operand, index } => {
                let memory = &self.loops.memory[operand.0];
                let index = index.as_ref().map_or(0, |index| of(index) as usize);
                let element = address(memory, at) + index * memory.index_step;
                self.memories[&memory.source][element]
            }
            Value::Constant(number) => *number,
            Value::Scalar(at) => f64::from(self.loops.scalars[*at]),
            Value::Column => at.column as f64,
            Value::Row(dim) => at.rows[*dim] as f64,
            Value::Unary(unary, x) => function(*unary, of(x)),
            Value::Binary(binary, a, b) => operation(*binary, of(a), of(b)),
            Value::Select(mask, a, b) => match of(mask) != 0.0 {
                true => of(a),
                false => of(b),
            },
            Value::Cast(Dtype::I64, x) => of(x).trunc(),
            Value::Cast(_, x) => of(x),
            Value::Reduce {
                reduction,
                over: Over::Columns,
                of,
            } => {
                let columns = 0..self.loops.extents.columns;
                let each = columns.map(|column| {
                    let rows = at.rows;
                    self.value(of.0, &At { rows, column })
                });
                reduced(*reduction, each)
            }
            Value::Reduce { over, .. } => {
                let column = if *over == Over::All { 0 } else { at.column };
                self.last[&(id, column)]
            }
        }
    }
}

fn reduced(reduction: Reduction, values: impl Iterator<Item = f64>) -> f64 {
    match reduction {
        Reduction::Sum => values.sum(),
        Reduction::Max => values.fold(f64::NEG_INFINITY, f64::max),
    }
}

fn function(unary: Unary, x: f64) -> f64 {
    match unary {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Exp => x.exp(),
        Unary::Ln => x.ln(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => x.sqrt().recip(),
        Unary::Reciprocal => x.recip(),
        Unary::Tanh => x.tanh(),
        Unary::Erf => panic!("random graphs have no error function"),
        Unary::Sigmoid => (1.0 + (-x).exp()).recip(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
    }
}

fn operation(binary: Binary, a: f64, b: f64) -> f64 {
    let mask = |holds: bool| f64::from(u8::from(holds));
    match binary {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Equal => mask(a == b),
        Binary::Less => mask(a < b),
        Binary::LessEqual => mask(a <= b),
    }
}

fn run(plan: &Plan, mut loops: Loops, memories: &Memories) -> Memories {
    let elements = |id: NodeId| plan.graph.node(id).elements();
    if loops.is_of_parts {
        let parts = loops
            .memory
            .iter()
            .filter_map(|memory| match memory.source {
                Source::Parts(id) => Some(memories[&memory.source].len() / elements(id)),
                Source::Node(_) => None,
            });
        loops.extents.rows[0] = parts.max().expect("parts") as u64;
    }
    let all = rows(&loops);
    let parts = match loops.nest.parts {
        crate::nest::Parts::Many => PARTS.min(all.len() as u64) as usize,
        crate::nest::Parts::One => 1,
    };
    let piece = all.len().div_ceil(parts);
    let mut written: Memories = BTreeMap::new();
    for (part, rows) in all.chunks(piece).enumerate() {
        let run = Run {
            last: last(&loops, memories, rows),
            loops: &loops,
            memories,
        };
        for store in &loops.nest.stores {
            let memory = &loops.memory[store.operand.0];
            let (of, is_part) = match memory.source {
                Source::Node(id) => (elements(id), false),
                Source::Parts(id) => (elements(id) * all.chunks(piece).len(), true),
            };
            let to = written
                .entry(memory.source)
                .or_insert_with(|| vec![f64::NAN; of]);
            for at in iterations(&loops, rows) {
                let value = run.value(store.value.0, &at);
                match (is_part, memory.source) {
                    (true, Source::Parts(id)) => {
                        let column = if elements(id) == 1 { 0 } else { at.column };
                        to[part * elements(id) + column as usize] = value;
                    }
                    _ => to[address(memory, &at)] = value,
                }
            }
        }
    }
    written
}

fn iterations<'a>(loops: &Loops, rows: &'a [Vec<u64>]) -> Vec<At<'a>> {
    let columns = loops.extents.columns;
    let row = |rows: &'a Vec<u64>| (0..columns).map(move |column| At { rows, column });
    rows.iter().flat_map(row).collect()
}

/// Reductions over these rows, and over all columns of them.
fn last(loops: &Loops, memories: &Memories, rows: &[Vec<u64>]) -> BTreeMap<(usize, u64), f64> {
    let mut run = Run {
        loops,
        memories,
        last: BTreeMap::new(),
    };
    let varies = loops.nest.varies();
    for (id, value) in loops.nest.values.iter().enumerate() {
        let Value::Reduce {
            reduction,
            over,
            of,
        } = value
        else {
            continue;
        };
        let column = |column: u64| {
            let each = rows
                .iter()
                .map(|rows| run.value(of.0, &At { rows, column }));
            reduced(*reduction, each)
        };
        let found: Vec<(u64, f64)> = match over {
            Over::Columns => continue,
            Over::Rows => (0..loops.extents.columns)
                .map(|at| (at, column(at)))
                .collect(),
            Over::All if !varies[of.0].columns => vec![(0, column(0))],
            Over::All => {
                let columns = (0..loops.extents.columns).map(column);
                vec![(0, reduced(*reduction, columns))]
            }
        };
        let found = found.into_iter();
        run.last
            .extend(found.map(|(column, value)| ((id, column), value)));
    }
    run.last
}

fn call(plan: &Plan, id: NodeId, memories: &Memories) -> Vec<f64> {
    let node = plan.graph.node(id);
    let found = library::call(plan, id, Precision::F32);
    if let Some((Library::Matmul(call), lies)) = found {
        let of = |at: usize| &memories[&Source::Node(lies[at].base)][lies[at].start..];
        return product(&call, of(0), of(1));
    }
    // The oracle of the operation itself.
    let mut alone = Graph::new();
    let mut inputs = Tensors::new();
    let mut lone = node.clone();
    for (at, operand) in lone.operands.iter_mut().enumerate() {
        let of = plan.graph.node(*operand);
        let lies = library::dense(plan, *operand).expect("dense");
        let values = &memories[&Source::Node(lies.base)][lies.start..][..lies.span];
        let name = at.to_string();
        let data = match of.dtype {
            Dtype::I64 => Data::I64(values.iter().map(|&value| value as i64).collect()),
            _ => Data::F32(values.iter().map(|&value| value as f32).collect()),
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
