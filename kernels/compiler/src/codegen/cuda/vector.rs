//! float4 loads and stores, and the alignment that they need.
//!
//! Elements are loaded and stored as float4 where rows have a multiple of four columns, and all
//! rows of operands with contiguous columns start at a multiple of four elements. A kernel for
//! which that is known of all launches has no other path, which halves its text and saves
//! registers; others check their arguments. Where rows are also whole tiles, there are no bounds
//! checks.

use crate::nest::{Alignment, Launch, Memory, Nest, Stride, Value, Varies};
use sweeper_program::tensor::Dtype;

use super::super::launch::{self, Parameter};
use super::Schedule;
use super::kernel::Writer;

/// The alignment of a launch whose dimensions are merged, as far as the kernel's text depends on
/// it.
pub(in super::super) fn alignment(schedule: &Schedule, nest: &Nest, launch: &Launch) -> Alignment {
    let columns = launch.extents.columns;
    let has_full_tiles = columns.is_multiple_of(schedule.tile.columns());
    schedule.useful_alignment(match (is_vectorizable(nest, launch), has_full_tiles) {
        (true, true) => Alignment::FullTiles,
        (true, false) => Alignment::Float4,
        (false, _) => Alignment::Unknown,
    })
}

/// All vectors of a launch are aligned.
fn is_vectorizable(nest: &Nest, launch: &Launch) -> bool {
    let varies = nest.varies();
    let is_multiple = |elements: i64| elements % 4 == 0;
    let has_aligned_rows = |memory: &Memory| {
        let strides = memory.rows.iter().zip(&launch.extents.rows);
        let mut used = strides.filter(|(_, extent)| **extent > 1);
        memory.view.offset.fixed_value().is_some_and(is_multiple)
            && used.all(|(&stride, _)| is_multiple(stride))
            && is_multiple(memory.index_step)
    };
    let mut operands = launch.operands.iter().enumerate();
    is_multiple(launch.extents.columns as i64)
        && operands.all(|(at, memory)| !is_vector(nest, &varies, at) || has_aligned_rows(memory))
}

/// An operand is loaded or stored as float4 where it is aligned.
fn is_vector(nest: &Nest, varies: &[Varies], operand: usize) -> bool {
    let held = &nest.operands[operand];
    let is_loaded = |value: &Value| {
        matches!(value, Value::Load { operand: of, .. } if of.0 == operand)
            && !is_gather(varies, value)
    };
    let mut stores = nest.stores.iter();
    held.columns == Stride::Unit
        && matches!(held.dtype, Dtype::F32 | Dtype::Bf16)
        && (nest.values.iter().any(is_loaded)
            || stores.any(|store| store.operand.0 == operand && !launch::is_partial(nest, operand)))
}

/// A load's index varies over columns.
pub(super) fn is_gather(varies: &[Varies], value: &Value) -> bool {
    match value {
        Value::Load { index, .. } => index.is_some_and(|index| varies[index.0].columns),
        _ => false,
    }
}

impl Writer<'_> {
    /// The definition of `is_vectorized`, where there are vectors.
    pub(super) fn vectorized(&self) -> Option<String> {
        let is_vector = |operand: usize| is_vector(self.nest, &self.stages.varies, operand);
        if !(0..self.nest.operands.len()).any(is_vector) {
            return None;
        }
        if self.schedule.hints.alignment > Alignment::Unknown {
            return Some("constexpr bool is_vectorized = true;".to_owned());
        }
        let mut conditions = vec!["columns % 4 == 0".to_owned()];
        for parameter in self.parameters {
            let name = parameter.name(self.nest);
            match *parameter {
                Parameter::Pointer(operand) if is_vector(operand) => {
                    conditions.push(format!("is_aligned({name})"));
                    if self.nest.operands[operand].rows.contains(&Stride::Unit) {
                        conditions.push("false".to_owned());
                    }
                }
                Parameter::RowStep(operand, _) | Parameter::IndexStep(operand)
                    if is_vector(operand) =>
                {
                    conditions.push(format!("{name} % 4 == 0"));
                }
                _ => {}
            }
        }
        Some(format!(
            "const bool is_vectorized = {};",
            conditions.join(" && ")
        ))
    }

    /// The definition of `stream`, the L2 eviction policy of loads, where there is one.
    pub(super) fn eviction_policy(&self) -> Option<String> {
        let is_read = |&at: &usize| {
            !self.nest.operands[at].is_written && is_vector(self.nest, &self.stages.varies, at)
        };
        let read = (0..self.nest.operands.len()).filter(is_read).count();
        let policy = match self.schedule.deferred() {
            // Measured to be faster for all sizes of such launches.
            Some(_) => "eviction_policy(true)".to_owned(),
            None => format!("policy_of_stream({read} * rows * columns)"),
        };
        (self.schedule.hints.evict_first && read > 0)
            .then(|| format!("const EvictionPolicy policy = {policy};"))
    }
}
