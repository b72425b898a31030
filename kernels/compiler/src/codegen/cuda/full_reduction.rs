//! Template *full reduction*: everything is reduced to one number a block, by one row a row group,
//! by a rectangle a block, or by column tiles of long rows, grid-stride.

use super::super::text::Text;
use super::FullReduction;
use super::kernel::Writer;

impl Writer<'_> {
    pub(super) fn full_reduction(&self, out: &mut Text, form: &FullReduction) {
        if let FullReduction::RowPerGroup {
            deferred: Some(deferred),
        } = form
        {
            self.deferred_full_reduction(out, deferred);
            return;
        }
        self.thread_index(out);
        match form {
            FullReduction::RowPerGroup { .. } => self.row_per_group(out),
            FullReduction::Rectangle => self.rectangle(
                out,
                "column_block * block_columns",
                "(int)min(columns - first_column, block_columns)",
            ),
            FullReduction::ColumnTiles => {
                self.rectangle(
                    out,
                    "(int64)column_block * TILE",
                    "(int)(columns - first_column)",
                );
            }
        }
        out.lines(self.eviction_policy());
        self.shared_memory(out);
        self.values(out, &self.stages.uniform);
        self.accumulators(out);
        self.hoisted_loads(out);
        match form {
            FullReduction::RowPerGroup { .. } => self.open_only_row(out),
            _ => self.open_rows(out, self.group_step()),
        }
        self.indices_of_row(out);
        self.row(out);
        out.close();
        self.reduce_block(out);
        self.store_reductions(out);
    }
}
