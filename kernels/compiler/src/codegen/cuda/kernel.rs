//! The text of a CUDA kernel: its head, and the parts of its body that all templates share.

use crate::nest::{Alignment, CrossBlock, Nest, ValueId};

use super::super::names::Names;
use super::super::scalar::Dialect;
use super::super::stages::Stages;
use super::super::text::{self, Text};
use super::super::{ENTRY, launch::Parameter};
use super::row::Definition;
use super::sub_kernel::declarations;
use super::{Schedule, Template};

/// The text of the kernel.
///
/// # Errors
/// As [`Stages::new`].
pub(in super::super) fn text(
    nest: &Nest,
    schedule: &Schedule,
    parameters: &[Parameter],
) -> Result<String, String> {
    let stages = schedule.stages(nest)?;
    let writer = Writer::new(nest, schedule, parameters, &stages, "blockIdx.x");
    let mut out = Text::default();
    out.line(format!("// {}.", text::words(nest).join(", ")));
    out.line("#include \"functions.cuh\"");
    out.line("");
    out.lines(writer.constants());
    out.line("");
    writer.kernel(&mut out);
    Ok(out.finish())
}

/// Writes one nest.
pub(super) struct Writer<'a> {
    pub(super) nest: &'a Nest,
    pub(super) schedule: &'a Schedule,
    pub(super) parameters: &'a [Parameter],
    pub(super) stages: &'a Stages,
    pub(super) names: Names<'a>,
    /// The expression of the block's index among the blocks of the nest.
    pub(super) block: &'static str,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        nest: &'a Nest,
        schedule: &'a Schedule,
        parameters: &'a [Parameter],
        stages: &'a Stages,
        block: &'static str,
    ) -> Writer<'a> {
        Writer {
            nest,
            schedule,
            parameters,
            stages,
            names: Names {
                nest,
                stages,
                dialect: Dialect::Cuda,
                of_row: "",
                has_row_arrays: schedule.rows_per_warp() > 1,
            },
            block,
        }
    }
}

