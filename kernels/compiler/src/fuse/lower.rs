//! A kernel's body as a nest: axes become few dimensions of rows and one of columns.
//!
//! Neighbouring axes are one dimension where every operand steps through both as through one. The
//! structure of steps (none, contiguous, given) and the extents of a launch are separated here.

use super::access::Axis;
use super::body::{Body, Operand, Source};
use crate::nest::{self, CrossBlock, Extents, Nest, Over, Stride, Value};

/// Dimensions of rows that a nest has at most.
const MOST_ROWS: usize = 4;

/// Distinct operations that a kernel's name lists.
const MOST_WORDS: usize = 6;

/// Memory of one operand of a launch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    /// The memory.
    pub source: Source,
    /// First element.
    pub start: usize,
    /// Steps along rows.
    pub rows: Vec<usize>,
    /// Step along columns.
    pub columns: usize,
    /// Step of an index.
    pub index_step: usize,
    /// Elements of the whole memory.
    pub len: usize,
    /// Whether the operand is written.
    pub is_written: bool,
}

/// A nest, and one launch of the nest.
#[derive(Clone, Debug)]
pub(super) struct Loops {
    /// The kernel.
    pub nest: Nest,
    /// Sizes; rows are 1 where they are partials of another kernel.
    pub extents: Extents,
    /// Memory for each operand.
    pub memory: Vec<Memory>,
    /// Numbers.
    pub scalars: Vec<f32>,
    /// Whether rows are partials of another kernel.
    pub combines_partials: bool,
    /// Extents of the dimensions that columns are made of.
    pub column_extents: Vec<usize>,
    /// Operations, each as often as it is done.
    pub operations: u64,
}

impl Memory {
    /// Elements that a launch touches.
    pub(super) fn touched(&self, extents: &Extents) -> usize {
        let loops = self.rows.iter().zip(&extents.rows);
        let rows = loops
            .filter(|(step, _)| **step > 0)
            .map(|(_, &extent)| extent);
        let columns = if self.columns > 0 { extents.columns } else { 1 };
        let all = extents.row_count() * extents.columns;
        // An index may be another one in each iteration.
        let each = if self.index_step > 0 {
            all
        } else {
            rows.product::<u64>() * columns
        };
        (each as usize).min(self.len)
    }

    /// Elements from the first to the last one that may be touched.
    pub(super) fn span(&self, extents: &Extents) -> usize {
        if self.index_step > 0 {
            return self.len - self.start;
        }
        let loops = self.rows.iter().zip(&extents.rows);
        let rows: usize = loops
            .map(|(step, &extent)| step * (extent as usize - 1))
            .sum();
        1 + rows + self.columns * (extents.columns as usize - 1)
    }
}

impl Loops {
    /// Bytes that are read and bytes that are written.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let of = |is_written: bool| -> u64 {
            let memory = self.memory.iter().zip(&self.nest.operands);
            let memory = memory.filter(|(memory, _)| memory.is_written == is_written);
            memory
                .map(|(memory, operand)| {
                    memory.touched(&self.extents) as u64 * operand.dtype.size_bytes() as u64
                })
                .sum()
        };
        (of(false), of(true))
    }
}

/// Axes that are one dimension.
#[derive(Clone, Debug)]
struct Run {
    extent: usize,
    /// For each operand, its step.
    steps: Vec<usize>,
    /// The axis, if its iterations are counted.
    counted: Option<Axis>,
}

impl Run {
    /// This one and the next one inside it, if they are one dimension.
    fn with(&self, inner: &Run) -> Option<Run> {
        if self.counted.is_some() || inner.counted.is_some() {
            return None;
        }
        let steps = self.steps.iter().zip(&inner.steps);
        let steps = steps.map(|(&outer, &step)| match (self.extent, inner.extent) {
            (1, _) => Some(step),
            (_, 1) => Some(outer),
            _ => (outer == step * inner.extent).then_some(step),
        });
        Some(Run {
            extent: self.extent * inner.extent,
            steps: steps.collect::<Option<_>>()?,
            counted: None,
        })
    }
}

