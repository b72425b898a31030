//! What a nest asks of its kernel, as far as that decides how work is shared out: what it reduces, what it loads when, and
//! how many registers that takes.

use crate::nest::{Bounds, Nest, Parts, Step, Store, Value, ValueId};
use crate::tensor::Dtype;
use crate::workload::generation;

use super::super::stages::{Keep, Stages};
use super::late::Late;

/// The first generation of GPUs on which a launch may overlap the one before.
const FIRST_TO_OVERLAP: u32 = 90;

/// Registers of an element that is looked up by an index of its column: itself, and 64 bits each for its address and
/// the index times its step.
const LOOKED_UP_REGISTERS: u32 = 5;

/// A nest, and what is asked of it.
pub(super) struct Work<'a> {
    pub nest: &'a Nest,
    pub bounds: Bounds,
    pub stages: Stages,
    /// Sums over rows.
    pub over_rows: u32,
    /// Whether there are totals.
    pub over_all: bool,
    pub reduces_columns: bool,
    /// Whether launches may overlap those before.
    pub overlaps: bool,
    /// Whether groups have one row each though blocks leave parts of totals: rows are few enough.
    pub has_few_rows: bool,
    /// What is known late then, if it can be.
    pub late: Option<Late>,
    /// Loads that all rows share.
    pub shared_loads: Vec<ValueId>,
    /// Loads that can be made before a row's turn comes, where a group has many rows.
    pub ahead: Vec<ValueId>,
}

