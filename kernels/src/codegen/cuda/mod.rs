//! CUDA kernels: groups of lanes that share a row, four columns a lane at a time.
//!
//! A block has `groups` groups of `width` lanes. A lane holds `chunks` times four columns of a row in
//! registers, all of the row if its columns are bounded: then everything is loaded once. Otherwise
//! passes over the row are loops, and load again.
//!
//! Where a group has many rows (there are sums over rows), what is the same for all rows is loaded once, and each row is
//! loaded while the one before it is computed: so the memory has as much to do with few warps that hold much as with many
//! that hold little. All groups of all blocks take turns then, so that what the whole GPU reads lies together, as blocks do
//! at the pieces of one long row that is added up. Else a group has one row, and blocks are small; or if rows are many and
//! short, and launches wait for no other, a warp has several side by side, a block of its own. Where rows are few enough
//! for that, a group has one row also of those whose reductions become one total: each block leaves a part of it. Of those that
//! leave nothing else a row has two or three quads a lane in as many warps as that takes, and a block's first warp computes what
//! is known of its rows when their columns are done.

mod cells;
mod finish;
mod kernel;
mod lanes;
mod late;
mod member;
mod rows;
mod wide;
mod work;

use crate::common::{CUDA_H, FUNCTIONS_CUH};
use crate::nest::{Bounds, Extents, Fill, Nest, Parts, Value, ValueId};
use crate::program::{Geometry, SourceFile};

use super::launch::Split;
use super::stages::{Keep, Stages};

pub(super) use finish::how;
pub(super) use kernel::text;
pub(super) use member::{Pointee, declarations, member};
pub(super) use wide::fill;

use lanes::{Lanes, MOST_CHUNKS, TOTAL_THREADS};
use late::Late;
use work::Work;

/// What generated kernels include.
pub(super) static HEADERS: [SourceFile; 2] = [FUNCTIONS_CUH, CUDA_H];

/// Threads of a block, where rows do not need more.
const THREADS: u32 = 256;

/// Processors of a large GPU. How many a GPU has does not matter to the number of blocks that leave a part
/// each: sums must not depend on that.
const PROCESSORS: u64 = 132;

/// Blocks that leave a part each, where they go over many rows.
const PARTS: u64 = 4 * PROCESSORS;

/// The same at most, where blocks have a row for each group, or a piece of a long one, and wait for no launch before: many
/// small ones begin and end evenly, and each thread of one block takes a few parts, most of them while others
/// work. Where all wait, that costs what it gains, and more.
const MANY_PARTS: u64 = 1 << 14;

/// The same at most where the first warp of a block computes what is known late: blocks have half as many rows then.
pub(super) const MOST_PARTS: u64 = 1 << 15;

/// Rows that are enough for groups to have several side by side: a large GPU has room for fewer at once, if each has a warp.
pub(super) const MANY_ROWS: u64 = 64 * PROCESSORS;

/// Registers of a processor, threads of blocks that take a piece of a long row or a row for each group, and registers that a
/// thread needs beside those for cells. There is room for 2048 threads; with 32 registers each, they wait for memory no better.
const ALL_REGISTERS: u32 = 65_536;
const ALL_THREADS: u32 = 2_048;
const THREADS_AT_ONCE: u32 = 1_536;
const OTHER_REGISTERS: u32 = 24;

/// The same where a lane counts the columns of many quads.
const COUNT_REGISTERS: u32 = 8;

/// The same of a block that takes a piece of a long row, beside what it loads and as much for what it makes of it; and
/// for the address and the steps of each operand but two.
const FLAT_OTHER_REGISTERS: u32 = 16;
const OPERAND_REGISTERS: u32 = 8;

/// Blocks with many rows, loaded ahead, that a processor is to have room for, at most. The compiler is told for how many
/// it has registers: left alone, it takes those that other blocks need.
const MOST_BLOCKS: u32 = 3;

/// Blocks that a processor has room for, however small.
const MOST_BLOCKS_AT_ONCE: u32 = 32;

/// Rows of a group that leave one part, at least.
const PART_ROWS: u64 = 4;

