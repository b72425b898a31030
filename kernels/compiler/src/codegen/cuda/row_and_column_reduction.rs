//! Template *row and column reduction*: row groups go over whole rows grid-stride, reduce their
//! columns, and accumulate reductions over rows. Rows that are read at the same time by all blocks
//! lie together. Each row is loaded while the row before it is computed, so that few warps with
//! many registers keep memory busy.

use crate::nest::{CrossBlock, Value};

use super::super::text::Text;
use super::Prefetch;
use super::kernel::Writer;
use super::row::Definition;

impl Writer<'_> {
    pub(super) fn row_and_column_reduction(&self, out: &mut Text, prefetch: &Prefetch) {
        let has_column_sums = !self.stages.over_rows(self.nest).is_empty();
        self.thread_index(out);
        self.row_per_group(out);
        out.line("const int64 step = (int64)gridDim.x * ROW_GROUPS;");
        if has_column_sums && self.nest.cross_block == CrossBlock::Partials {
            out.line(format!("const unsigned row_block = {};", self.block));
        }
        out.lines(self.eviction_policy());
        self.shared_memory(out);
        self.values(out, &self.stages.uniform);
        self.accumulators(out);
        self.hoisted_loads(out);
        self.prefetch_first(out, prefetch);
        if has_column_sums && !self.stages.reduces_columns() && !self.schedule.tile.is_looped {
            out.line("#pragma unroll 2");
        }
        self.open_rows(out, "step");
        self.take_prefetched(out, prefetch);
        self.indices_of_row(out);
        self.prefetch_next(out, prefetch);
        self.row(out);
        out.close();
        self.reduce_row_groups(out);
        self.reduce_block(out);
        self.store_reductions(out);
    }

    /// Loads the first row.
    fn prefetch_first(&self, out: &mut Text, prefetch: &Prefetch) {
        if prefetch.elements.is_empty() {
            return;
        }
        for &id in &prefetch.elements {
            let dtype = self.names.dtype(id);
            out.line(format!("{dtype} next_{}[VECTORS][4];", id.0));
        }
        for &id in &prefetch.scalars {
            out.line(format!("{} next_{};", self.names.dtype(id), id.0));
        }
        out.open("");
        out.line(format!("const int64 r = {};", self.prefetched_row("begin")));
        self.prefetch_row(out, prefetch);
        out.close();
    }

    /// Loads the next row, if there is one.
    fn prefetch_next(&self, out: &mut Text, prefetch: &Prefetch) {
        if prefetch.elements.is_empty() {
            return;
        }
        let base = format!("{} + step", self.first_row());
        let next = self.prefetched_row(&base);
        out.open(format!("if (const int64 next = {next}; {base} < end)"));
        // Not initialised by `r`, which would be this one.
        out.line("const int64 r = next;");
        self.prefetch_row(out, prefetch);
        out.close();
    }

    /// The row group's row among the rows from `base` on.
    fn prefetched_row(&self, base: &str) -> String {
        let group = if self.has_groups() { " + group" } else { "" };
        format!("min({base}{group}, end - 1)")
    }

    /// Loads row `r`.
    fn prefetch_row(&self, out: &mut Text, prefetch: &Prefetch) {
        let loads = prefetch.elements.iter().chain(&prefetch.scalars);
        let operands = loads.filter_map(|id| match self.nest.values[id.0] {
            Value::Load { operand, .. } => Some(operand.0),
            _ => None,
        });
        self.row_indices(out, &operands.collect::<Vec<_>>(), false);
        for &id in &prefetch.elements {
            out.lines(self.pointer(id, true).iter().map(Definition::to_string));
            out.line(self.load(id, &format!("next_{}", id.0), "", "extent"));
        }
        for &id in &prefetch.scalars {
            let Value::Load { operand, .. } = self.nest.values[id.0] else {
                continue;
            };
            let from = self.names.row_offset(operand.0);
            let loaded = self.names.loaded(operand.0, format!("*({from})"));
            out.line(format!("next_{} = {loaded};", id.0));
        }
    }

    /// Makes the prefetched row this one.
    fn take_prefetched(&self, out: &mut Text, prefetch: &Prefetch) {
        for &id in &prefetch.elements {
            let name = self.names.of(id);
            out.line(format!("{} {name}[VECTORS][4];", self.names.dtype(id)));
            out.line(format!("copy_vectors({name}, next_{});", id.0));
        }
        for &id in &prefetch.scalars {
            let (dtype, name) = (self.names.dtype(id), self.names.of(id));
            out.line(format!("const {dtype} {name} = next_{};", id.0));
        }
    }
}
