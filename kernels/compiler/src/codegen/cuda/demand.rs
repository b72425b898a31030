//! The requirements of a nest on its kernel: its reductions, loads and registers.

use crate::nest::{Bounds, CrossBlock, Nest, Store, Stride, Value, ValueId};
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::Capabilities;

use super::super::stages::{Residency, Stages};
use super::choose::LOOKED_UP_REGISTERS;
use super::deferred::DeferredEpilogue;

/// A nest, and its requirements.
pub(super) struct Demand<'a> {
    pub nest: &'a Nest,
    pub bounds: Bounds,
    pub stages: Stages,
    /// Number of reductions over rows.
    pub over_rows: u32,
    /// There are reductions over all.
    pub over_all: bool,
    /// There are reductions over columns.
    pub reduces_columns: bool,
    /// Launches may overlap the launch before them.
    pub overlap: bool,
    /// A full reduction of rows so few that each row group has one.
    pub partial_per_row_group: bool,
    /// The deferred epilogue of the nest's rows, if there can be one.
    pub deferred: Option<DeferredEpilogue>,
    /// Loads of elements that all rows share.
    pub row_invariant_loads: Vec<ValueId>,
    /// Loads of a row's elements that can be prefetched.
    pub prefetchable: Vec<ValueId>,
}