/// How a CUDA kernel shares out its work.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Schedule {
    /// Lanes of a group: a power of two, up to 1024.
    pub width: u32,
    /// Groups of a block: a power of two.
    pub groups: u32,
    /// Times that a lane holds four columns.
    pub chunks: u32,
    /// Whether a row may have more columns than a group holds at once.
    pub is_looped: bool,
    pub keep: Keep,
    /// Floats of shared memory.
    pub shared: u32,
    parts: Parts,
    reduces_columns: bool,
    /// Whether rows are so long that a block has a piece of one, and nothing is reduced.
    is_flat: bool,
    /// The same, and there is one row in all launches.
    pub is_one_row: bool,
    /// Whether a group has one row, or several side by side: nothing is reduced over rows.
    pub has_one_row: bool,
    /// Rows that a group has side by side.
    pub rows: u32,
    /// Whether a group has one row, of which its block leaves a part of a total.
    pub has_few_rows: bool,
    /// The same, and what the first warp of a block computes for all of them when their columns are done.
    late: Option<Late>,
    /// Whether groups of all blocks take turns at the rows.
    pub takes_turns: bool,
    /// Whether blocks take turns at the pieces of rows that are so long that a block adds up several of them.
    pub takes_pieces: bool,
    over_rows: bool,
    over_all: bool,
    /// Loads that all rows share, made once.
    pub shared_loads: Vec<ValueId>,
    /// Loads of a row that are made while the row before is computed.
    pub ahead: Vec<ValueId>,
    /// The same, of one number for the whole row.
    pub ahead_of_row: Vec<ValueId>,
    /// Whether anything is computed for each column: rows have pieces and chunks then.
    pub has_cells: bool,
    /// Blocks that a processor is to have room for, where registers would allow fewer.
    pub least_blocks: u32,
    /// Whether launches may overlap those before: the text waits for them then.
    overlaps: bool,
    /// Whether loads may ask not to be kept in the second-level cache: nothing is loaded twice, nor written.
    pub streams: bool,
    /// How columns fill what they are moved in, in all launches, as far as text depends on it.
    pub fill: Fill,
}

impl Schedule {
    /// Decides for a valid nest and an architecture such as `sm_90a`.
    ///
    /// # Errors
    /// A sentence where reductions over rows have no place.
    pub(super) fn new(nest: &Nest, bounds: Bounds, arch: &str) -> Result<Schedule, String> {
        let work = Work::new(nest, bounds, arch)?;
        let lanes = Lanes::new(&work)?;
        let mut schedule = Schedule::of(&work, &lanes);
        schedule.fill = schedule.taken(bounds.fill);
        if work.is_whole() && !lanes.is_looped {
            schedule.shared_loads.clone_from(&work.shared_loads);
            schedule.ahead.clone_from(&work.ahead);
        }
        if !schedule.ahead.is_empty() {
            schedule.ahead_of_row = work.loads_of_numbers();
        }
        schedule.least_blocks = schedule
            .wanted_registers(&work)
            .map_or(1, |registers| schedule.blocks_of(registers));
        schedule.shared = schedule.shared_floats(&work.stages, nest);
        Ok(schedule)
    }

    /// What follows from lanes alone, for blocks that load nothing ahead and ask for no registers.
    fn of(work: &Work<'_>, lanes: &Lanes) -> Schedule {
        let has_parts = work.nest.parts == Parts::Many;
        Schedule {
            width: lanes.width,
            groups: (lanes.threads(work) / lanes.width).max(1),
            chunks: lanes.chunks,
            is_looped: lanes.is_looped,
            keep: match lanes.is_looped {
                true => Keep::Nothing,
                false => Keep::FunctionsAndLoads,
            },
            shared: 0,
            parts: work.nest.parts,
            reduces_columns: work.reduces_columns,
            is_flat: lanes.is_flat,
            is_one_row: lanes.is_flat && work.has_cells() && work.bounds.is_one_row,
            has_one_row: lanes.has_one_row,
            rows: lanes.rows,
            has_few_rows: work.has_few_rows,
            late: work.late.clone().filter(|_| !lanes.is_looped),
            takes_turns: work.is_whole() && work.has_last() && !work.has_few_rows,
            takes_pieces: lanes.is_looped
                && lanes.width == TOTAL_THREADS
                && !work.is_whole()
                && work.has_cells()
                && has_parts,
            has_cells: work.has_cells(),
            over_rows: work.over_rows > 0,
            over_all: work.over_all,
            shared_loads: vec![],
            ahead: vec![],
            ahead_of_row: vec![],
            least_blocks: 1,
            overlaps: work.overlaps,
            streams: work.over_all && work.over_rows == 0 && work.writes_no_cells(),
            fill: Fill::Any,
        }
    }

