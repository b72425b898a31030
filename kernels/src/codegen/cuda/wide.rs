//! How columns fill what they are moved in.
//!
//! They are moved four at a time where rows have a multiple of four columns, and all rows of operands with contiguous
//! columns begin at a multiple of four elements. A kernel of which that is known for all launches has no other way to
//! move them, which leaves it with half the text and fewer registers; another one looks at its arguments. Where rows
//! are whole times what a group of lanes holds, too, no lane asks whether a column of its own is there.

use crate::nest::{Fill, Launch, Memory, Nest, Step, Value, Varies};
use crate::tensor::Dtype;

use super::super::launch::{self, Parameter};
use super::Schedule;
use super::kernel::Writer;

/// How a launch's columns fill what a kernel moves them in, as far as that matters to it. Its dimensions are merged already.
pub(in super::super) fn fill(schedule: &Schedule, nest: &Nest, launch: &Launch) -> Fill {
    let is_full = launch.extents.columns.is_multiple_of(schedule.span());
    schedule.taken(match (is_wide(nest, launch), is_full) {
        (true, true) => Fill::Lanes,
        (true, false) => Fill::Quads,
        (false, _) => Fill::Any,
    })
}

/// Whether all that a launch moves in chunks can be moved four elements at a time.
fn is_wide(nest: &Nest, launch: &Launch) -> bool {
    let varies = nest.varies();
    let is_quads = |step: i64| step % 4 == 0;
    let begins_at_quads = |memory: &Memory| {
        let steps = memory.rows.iter().zip(&launch.extents.rows);
        let mut taken = steps.filter(|(_, extent)| **extent > 1);
        memory.view.offset.fixed_value().is_some_and(is_quads)
            && taken.all(|(&step, _)| is_quads(step))
            && is_quads(memory.index_step)
    };
    let mut operands = launch.operands.iter().enumerate();
    is_quads(launch.extents.columns as i64)
        && operands.all(|(at, memory)| !is_moved(nest, &varies, at) || begins_at_quads(memory))
}

/// Whether an operand is moved in chunks of contiguous columns.
fn is_moved(nest: &Nest, varies: &[Varies], operand: usize) -> bool {
    let held = &nest.operands[operand];
    let is_loaded = |value: &Value| {
        matches!(value, Value::Load { operand: of, .. } if of.0 == operand)
            && !is_gather(varies, value)
    };
    let mut stores = nest.stores.iter();
    held.columns == Step::One
        && held.dtype == Dtype::F32
        && (nest.values.iter().any(is_loaded)
            || stores.any(|store| store.operand.0 == operand && !launch::is_part(nest, operand)))
}

/// Whether a load needs what is computed for its column.
pub(super) fn is_gather(varies: &[Varies], value: &Value) -> bool {
    match value {
        Value::Load { index, .. } => index.is_some_and(|index| varies[index.0].columns),
        _ => false,
    }
}

impl Writer<'_> {
    /// The definition of `is_wide`, where something is moved in chunks.
    pub(super) fn wide(&self) -> Option<String> {
        let is_moved = |operand: usize| is_moved(self.nest, &self.stages.varies, operand);
        if !(0..self.nest.operands.len()).any(is_moved) {
            return None;
        }
        if self.schedule.fill > Fill::Any {
            return Some("constexpr bool is_wide = true;".to_owned());
        }
        let mut conditions = vec!["columns % 4 == 0".to_owned()];
        for parameter in self.parameters {
            let name = parameter.name(self.nest);
            match *parameter {
                Parameter::Pointer(operand) if is_moved(operand) => {
                    conditions.push(format!("is_aligned({name})"));
                    if self.nest.operands[operand].rows.contains(&Step::One) {
                        conditions.push("false".to_owned());
                    }
                }
                Parameter::RowStep(operand, _) | Parameter::IndexStep(operand)
                    if is_moved(operand) =>
                {
                    conditions.push(format!("{name} % 4 == 0"));
                }
                _ => {}
            }
        }
        Some(format!("const bool is_wide = {};", conditions.join(" && ")))
    }

    /// The definition of `stream`, how what is read in chunks leaves the second-level cache, where the launch decides that.
    pub(super) fn stream(&self) -> Option<String> {
        let is_read = |&at: &usize| {
            !self.nest.operands[at].is_written && is_moved(self.nest, &self.stages.varies, at)
        };
        let read = (0..self.nest.operands.len()).filter(is_read).count();
        let policy = match self.schedule.late {
            // Measured to be faster for as much as such launches read.
            Some(_) => "leaving(true)".to_owned(),
            None => format!("leaving_of_stream({read} * rows * columns)"),
        };
        (self.schedule.streams && read > 0).then(|| format!("const Leaving stream = {policy};"))
    }
}