impl Demand<'_> {
    /// The requirements of a valid nest on an architecture such as `sm_90a`.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn new<'a>(
        nest: &'a Nest,
        bounds: Bounds,
        arch: &str,
    ) -> Result<Demand<'a>, String> {
        let stages = Stages::new(nest, Residency::ResultsAndLoads)?;
        let mut demand = Demand {
            nest,
            bounds,
            over_rows: stages.over_rows(nest).len() as u32,
            over_all: !stages.over_all(nest).is_empty(),
            reduces_columns: stages.reduces_columns(),
            overlap: Capabilities::of(arch).overlaps_launches && !bounds.is_only_launch,
            partial_per_row_group: false,
            deferred: None,
            row_invariant_loads: vec![],
            prefetchable: vec![],
            stages,
        };
        let is_full_reduction =
            demand.over_all && demand.over_rows == 0 && nest.cross_block == CrossBlock::Partials;
        demand.partial_per_row_group = bounds.partial_per_row_group
            && !demand.overlap
            && is_full_reduction
            && demand.reduces_columns;
        if demand.partial_per_row_group {
            demand.deferred = DeferredEpilogue::of(nest, &demand.stages);
        }
        (demand.prefetchable, demand.row_invariant_loads) = demand.direct_loads();
        if !demand.is_cross_block() || demand.partial_per_row_group {
            // A row group has one row. While its loads are waited for, other blocks compute.
            demand.prefetchable.clear();
        }
        Ok(demand)
    }

    /// There are reductions over rows or over all.
    pub(super) fn is_cross_block(&self) -> bool {
        self.over_rows > 0 || self.over_all
    }

    /// A block needs whole rows.
    pub(super) fn needs_whole_rows(&self) -> bool {
        self.reduces_columns || (self.over_rows > 0 && self.over_all)
    }

    /// One block reduces all rows.
    pub(super) fn is_one_block(&self) -> bool {
        self.nest.cross_block == CrossBlock::OneBlock
    }

    /// Anything is computed for each element.
    pub(super) fn has_elements(&self) -> bool {
        !self.stages.passes.is_empty()
    }

    /// All that is stored is a number of each row, or of all.
    pub(super) fn stores_no_elements(&self) -> bool {
        self.stages.passes.iter().all(|pass| pass.stores.is_empty())
    }

    /// Loads of elements whose address does not depend on a value: the loads of each row, and the
    /// loads that all rows share.
    fn direct_loads(&self) -> (Vec<ValueId>, Vec<ValueId>) {
        let mut loads = self.pass_values();
        loads.retain(|id| self.is_direct_load(*id));
        loads
            .into_iter()
            .partition(|id| self.stages.varies[id.0].rows)
    }

    /// Loads of one number a row that can be prefetched.
    pub(super) fn prefetchable_scalars(&self) -> Vec<ValueId> {
        let between = self.stages.between.iter();
        let values = between.flat_map(|between| between.values.iter().copied());
        values.filter(|id| self.is_direct_load(*id)).collect()
    }

    fn is_direct_load(&self, id: ValueId) -> bool {
        matches!(self.nest.values[id.0], Value::Load { index: None, .. })
    }

    /// A warp may compute several rows at once: columns are reduced, rows are not, and each row
    /// stores to a place of its own.
    pub(super) fn may_have_several_rows_per_warp(&self) -> bool {
        let has_rows = |store: &Store| {
            let strides = &self.nest.operands[store.operand.0].rows;
            strides.iter().any(|stride| *stride != Stride::Broadcast)
        };
        self.reduces_columns && !self.is_cross_block() && self.nest.stores.iter().all(has_rows)
    }

    /// Every operand has a stride in all dimensions or in none: where such tensors are dense, rows
    /// do not matter.
    pub(super) fn is_rank_free(&self) -> bool {
        self.nest.operands.iter().all(|operand| {
            let strides = operand.rows.iter().chain([&operand.columns]);
            let broadcast = strides
                .filter(|stride| **stride == Stride::Broadcast)
                .count();
            broadcast == 0 && operand.columns == Stride::Unit || broadcast == operand.rows.len() + 1
        })
    }

    /// Registers for each column of a row that is loaded once: for elements that are loaded, or
    /// kept for later passes.
    pub(super) fn resident_registers(&self) -> u32 {
        let passes = self.stages.passes.iter();
        let resident = passes.flat_map(|pass| pass.resident.clone());
        self.registers(resident.chain(self.row_loads()).collect())
    }

    /// The registers that are live at once at most, if values that later passes don't reuse make
    /// room.
    pub(super) fn live_registers(&self) -> u32 {
        let passes = &self.stages.passes;
        let live = (1..passes.len()).map(|at| {
            let (before, after) = passes.split_at(at);
            let is_reused = |id: &ValueId| after.iter().any(|pass| pass.reused.contains(id));
            let resident = before.iter().flat_map(|pass| pass.resident.clone());
            self.registers(resident.filter(is_reused).collect())
        });
        live.fold(self.registers(self.row_loads()), u32::max)
    }

    /// Loads of a row's elements.
    fn row_loads(&self) -> Vec<ValueId> {
        let is_load = |id: &ValueId| {
            matches!(self.nest.values[id.0], Value::Load { .. }) && self.stages.varies[id.0].rows
        };
        let mut loads = self.pass_values();
        loads.retain(is_load);
        loads
    }

    /// Registers of one element of each of these values.
    fn registers(&self, mut ids: Vec<ValueId>) -> u32 {
        ids.sort();
        ids.dedup();
        let of_one = |id: &ValueId| match self.stages.dtypes[id.0] {
            Dtype::I64 => 2,
            _ => 1,
        };
        ids.iter().map(of_one).sum()
    }

    /// Registers for each column to hold all that is loaded.
    pub(super) fn load_registers(&self) -> u32 {
        let registers = |id: &ValueId| match &self.nest.values[id.0] {
            Value::Load {
                index: Some(at), ..
            } if self.stages.varies[at.0].columns => LOOKED_UP_REGISTERS,
            Value::Load { .. } if self.stages.dtypes[id.0] == Dtype::I64 => 2,
            Value::Load { .. } => 1,
            _ => 0,
        };
        self.pass_values().iter().map(registers).sum()
    }

    /// All values that passes compute, each once.
    fn pass_values(&self) -> Vec<ValueId> {
        let passes = self.stages.passes.iter();
        let mut values: Vec<ValueId> = passes.flat_map(|pass| pass.values.clone()).collect();
        values.sort();
        values.dedup();
        values
    }
}