    /// Registers that threads are to do with, so that more blocks have room; none where that does not matter.
    fn wanted_registers(&self, work: &Work<'_>) -> Option<u32> {
        let loads = (self.ahead.len() + self.shared_loads.len()) as u32;
        let (held, other) = if self.is_flat {
            let operands = (work.nest.operands.len() as u32).saturating_sub(2);
            let other = FLAT_OTHER_REGISTERS + OPERAND_REGISTERS * operands;
            (2 * work.loaded(), other)
        } else if self.takes_pieces {
            (work.loaded(), OTHER_REGISTERS)
        } else if self.has_few_rows && !self.is_looped {
            let counts = self.chunks > MOST_CHUNKS && work.nest.values.contains(&Value::Column);
            let columns = if counts { COUNT_REGISTERS } else { 0 };
            (work.cells(), OTHER_REGISTERS + columns)
        } else if self.rows > 1 {
            (self.rows * work.live_cells() + loads, OTHER_REGISTERS)
        } else if loads > 0 && work.has_last() && self.threads() <= THREADS {
            (work.cells() + work.over_rows + loads, OTHER_REGISTERS)
        } else {
            return None;
        };
        Some(4 * self.chunks * held + other)
    }

    /// Whether something is left when all rows are done.
    fn has_last(&self) -> bool {
        self.over_rows || self.over_all
    }

    /// What text depends on of how columns fill what they are moved in. Measured: loops over many rows that move four at a
    /// time alone are slower, by 3 to 6 %, but where lanes are full, too, faster; kernels of one row a group are up to 4 %
    /// slower where no lane asks, but not those of a dense tensor (whose launches, if they overlap, have other blocks). Why is
    /// not known.
    fn taken(&self, fill: Fill) -> Fill {
        let is_dense = self.is_one_row && !self.overlaps;
        match fill {
            _ if !self.has_cells => Fill::Any,
            Fill::Quads if self.has_last() => Fill::Any,
            Fill::Lanes if !self.has_last() && !is_dense && self.rows == 1 => Fill::Quads,
            fill => fill,
        }
    }

    /// Blocks that a processor has room for, if threads have so many registers.
    fn blocks_of(&self, registers: u32) -> u32 {
        let blocks = ALL_REGISTERS / self.threads() / registers;
        let most_threads = match (self.is_flat, self.is_looped) {
            _ if self.rows > 1 => MOST_BLOCKS_AT_ONCE * self.threads(),
            (true, _) => THREADS_AT_ONCE,
            (false, true) => 2 * TOTAL_THREADS,
            (false, false) if self.late.is_some() => ALL_THREADS,
            (false, false) if self.has_few_rows => THREADS_AT_ONCE,
            (false, false) => MOST_BLOCKS * THREADS,
        };
        blocks.clamp(1, most_threads / self.threads())
    }

