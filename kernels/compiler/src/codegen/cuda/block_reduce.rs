//! Reductions of a row's threads, of a block's row groups, and of a block; and the stores of
//! partials and results.

use crate::graph::op::Reduction;
use crate::nest::ValueId;

use super::super::text::Text;
use super::Template;
use super::elements::Elements;
use super::kernel::Writer;

/// The operator of a reduction in functions.cuh.
pub(in super::super) fn operator(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "Sum",
        Reduction::Max => "Max",
    }
}

impl Writer<'_> {
    /// Reduces the columns of a row: the accumulators of its threads, then those of its warps.
    pub(super) fn reduce_row(&self, out: &mut Text, ids: &[ValueId]) {
        for &id in ids {
            let (name, reduction) = (self.names.defined(id), self.names.reduction(id).0);
            let how = operator(reduction);
            let is_deferred = self.schedule.deferred().is_some();
            out.line(match (self.names.has_row_arrays, reduction) {
                (true, _) => format!("reduce_lanes<{how}, ROW_THREADS>({name});"),
                (_, Reduction::Max) if is_deferred => {
                    format!("{name} = max_of_lanes<ROW_THREADS>({name});")
                }
                _ => format!("{name} = reduce_lanes<{how}, ROW_THREADS>({name});"),
            });
        }
        if !self.has_shared_rows() || ids.is_empty() {
            return;
        }
        out.open("");
        out.line("float *slots = shared + set;");
        out.line("set ^= SLOTS;");
        self.exchange(out, ids, "ROW_THREADS");
        out.close();
    }

    /// Reduces the numbers of `width` threads' warps, through `cells` in shared memory.
    fn exchange(&self, out: &mut Text, ids: &[ValueId], width: &str) {
        for (at, &id) in ids.iter().enumerate() {
            let name = self.names.of(id);
            out.line(format!(
                "if (threadIdx.x % 32 == 0) slots[{at} * WARPS + threadIdx.x / 32] = {name};"
            ));
        }
        // Row groups wait at a named barrier each. A block of a row reduction does not: named
        // barriers would be reserved for it, 16 to an SM, and fewer blocks fit.
        let is_row_reduction = matches!(self.schedule.template, Template::RowReduction { .. });
        let has_own_barrier = width == "ROW_THREADS" && self.has_groups() && !is_row_reduction;
        out.line(match has_own_barrier {
            true => "named_barrier_sync(1 + group, ROW_THREADS);",
            false => "__syncthreads();",
        });
        for (at, &id) in ids.iter().enumerate() {
            let (name, how) = (self.names.of(id), operator(self.names.reduction(id).0));
            out.line(format!(
                "{name} = reduce_warps<{how}, {width}>(slots + {at} * WARPS);"
            ));
        }
    }

    /// Reduces column sums of a block's row groups into the column sums of the first group.
    pub(super) fn reduce_row_groups(&self, out: &mut Text) {
        if !self.has_groups() {
            return;
        }
        for id in self.stages.over_rows(self.nest) {
            let (name, how) = (self.names.of(id), operator(self.names.reduction(id).0));
            out.line(format!(
                "reduce_groups<{how}, ROW_THREADS, ROW_GROUPS, VECTORS>({name}, shared, lane, group);"
            ));
        }
    }

    /// Reduces the accumulators of reductions over all, of all threads of the block.
    pub(super) fn reduce_block(&self, out: &mut Text) {
        let over_all = self.stages.over_all(self.nest);
        if over_all.is_empty() {
            return;
        }
        for &id in &over_all {
            let (name, how) = (self.names.of(id), operator(self.names.reduction(id).0));
            out.line(format!("{name} = reduce_lanes<{how}, 32>({name});"));
        }
        let has_column_sums = !self.stages.over_rows(self.nest).is_empty();
        if self.has_shared_rows() || (self.has_groups() && has_column_sums) {
            // Shared memory may still be read.
            out.line("__syncthreads();");
        }
        out.line("float *slots = shared;");
        self.exchange(out, &over_all, "THREADS");
    }

    /// Stores the block's partials.
    pub(super) fn store_partials(&self, out: &mut Text) {
        let over_rows = self.stages.over_rows(self.nest);
        for id in self.stages.over_all(self.nest) {
            let (part, name) = (self.names.partials_of(id), self.names.of(id));
            out.line(format!(
                "if (threadIdx.x == 0) {part}[{}] = {name};",
                self.block
            ));
        }
        if over_rows.is_empty() || self.schedule.tile.is_looped {
            return;
        }
        if self.has_groups() {
            out.line("if (group > 0) return;");
        }
        out.line("#pragma unroll");
        out.open("for (int k = 0; k < VECTORS; k++)");
        for id in over_rows {
            let (part, name) = (self.names.partials_of(id), self.names.of(id));
            out.line(format!(
                "store_strided<ROW_THREADS>({part} + row_block * columns + first_column, 1, {name}[k], lane, k, extent);"
            ));
        }
        out.close();
    }

    /// Computes and stores values of complete reductions.
    pub(super) fn store_results(&self, out: &mut Text) {
        let after_rows = &self.stages.after_rows;
        self.values(out, &after_rows.uniform);
        for &at in &after_rows.stores {
            if !self.names.is_of_columns(at) {
                let store = &self.nest.stores[at];
                let to = self.names.operand(store.operand.0);
                out.line(format!(
                    "if (threadIdx.x == 0) *{to} = {};",
                    self.names.scalar(store.value)
                ));
            }
        }
        let stores = after_rows.stores.iter().copied();
        let stores: Vec<usize> = stores.filter(|&at| self.names.is_of_columns(at)).collect();
        if stores.is_empty() {
            return;
        }
        if self.has_groups() {
            out.line("if (group > 0) return;");
        }
        let targets = stores.iter().map(|&store| self.target(store));
        let pointers = after_rows
            .columns
            .iter()
            .filter_map(|&id| self.pointer(id, false));
        self.define(out, &targets.chain(pointers).collect::<Vec<_>>());
        let elements = Elements {
            values: &after_rows.columns,
            stores: &stores,
            ..Elements::default()
        };
        self.tiles(out, &elements);
    }
}