fn runs(body: &Body, axes: std::ops::Range<Axis>) -> Vec<Run> {
    let extents = body.space.extents();
    let mut runs: Vec<Run> = Vec::new();
    for axis in axes {
        let run = Run {
            extent: extents[axis],
            steps: body
                .operands
                .iter()
                .map(|held| held.at.step(axis))
                .collect(),
            counted: body.counted.contains(&axis).then_some(axis),
        };
        match runs.last().and_then(|last| last.with(&run)) {
            Some(both) => {
                runs.pop();
                runs.push(both);
            }
            None => runs.push(run),
        }
    }
    runs
}

/// The nest of a body. None if its axes are more dimensions than a nest has.
pub(super) fn lower(body: &Body, words: &[&str]) -> Option<Loops> {
    let space = &body.space;
    let mut rows = runs(body, 0..space.row_axes());
    let mut columns = runs(body, space.row_axes()..space.axes());
    let none = Run {
        extent: 1,
        steps: vec![0; body.operands.len()],
        counted: None,
    };
    let column = columns.pop().unwrap_or_else(|| none.clone());
    if space.is_fixed && !columns.is_empty() {
        return None;
    }
    rows.extend(columns);
    if rows.is_empty() {
        rows.push(none);
    }
    if rows.len() > MOST_ROWS {
        return None;
    }
    let memory = body.operands.iter().enumerate();
    let memory: Vec<Memory> = memory
        .map(|(at, operand)| memory_of(operand, &rows, &column, at))
        .collect();
    let has_last = body
        .values
        .iter()
        .any(|value| matches!(value, Value::Reduce { over, .. } if *over != Over::Columns));
    Some(Loops {
        nest: Nest {
            name: name(words),
            row_dims: rows.len(),
            operands: body.operands.iter().zip(&memory).map(operand_of).collect(),
            values: values(body, &rows, &column),
            stores: body.stores.clone(),
            cross_block: match space.combines_partials() || !has_last {
                true => CrossBlock::OneBlock,
                false => CrossBlock::Partials,
            },
        },
        extents: Extents {
            rows: rows.iter().map(|run| run.extent as u64).collect(),
            columns: column.extent as u64,
        },
        memory,
        scalars: body.scalars.clone(),
        combines_partials: space.combines_partials(),
        column_extents: space.extents()[space.row_axes()..].to_vec(),
        operations: body.operations,
    })
}

fn memory_of(operand: &Operand, rows: &[Run], column: &Run, at: usize) -> Memory {
    Memory {
        source: operand.source,
        start: operand.at.start,
        rows: rows.iter().map(|run| run.steps[at]).collect(),
        columns: column.steps[at],
        index_step: operand.index_step,
        len: operand.len,
        is_written: operand.is_written,
    }
}

fn operand_of((operand, memory): (&Operand, &Memory)) -> nest::Operand {
    // Whether rows happen to be contiguous depends on sizes.
    let row = |&step: &usize| {
        if step == 0 {
            Stride::Broadcast
        } else {
            Stride::Dynamic
        }
    };
    nest::Operand {
        dtype: operand.dtype,
        rows: memory.rows.iter().map(row).collect(),
        columns: match memory.columns {
            0 => Stride::Broadcast,
            1 => Stride::Unit,
            _ => Stride::Dynamic,
        },
        is_written: operand.is_written,
        swaps_pairs: operand.swaps_pairs,
    }
}

/// The values, with counted axes as dimensions of rows or the columns.
fn values(body: &Body, rows: &[Run], column: &Run) -> Vec<Value> {
    let place = |value: &Value| match value {
        Value::Row(axis) if column.counted == Some(*axis) => Value::Column,
        Value::Row(axis) => {
            let row = rows.iter().position(|run| run.counted == Some(*axis));
            Value::Row(row.unwrap_or(0))
        }
        value => value.clone(),
    };
    body.values.iter().map(place).collect()
}

/// The kernel's name for people: its operations, each once.
fn name(words: &[&str]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for word in words {
        if !distinct.contains(word) {
            distinct.push(word);
        }
    }
    let more = distinct.len() > MOST_WORDS;
    distinct.truncate(MOST_WORDS);
    if more {
        distinct.push("more");
    }
    distinct.join("_")
}
