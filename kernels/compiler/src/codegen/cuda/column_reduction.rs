//! Template *column reduction*: a block has a tile of columns, and adds up a range of rows in
//! registers.

use super::super::text::Text;
use super::kernel::Writer;

impl Writer<'_> {
    pub(super) fn column_reduction(&self, out: &mut Text) {
        self.thread_index(out);
        self.rectangle(
            out,
            "column_block * block_columns",
            "(int)min(columns - first_column, block_columns)",
        );
        self.shared_memory(out);
        self.values(out, &self.stages.uniform);
        self.accumulators(out);
        out.line("#pragma unroll 2");
        self.open_rows(out, self.group_step());
        self.indices_of_row(out);
        self.row(out);
        out.close();
        self.reduce_row_groups(out);
        self.store_reductions(out);
    }
}
