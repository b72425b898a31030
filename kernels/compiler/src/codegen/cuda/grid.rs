//! The grid: the distribution of a launch's rows and columns over blocks. It depends on extents
//! alone, so that sums are equal on every GPU.

use crate::nest::{CrossBlock, Extents};
use sweeper_program::Geometry;

use super::super::launch::Split;
use super::choose::{
    MAX_DEFERRED_PARTIALS, MAX_PARTIALS, MIN_ROWS_PER_GROUP, PERSISTENT_BLOCKS, SMS,
};
use super::{FullReduction, Schedule, Template};

impl Schedule {
    /// Blocks are many and store a partial each: each has one row for a row group, or one tile of a
    /// long row.
    pub(in super::super) fn has_many_partials(&self) -> bool {
        self.has_partial_per_row_group() || (self.has_column_tiles() && !self.hints.overlap)
    }

    fn has_column_tiles(&self) -> bool {
        self.template == Template::FullReduction(FullReduction::ColumnTiles)
    }

    /// Blocks with one row a row group store no more partials for `rows` rows than a finalizer
    /// block combines.
    pub(in super::super) fn fits_partials(&self, rows: u64) -> bool {
        let max = match self.deferred() {
            Some(_) => MAX_DEFERRED_PARTIALS,
            None => MAX_PARTIALS,
        };
        rows.div_ceil(self.tile.row_groups.into()) <= max
    }

    /// Blocks take `rows` rows without one left over.
    pub(in super::super) fn is_multiple_of_block_rows(&self, rows: u64) -> bool {
        rows.is_multiple_of(self.rows_at_once())
    }

    /// Rows that a block computes at once.
    fn rows_at_once(&self) -> u64 {
        u64::from(self.tile.row_groups) * u64::from(self.rows_per_warp())
    }

    /// The rows and columns of a block.
    pub(in super::super) fn split(&self, extents: &Extents) -> Split {
        let (rows, columns) = (extents.row_count().max(1), extents.columns.max(1));
        let at_once = self.rows_at_once();
        if let Template::RowAndColumnReduction(_) = self.template {
            return Split {
                block_rows: self.grid_stride_rows(rows),
                block_columns: columns,
            };
        }
        let (block_rows, block_columns) = match &self.template {
            Template::Pointwise { .. } => (at_once, self.tile.columns()),
            Template::RowReduction { .. } => (at_once, columns),
            Template::ColumnReduction => (
                self.column_reduction_rows(rows, columns),
                self.tile.columns(),
            ),
            Template::FullReduction(_) if self.cross_block == CrossBlock::OneBlock => {
                (rows, columns)
            }
            Template::FullReduction(FullReduction::RowPerGroup { .. }) => (at_once, columns),
            Template::RowAndColumnReduction(_) | Template::FullReduction(_) => {
                self.rectangle(rows, columns)
            }
        };
        Split {
            block_rows: block_rows.next_multiple_of(at_once),
            block_columns,
        }
    }

    /// Rows of a block whose groups go over rows grid-stride.
    fn grid_stride_rows(&self, rows: u64) -> u64 {
        let Template::RowAndColumnReduction(prefetch) = &self.template else {
            return rows;
        };
        if self.cross_block == CrossBlock::OneBlock {
            return rows;
        }
        // As many as fit at once: one more would run alone in the end.
        let resident = self.resident_blocks();
        let (blocks, least) = match (prefetch.elements.is_empty(), self.hints.min_blocks_per_sm) {
            (true, 1) => (PERSISTENT_BLOCKS, MIN_ROWS_PER_GROUP),
            (true, _) => (resident, 1),
            (false, _) => (resident, MIN_ROWS_PER_GROUP),
        };
        rows.div_ceil(blocks).max(least * self.rows_at_once())
    }

    fn column_reduction_rows(&self, rows: u64, columns: u64) -> u64 {
        if self.cross_block == CrossBlock::OneBlock {
            return rows;
        }
        let blocks = (2 * PERSISTENT_BLOCKS).div_ceil(columns.div_ceil(self.tile.columns()));
        rows.div_ceil(blocks)
            .max(MIN_ROWS_PER_GROUP * self.rows_at_once())
    }

    /// Rows and columns of a block of a full reduction.
    fn rectangle(&self, rows: u64, columns: u64) -> (u64, u64) {
        let blocks = match (self.has_column_tiles(), self.hints.overlap) {
            (true, false) => MAX_PARTIALS,
            (true, true) => self.resident_blocks(),
            (false, _) => PERSISTENT_BLOCKS,
        };
        let block_rows = rows.div_ceil(blocks).max(self.rows_at_once());
        let column_blocks = (blocks / rows.div_ceil(block_rows)).max(1);
        let block_columns = columns.div_ceil(column_blocks);
        (
            block_rows,
            block_columns.next_multiple_of(self.tile.columns()),
        )
    }

    /// Blocks that fit on a large GPU at once.
    fn resident_blocks(&self) -> u64 {
        SMS * u64::from(self.hints.min_blocks_per_sm)
    }

    /// The geometry of a launch of `blocks` blocks.
    pub(in super::super) fn geometry(&self, blocks: u64) -> Geometry {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Geometry {
            shared_bytes: 4 * self.shared_floats,
            overlaps: self.hints.overlap,
            ..Geometry::linear(blocks, self.tile.threads())
        }
    }
}
