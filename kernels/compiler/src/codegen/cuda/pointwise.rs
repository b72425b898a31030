//! Template *pointwise*: no reductions, a block has a tile of a row.

use super::super::text::Text;
use super::kernel::Writer;

impl Writer<'_> {
    pub(super) fn pointwise(&self, out: &mut Text, is_single_row: bool) {
        self.thread_index(out);
        if is_single_row {
            let block = self.block;
            out.line(format!(
                "const int64 first_column = (int64){block} * (4 * ROW_THREADS * VECTORS);"
            ));
            out.line(self.tile_extent(
                "(int)min(columns - first_column, (int64)(4 * ROW_THREADS * VECTORS))",
            ));
        } else {
            self.rectangle(
                out,
                "column_block * block_columns",
                "(int)min(columns - first_column, block_columns)",
            );
        }
        self.values(out, &self.stages.uniform);
        if is_single_row {
            out.open("");
            out.line("constexpr int64 r = 0;");
        } else {
            out.line("#pragma unroll 1");
            self.open_rows(out, self.group_step());
        }
        self.indices_of_row(out);
        self.row(out);
        out.close();
    }
}