    /// The same with blocks of so many threads: no fewer than it has, a power of two. Groups that share rows, or
    /// that go over rows in loops, are not made more.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn with_threads(mut self, nest: &Nest, threads: u32) -> Result<Schedule, String> {
        let span = self.span();
        if self.is_flat {
            self.width = threads;
        } else if !self.is_looped && !self.reduces_columns {
            self.groups = (threads / self.width).max(1);
        }
        if self.span() != span {
            self.fill = self.fill.min(Fill::Quads);
        }
        self.shared = self.shared_floats(&Stages::new(nest, self.keep)?, nest);
        Ok(self)
    }

    /// The same for a block of another kernel, whose parts it adds up: with as many threads as that one has, a
    /// power of two; it waits for launches if that one does.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn adding_up_parts(
        mut self,
        nest: &Nest,
        of: &Schedule,
    ) -> Result<Schedule, String> {
        (self.width, self.groups) = (of.threads(), 1);
        self.overlaps = of.overlaps;
        (self.streams, self.fill) = (false, Fill::Any);
        self.shared = self.shared_floats(&Stages::new(nest, self.keep)?, nest);
        Ok(self)
    }

    /// What a kernel begins with, if its launches may overlap those before.
    pub(super) fn waits(&self) -> Option<&'static str> {
        self.overlaps.then_some("await_launches();")
    }

    /// Whether anybody writes to an operand as long as the kernel runs but the kernel itself, through this operand's pointer:
    /// what is read by it may be what a launch before writes while the kernel waits.
    pub(super) fn pointee(&self, nest: &Nest, operand: usize) -> Pointee {
        match nest.operands[operand].is_written || !self.overlaps {
            true => Pointee::Restricted,
            false => Pointee::Unrestricted,
        }
    }

    /// What a kernel's launch bounds are after its threads.
    pub(super) fn bounds(&self) -> String {
        match self.least_blocks {
            1 => String::new(),
            blocks => format!(", {blocks}"),
        }
    }

    /// Whether rows are reduced for each column.
    pub(super) fn has_over_rows(&self) -> bool {
        self.over_rows
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.width * self.groups
    }

    /// Warps that share a row, or have several.
    fn row_warps(&self) -> u32 {
        self.width.div_ceil(32)
    }

    /// Columns that a group holds at once.
    pub(super) fn span(&self) -> u64 {
        u64::from(4 * self.width * self.chunks)
    }

    /// Reductions of one pass that warps share, at most.
    pub(super) fn slots(&self, stages: &Stages) -> u32 {
        let counts = stages.passes.iter().map(|pass| pass.reductions.len());
        counts.max().unwrap_or(0) as u32
    }

    fn shared_floats(&self, stages: &Stages, nest: &Nest) -> u32 {
        if let Some(late) = &self.late {
            return late.shared_floats(self.groups, self.row_warps());
        }
        let warps = self.threads().div_ceil(32);
        let rows = if self.width > 32 {
            2 * warps * self.slots(stages)
        } else {
            0
        };
        let all = stages.over_all(nest).len() as u32 * warps;
        let groups = if self.over_rows && !self.is_looped && self.groups > 1 {
            self.groups / 2 * self.span() as u32
        } else {
            0
        };
        rows.max(all).max(groups)
    }

    /// Whether blocks that leave a part each are many and small: each has one row for a group, or one piece of a long row.
    pub(super) fn has_many_parts(&self) -> bool {
        self.has_few_rows || (self.takes_pieces && !self.overlaps)
    }

    /// Whether blocks that leave a part each may be as many as so many rows take, if each group has one.
    pub(super) fn takes(&self, rows: u64) -> bool {
        let most = match self.late {
            Some(_) => MOST_PARTS,
            None => MANY_PARTS,
        };
        rows.div_ceil(self.groups.into()) <= most
    }

    /// Whether so many rows are as many as whole blocks take at a time.
    pub(super) fn is_filled_by(&self, rows: u64) -> bool {
        rows.is_multiple_of(self.block_rows())
    }

    /// Rows that a block's groups have at a time.
    fn block_rows(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.rows)
    }

    /// What a block has.
    pub(super) fn split(&self, extents: &Extents) -> Split {
        let (rows, columns) = (extents.row_count().max(1), extents.columns.max(1));
        let (span, groups) = (self.span(), self.block_rows());
        let whole = self.reduces_columns || (self.over_rows && self.over_all);
        let (block_rows, block_columns) = if self.has_last() && self.parts == Parts::One {
            (
                rows,
                if whole || self.over_all {
                    columns
                } else {
                    span
                },
            )
        } else if !self.has_last() {
            (groups, if self.has_one_row { columns } else { span })
        } else if self.has_few_rows {
            (groups, columns)
        } else if whole {
            // All that there is room for at once: another one would be alone on the GPU in the end.
            let parts = match self.ahead.is_empty() {
                true => PARTS,
                false => PROCESSORS * u64::from(self.least_blocks),
            };
            let block_rows = rows.div_ceil(parts);
            (block_rows.max(PART_ROWS * groups), columns)
        } else if self.over_rows {
            let blocks = (2 * PARTS).div_ceil(columns.div_ceil(span));
            (rows.div_ceil(blocks).max(PART_ROWS * groups), span)
        } else {
            let parts = match (self.takes_pieces, self.overlaps) {
                (true, false) => MANY_PARTS,
                (true, true) => PROCESSORS * u64::from(self.least_blocks),
                (false, _) => PARTS,
            };
            let block_rows = rows.div_ceil(parts).max(groups);
            let row_blocks = rows.div_ceil(block_rows);
            let pieces = (parts / row_blocks).max(1);
            (block_rows, columns.div_ceil(pieces).next_multiple_of(span))
        };
        Split {
            block_rows: match self.takes_turns {
                true => block_rows,
                false => block_rows.next_multiple_of(groups),
            },
            block_columns,
        }
    }

    /// The geometry of a launch of so many blocks.
    pub(super) fn geometry(&self, blocks: u64) -> Geometry {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        Geometry {
            shared_bytes: 4 * self.shared,
            overlaps: self.overlaps,
            ..Geometry::linear(blocks, self.threads())
        }
    }
}