impl Work<'_> {
    /// What a valid nest asks of an architecture such as `sm_90a`.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn new<'a>(nest: &'a Nest, bounds: Bounds, arch: &str) -> Result<Work<'a>, String> {
        let stages = Stages::new(nest, Keep::FunctionsAndLoads)?;
        let mut work = Work {
            nest,
            bounds,
            over_rows: stages.over_rows(nest).len() as u32,
            over_all: !stages.over_all(nest).is_empty(),
            reduces_columns: stages.reduces_columns(),
            overlaps: generation(arch) >= FIRST_TO_OVERLAP && !bounds.is_only_launch,
            has_few_rows: false,
            late: None,
            shared_loads: vec![],
            ahead: vec![],
            stages,
        };
        let is_total = work.over_all && work.over_rows == 0 && nest.parts == Parts::Many;
        work.has_few_rows =
            bounds.has_few_rows && !work.overlaps && is_total && work.reduces_columns;
        work.late = match work.has_few_rows {
            true => Late::of(nest, &work.stages),
            false => None,
        };
        (work.ahead, work.shared_loads) = work.plain_loads();
        if !work.has_last() || work.has_few_rows {
            // There are many blocks, and others work while one waits.
            work.ahead.clear();
        }
        Ok(work)
    }

    /// Whether something is left when all rows are done.
    pub(super) fn has_last(&self) -> bool {
        self.over_rows > 0 || self.over_all
    }

    /// Whether a row's columns are needed together.
    pub(super) fn is_whole(&self) -> bool {
        self.reduces_columns || (self.over_rows > 0 && self.over_all)
    }

    /// Whether one block makes all of a last reduction.
    pub(super) fn is_one(&self) -> bool {
        self.nest.parts == Parts::One
    }

    /// Whether anything is computed for each column.
    pub(super) fn has_cells(&self) -> bool {
        !self.stages.passes.is_empty()
    }

    /// Whether all that is written is a number for each row, or for all of them.
    pub(super) fn writes_no_cells(&self) -> bool {
        self.stages.passes.iter().all(|pass| pass.stores.is_empty())
    }

    /// Loads of columns for which nothing is computed on the way: those of each row, and those that all share.
    fn plain_loads(&self) -> (Vec<ValueId>, Vec<ValueId>) {
        let values = self.stages.passes.iter().flat_map(|pass| &pass.values);
        let mut loads: Vec<ValueId> = values.copied().filter(|id| self.is_plain(*id)).collect();
        loads.sort();
        loads.dedup();
        loads
            .into_iter()
            .partition(|id| self.stages.varies[id.0].rows)
    }

    /// Numbers of a row that can be loaded before its turn comes.
    pub(super) fn loads_of_numbers(&self) -> Vec<ValueId> {
        let values = self
            .stages
            .between
            .iter()
            .flat_map(|between| &between.values);
        values.copied().filter(|id| self.is_plain(*id)).collect()
    }

    fn is_plain(&self, id: ValueId) -> bool {
        matches!(self.nest.values[id.0], Value::Load { index: None, .. })
    }

    /// Whether a group may have several rows side by side: something is reduced over their columns, nothing over rows, and
    /// each writes to a place of its own.
    pub(super) fn may_be_abreast(&self) -> bool {
        let has_rows = |store: &Store| {
            let steps = &self.nest.operands[store.operand.0].rows;
            steps.iter().any(|step| *step != Step::Zero)
        };
        self.reduces_columns && !self.has_last() && self.nest.stores.iter().all(has_rows)
    }

    /// Whether every operand has a step in every dimension or in none: where such tensors are dense, rows do
    /// not matter.
    pub(super) fn is_flat(&self) -> bool {
        self.nest.operands.iter().all(|operand| {
            let zeros = operand.rows.iter().filter(|step| **step == Step::Zero);
            let zeros = zeros.count() + usize::from(operand.columns == Step::Zero);
            zeros == 0 && operand.columns == Step::One || zeros == operand.rows.len() + 1
        })
    }

    /// Registers that a lane needs for each column: for what is loaded or kept.
    pub(super) fn cells(&self) -> u32 {
        let kept = self.stages.passes.iter().flat_map(|pass| pass.kept.clone());
        self.registers(kept.chain(self.loads_of_rows()).collect())
    }

    /// The same, if what later passes don't need makes room for what they do: for all loads, or for what is kept from a pass
    /// on.
    pub(super) fn live_cells(&self) -> u32 {
        let passes = &self.stages.passes;
        let live = (1..passes.len()).map(|at| {
            let (before, after) = passes.split_at(at);
            let is_fetched = |id: &ValueId| after.iter().any(|pass| pass.fetched.contains(id));
            let kept = before.iter().flat_map(|pass| pass.kept.clone());
            self.registers(kept.filter(is_fetched).collect())
        });
        live.fold(self.registers(self.loads_of_rows()), u32::max)
    }

    /// What passes load for each row.
    fn loads_of_rows(&self) -> Vec<ValueId> {
        let values = self.stages.passes.iter().flat_map(|pass| &pass.values);
        let is_load = |id: &ValueId| {
            matches!(self.nest.values[id.0], Value::Load { .. }) && self.stages.varies[id.0].rows
        };
        values.copied().filter(is_load).collect()
    }

    /// Registers of one of each of these values.
    fn registers(&self, mut ids: Vec<ValueId>) -> u32 {
        ids.sort();
        ids.dedup();
        let of_one = |id: &ValueId| match self.stages.dtypes[id.0] {
            Dtype::I64 => 2,
            _ => 1,
        };
        ids.iter().map(of_one).sum()
    }

    /// Registers that a thread needs for each column to hold what it loads.
    pub(super) fn loaded(&self) -> u32 {
        let values = self.stages.passes.iter().flat_map(|pass| &pass.values);
        let mut loads: Vec<ValueId> = values.copied().collect();
        loads.sort();
        loads.dedup();
        let registers = |id: &ValueId| match &self.nest.values[id.0] {
            Value::Load {
                index: Some(at), ..
            } if self.stages.varies[at.0].columns => LOOKED_UP_REGISTERS,
            Value::Load { .. } if self.stages.dtypes[id.0] == Dtype::I64 => 2,
            Value::Load { .. } => 1,
            _ => 0,
        };
        loads.iter().map(registers).sum()
    }
}