impl Writer<'_> {
    /// Definitions of the tile's constants.
    pub(super) fn constants(&self) -> Vec<String> {
        let (schedule, tile) = (self.schedule, &self.schedule.tile);
        if schedule.deferred().is_some() {
            return self.deferred_constants();
        }
        let chunks = match schedule.has_elements {
            true => format!(", VECTORS = {}", tile.vectors),
            false => String::new(),
        };
        let rows = match schedule.rows_per_warp() {
            1 => String::new(),
            rows => format!(", ROWS_PER_WARP = {rows}"),
        };
        let mut lines = vec![
            format!(
                "constexpr int ROW_THREADS = {}, ROW_GROUPS = {}{chunks}{rows};",
                tile.threads_per_row, tile.row_groups
            ),
            "constexpr int THREADS = ROW_THREADS * ROW_GROUPS;".to_owned(),
        ];
        if self.has_shared_rows() || !self.stages.over_all(self.nest).is_empty() {
            lines.push("constexpr int WARPS = (THREADS + 31) / 32;".to_owned());
        }
        if tile.is_looped && schedule.has_elements {
            lines.push("constexpr int TILE = 4 * ROW_THREADS * VECTORS;".to_owned());
        }
        lines
    }

    fn kernel(&self, out: &mut Text) {
        let pointee = |operand| self.schedule.pointee(self.nest, operand);
        out.open(format!(
            "KERNEL({ENTRY}, THREADS{})({})",
            self.schedule.min_blocks(),
            declarations(self.nest, self.parameters, &pointee, "").join(", ")
        ));
        out.lines(self.schedule.dependency_wait());
        self.body(out);
        out.close();
    }

    /// The work of a block.
    pub(super) fn body(&self, out: &mut Text) {
        out.lines(self.vectorized());
        match &self.schedule.template {
            Template::Pointwise { is_single_row } => self.pointwise(out, *is_single_row),
            Template::RowReduction { rows_per_warp } => self.row_reduction(out, *rows_per_warp),
            Template::ColumnReduction => self.column_reduction(out),
            Template::RowAndColumnReduction(prefetch) => {
                self.row_and_column_reduction(out, prefetch);
            }
            Template::FullReduction(form) => self.full_reduction(out, form),
        }
    }

    /// A block has several row groups.
    pub(super) fn has_groups(&self) -> bool {
        self.schedule.tile.row_groups > 1
    }

    /// Several warps share a row, and reduce it through shared memory.
    pub(super) fn has_shared_rows(&self) -> bool {
        self.schedule.tile.threads_per_row > 32
            && self.stages.reduces_columns()
            && self.schedule.deferred().is_none()
    }

    /// The thread's position in its row group, and the group's position in the block.
    pub(super) fn thread_index(&self, out: &mut Text) {
        let group = match self.has_groups() {
            true => ", group = threadIdx.x / ROW_THREADS",
            false => "",
        };
        out.line(format!(
            "const int lane = threadIdx.x % ROW_THREADS{group};"
        ));
    }

    /// The block has whole rows.
    pub(super) fn whole_rows(&self, out: &mut Text) {
        out.line("constexpr int64 first_column = 0;");
        out.line(self.tile_extent("(int)columns"));
    }

    /// The block has as many rows as it has row groups, from `begin` on.
    pub(super) fn row_per_group(&self, out: &mut Text) {
        self.whole_rows(out);
        let block = self.block;
        out.line(format!(
            "const int64 begin = (int64){block} * ROW_GROUPS, end = rows;"
        ));
    }

    /// The block has a tile of columns and a range of rows, numbered by columns first.
    pub(super) fn rectangle(&self, out: &mut Text, first: &str, extent: &str) {
        let block = self.block;
        out.lines([
            format!("const unsigned column_block = {block} % (unsigned)column_blocks, row_block = {block} / (unsigned)column_blocks;"),
            format!("const int64 first_column = {first}, begin = row_block * block_rows;"),
            self.tile_extent(extent),
            "const int64 end = min(begin + block_rows, rows);".to_owned(),
        ]);
    }

    /// The columns that the block has of a row: a constant where tiles are full in all launches.
    pub(super) fn tile_extent(&self, columns: &str) -> String {
        let is_full = self.schedule.hints.alignment == Alignment::FullTiles;
        match is_full && !self.schedule.tile.is_looped {
            true => "constexpr int extent = 4 * ROW_THREADS * VECTORS;".to_owned(),
            false => format!("const int extent = {columns};"),
        }
    }

    /// Shared memory, and which set of slots reductions of rows use.
    pub(super) fn shared_memory(&self, out: &mut Text) {
        if self.schedule.shared_floats > 0 {
            out.line("SHARED(shared);");
        }
        if self.has_shared_rows() {
            out.line(format!(
                "constexpr int SLOTS = {} * WARPS;",
                Schedule::slots(self.stages)
            ));
            out.line("int set = 0;");
        }
    }

    /// Accumulators of reductions over rows and over all.
    pub(super) fn accumulators(&self, out: &mut Text) {
        for id in self.stages.over_rows(self.nest) {
            let (name, identity) = (self.names.of(id), self.names.identity(id));
            if self.schedule.tile.is_looped {
                // A row does not fit in registers: partials are accumulated in memory.
                let part = self.names.partials_of(id);
                out.line(format!(
                    "float *partials_{} = {part} + row_block * columns + first_column;",
                    id.0
                ));
                continue;
            }
            out.line(format!("float {name}[VECTORS][4];"));
            out.line("#pragma unroll");
            out.line(format!(
                "for (int i = 0; i < 4 * VECTORS; i++) {name}[i / 4][i % 4] = {identity};"
            ));
        }
        for id in self.stages.over_all(self.nest) {
            let identity = self.names.identity(id);
            out.line(format!("float {} = {identity};", self.names.of(id)));
        }
    }

    /// Loads of elements that all rows share.
    pub(super) fn hoisted_loads(&self, out: &mut Text) {
        for &id in &self.schedule.hoisted {
            out.lines(self.pointer(id, false).iter().map(Definition::to_string));
            let name = self.names.of(id);
            out.line(format!("{} {name}[VECTORS][4];", self.names.dtype(id)));
            out.line(self.load(id, &name, "", "extent"));
        }
    }

    /// The first row that the block's row groups have at a time.
    pub(super) fn first_row(&self) -> &'static str {
        match self.has_groups() {
            true => "base",
            false => "r",
        }
    }

    /// Opens the only row of a row group.
    pub(super) fn open_only_row(&self, out: &mut Text) {
        let first = self.first_row();
        out.line(format!("const int64 {first} = begin;"));
        out.open(format!("if ({first} < end)"));
        self.row_of_group(out);
    }

    /// Opens the loop over the rows of a row group; the next ones are `step` rows on.
    pub(super) fn open_rows(&self, out: &mut Text, step: &str) {
        let first = self.first_row();
        out.open(format!(
            "for (int64 {first} = begin; {first} < end; {first} += {step})"
        ));
        self.row_of_group(out);
    }

    /// The step from the rows that a block's groups have to the next rows of this block.
    pub(super) fn group_step(&self) -> &'static str {
        match self.has_groups() {
            true => "ROW_GROUPS",
            false => "1",
        }
    }

    /// Groups past the last row compute it again and drop the result, so that all reach barriers.
    fn row_of_group(&self, out: &mut Text) {
        if self.has_groups() {
            out.line("const bool is_in_range = base + group < end;");
            out.line("const int64 r = is_in_range ? base + group : end - 1;");
        }
    }

    /// The indices of the row, for all operands but partials.
    pub(super) fn indices_of_row(&self, out: &mut Text) {
        let is_partial = |at: &usize| {
            let mut stores = self.nest.stores.iter().enumerate();
            stores.any(|(store, held)| held.operand.0 == *at && self.names.is_partial(store))
        };
        let operands = 0..self.nest.operands.len();
        let operands: Vec<usize> = operands.filter(|at| !is_partial(at)).collect();
        self.row_indices(out, &operands, true);
    }

    /// Stores partials, or values of complete reductions.
    pub(super) fn store_reductions(&self, out: &mut Text) {
        match self.nest.cross_block {
            CrossBlock::Partials => self.store_partials(out),
            CrossBlock::OneBlock => self.store_results(out),
        }
    }

    /// A load's array is filled before the row's passes.
    pub(super) fn is_loaded(&self, id: ValueId) -> bool {
        let is_prefetched = match &self.schedule.template {
            Template::RowAndColumnReduction(prefetch) => prefetch.elements.contains(&id),
            _ => false,
        };
        is_prefetched || self.schedule.hoisted.contains(&id)
    }
}
