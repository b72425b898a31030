//! Template *row reduction*: a row group has one row, whose columns it reduces; or a warp has
//! several rows at once.

use super::super::text::Text;
use super::kernel::Writer;

impl Writer<'_> {
    pub(super) fn row_reduction(&self, out: &mut Text, rows_per_warp: u32) {
        self.thread_index(out);
        if rows_per_warp > 1 {
            self.whole_rows(out);
            out.line(format!(
                "const int64 begin = (int64){} * ROWS_PER_WARP;",
                self.block
            ));
        } else {
            self.row_per_group(out);
        }
        self.shared_memory(out);
        self.values(out, &self.stages.uniform);
        self.hoisted_loads(out);
        if rows_per_warp > 1 {
            // Each definition loops over the rows by itself.
            out.open("");
        } else {
            self.open_only_row(out);
            self.indices_of_row(out);
        }
        self.row(out);
        out.close();
    }
}
