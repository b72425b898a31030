//! Chooses the template, the tile and the hints of a kernel. All tuned constants are here. They
//! were measured on an H100 and an H200 (docs/performance/operations.md).

use crate::nest::{Alignment, Bounds, CrossBlock, Nest, Value};

use super::demand::Demand;
use super::{FullReduction, Prefetch, Schedule, Template, Tile};

/// SMs of a large GPU. The grid does not follow the GPU at hand: sums must not depend on its number
/// of SMs.
pub(super) const SMS: u64 = 132;

/// Blocks that take many rows each.
pub(super) const PERSISTENT_BLOCKS: u64 = 4 * SMS;

/// Partials of small blocks (one row a row group, or one column tile), at most: many small blocks
/// start and end evenly, and a finalizer block combines this many while others compute. With
/// dependent launches that costs more than it gains.
pub(super) const MAX_PARTIALS: u64 = 1 << 14;

/// The limit of partials with a deferred row epilogue, whose blocks have half as many rows.
pub(in super::super) const MAX_DEFERRED_PARTIALS: u64 = 1 << 15;

/// Rows of a row group that stores one partial, at least.
pub(super) const MIN_ROWS_PER_GROUP: u64 = 4;

/// Rows from which on warps may take several at once: with a warp a row, an SM holds 64.
pub(in super::super) const MIN_ROWS_FOR_SEVERAL_PER_WARP: u64 = 64 * SMS;

/// Registers of an SM, and threads that it can hold.
const SM_REGISTERS: u32 = 65_536;
const SM_THREADS: u32 = 2_048;
/// Blocks that an SM can hold.
const SM_BLOCKS: u32 = 32;
/// Threads an SM, at most, of small blocks: more, with 32 registers each, do not hide memory
/// latency better.
const TARGET_SM_THREADS: u32 = 1_536;
/// Blocks an SM, at most, of row groups that prefetch.
const PREFETCH_SM_BLOCKS: u32 = 3;

/// Registers of a thread besides the registers of its elements.
const BASE_REGISTERS: u32 = 24;
/// Further registers, where the column indices of many vectors are used.
const COLUMN_INDEX_REGISTERS: u32 = 8;
/// Base registers of a pointwise kernel, and registers for the address and strides of each operand
/// after the second.
const POINTWISE_BASE_REGISTERS: u32 = 16;
const OPERAND_REGISTERS: u32 = 8;
/// Registers of an element that is looked up by an index of its column: the element, and 64 bits
/// each for its address and the index times its stride.
pub(super) const LOOKED_UP_REGISTERS: u32 = 5;

/// Loads from which on rows that are reduced both ways are not prefetched, and registers for their
/// elements of a thread, at most (docs/performance/transformer.md).
const MANY_LOADS: usize = 4;
const MANY_LOADS_REGISTERS: u32 = 112;
/// With up to so many, and fewer vectors than most, an SM is to have three blocks, else two.
const MANY_LOADS_REGISTERS_OF_3_BLOCKS: u32 = 96;

/// Threads of a block, unless a constant below applies.
const BLOCK_THREADS: u32 = 256;
/// Threads of the only block of a reduction, and of blocks that store a partial for one row a row
/// group: so many that one block combines the partials while others compute.
const REDUCTION_THREADS: u32 = 512;

/// Threads of row groups whose rows are longer than a tile, and their vectors.
const LOOPED_THREADS: u32 = 512;
const LOOPED_VECTORS: u32 = 2;

/// Threads of a block of a row reduction with several vectors a thread, and vectors of a thread, at
/// most: many small blocks wait for memory at the same time. The hardware starts a dependent
/// launch's blocks one in 1.2 ns, others one in 0.7 ns.
const ROW_REDUCTION_THREADS: u32 = 128;
const ROW_REDUCTION_VECTORS: u32 = 3;

/// Rows that a warp computes at once, at most; registers of a thread for their elements, and for
/// their elements and row-invariant loads together. One warp loads as much at once as several warps
/// with a row each, and its shuffles overlap. It is a block of its own: with dependent launches too
/// few such blocks start in time.
const MAX_ROWS_PER_WARP: u32 = 4;
const ROWS_PER_WARP_REGISTERS: u32 = 32;
const ROWS_PER_WARP_ALL_REGISTERS: u32 = 48;

/// Threads of a pointwise block, and vectors of a thread, at most: 1 for dense tensors, where
/// blocks start fast enough.
const POINTWISE_THREADS: u32 = 128;
const POINTWISE_VECTORS: u32 = 2;
const DENSE_VECTORS: u32 = 1;

/// Threads of a block that goes over column tiles, and their vectors, at most.
const COLUMN_TILE_THREADS: u32 = 512;
const COLUMN_TILE_VECTORS: u32 = 4;

/// Threads a row of a column reduction: by many blocks, or by one.
const COLUMN_REDUCTION_THREADS: u32 = 32;
const ONE_BLOCK_COLUMN_THREADS: u32 = 8;

/// Vectors of a thread of row and column reductions, where more threads can share a row: enough
/// loads in flight, short text.
const MAX_VECTORS: u32 = 4;
/// The limit of vectors for full reductions with one row a row group: up to 768 columns a warp.
const FULL_REDUCTION_VECTORS: u32 = 6;
/// The limit of vectors with a deferred row epilogue: warps that share a row wait for one barrier
/// only. The loads in flight cover a narrow window of memory, which displaces little of other
/// launches' data from the L2 cache.
const DEFERRED_VECTORS: u32 = 3;

/// Registers of a thread for elements, in blocks of up to 256, 512 and 1024 threads.
const ELEMENT_REGISTERS: [(u32, u32); 3] = [(256, 80), (512, 56), (1024, 24)];
/// Registers for loads in flight, where tiles are loaded: of 128 in all, the others hold addresses
/// and results.
const TILE_REGISTERS: u32 = 80;

/// Threads whose float4 are a cache line.
const LINE_THREADS: u32 = 8;

/// float4 of a row from which on a warp may take several rows, and up to which a row group takes a
/// short row that is not reduced.
const MIN_VECTORS_OF_SEVERAL_ROWS: u64 = 32;
const MAX_VECTORS_OF_SHORT_ROWS: u64 = 256;

/// Choices that hold for any template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Hints {
    /// Alignment of rows, as far as the text depends on it.
    pub alignment: Alignment,
    /// Programmatic dependent launch: a launch may start while the launch before it ends, and waits
    /// for its results.
    pub overlap: bool,
    /// Operands may be written that are read as well.
    pub in_place: bool,
    /// Loads may be evicted first from the L2 cache: nothing is loaded twice, nor stored.
    pub evict_first: bool,
    /// Blocks that an SM is to have registers for; 1 leaves the number of registers to the
    /// compiler.
    pub min_blocks_per_sm: u32,
}

/// Chooses for a valid nest and an architecture such as `sm_90a`.
///
/// # Errors
/// A sentence where a reduction over rows does not fit one block.
pub(super) fn schedule(nest: &Nest, bounds: Bounds, arch: &str) -> Result<Schedule, String> {
    let demand = Demand::new(nest, bounds, arch)?;
    let (template, tile) = template(&demand)?;
    let hoisted = match demand.needs_whole_rows() && !tile.is_looped {
        true => demand.row_invariant_loads.clone(),
        false => vec![],
    };
    let mut schedule = Schedule {
        template,
        tile,
        hints: Hints {
            alignment: Alignment::Unknown,
            overlap: demand.overlap,
            in_place: bounds.is_in_place,
            evict_first: demand.over_all && demand.over_rows == 0 && demand.stores_no_elements(),
            min_blocks_per_sm: 1,
        },
        hoisted,
        has_elements: demand.has_elements(),
        cross_block: nest.cross_block,
        shared_floats: 0,
    };
    schedule.hints.alignment = schedule.useful_alignment(bounds.alignment);
    schedule.hints.min_blocks_per_sm = schedule.min_blocks_per_sm(&demand);
    schedule.shared_floats = schedule.shared_floats_of(&demand.stages, nest);
    Ok(schedule)
}

fn template(demand: &Demand<'_>) -> Result<(Template, Tile), String> {
    if !demand.is_cross_block() {
        return Ok(row_reduction(demand).unwrap_or_else(|| pointwise(demand)));
    }
    if demand.needs_whole_rows() {
        return match demand.partial_per_row_group {
            true => Ok(row_per_group(demand)),
            false => row_and_column_reduction(demand),
        };
    }
    Ok(match demand.over_rows {
        0 => full_reduction(demand),
        _ => column_reduction(demand),
    })
}

/// Tiles of long rows without reductions.
fn pointwise(demand: &Demand<'_>) -> (Template, Tile) {
    let bounds = &demand.bounds;
    let starts_slowly = demand.overlap && bounds.alignment >= Alignment::Float4;
    let max_vectors = match bounds.is_single_row && !starts_slowly {
        true => DENSE_VECTORS,
        false => POINTWISE_VECTORS,
    };
    let is_single_row = bounds.is_single_row && demand.has_elements();
    let vectors = tile_vectors(demand, max_vectors);
    (
        Template::Pointwise { is_single_row },
        tile(POINTWISE_THREADS, vectors, POINTWISE_THREADS, false),
    )
}

/// One row a row group, or several a warp. None where rows are long and have no reductions.
fn row_reduction(demand: &Demand<'_>) -> Option<(Template, Tile)> {
    if !demand.reduces_columns && has_long_rows(demand) && !has_rows_of_half_a_block(demand) {
        return None;
    }
    let of_rows = |rows_per_warp| Template::RowReduction { rows_per_warp };
    if let Some((rows, vectors)) = several_rows_per_warp(demand) {
        return Some((of_rows(rows), tile(32, vectors, 32, false)));
    }
    if let Some((threads, vectors)) = whole_rows(demand, widest, ROW_REDUCTION_VECTORS) {
        let block = match vectors {
            1 => BLOCK_THREADS,
            _ => ROW_REDUCTION_THREADS,
        };
        return Some((of_rows(1), tile(threads, vectors, block, false)));
    }
    let looped = || (of_rows(1), looped_rows());
    demand.reduces_columns.then(looped)
}

/// Rows that a warp computes at once, two or more, and vectors of a thread.
fn several_rows_per_warp(demand: &Demand<'_>) -> Option<(u32, u32)> {
    let may = demand.bounds.several_rows_per_warp && demand.may_have_several_rows_per_warp();
    if !may || demand.overlap {
        return None;
    }
    let row_vectors = row_vectors(demand)?;
    let vectors = u32::try_from(row_vectors.div_ceil(32)).ok()?;
    let registers = |of_column: u32| 4 * u64::from(vectors) * u64::from(of_column);
    let invariant = registers(demand.row_invariant_loads.len() as u32);
    let fits = |rows: &u32| {
        let own = registers(rows * demand.live_registers().max(1));
        own <= ROWS_PER_WARP_REGISTERS.into()
            && own + invariant <= ROWS_PER_WARP_ALL_REGISTERS.into()
    };
    let rows = std::iter::successors(Some(MAX_ROWS_PER_WARP), |rows| Some(rows / 2));
    let rows = rows.take_while(|rows| *rows > 1).find(fits)?;
    (row_vectors >= MIN_VECTORS_OF_SEVERAL_ROWS).then_some((rows, vectors))
}

/// A full reduction with one row a row group.
fn row_per_group(demand: &Demand<'_>) -> (Template, Tile) {
    let max_vectors = match demand.deferred {
        Some(_) => DEFERRED_VECTORS,
        None => FULL_REDUCTION_VECTORS,
    };
    let of = |deferred| Template::FullReduction(FullReduction::RowPerGroup { deferred });
    match whole_rows(demand, narrowest, max_vectors) {
        Some((threads, vectors)) => {
            let block = match vectors <= MAX_VECTORS {
                true => REDUCTION_THREADS,
                false => BLOCK_THREADS,
            };
            let deferred = demand.deferred.clone();
            (of(deferred), tile(threads, vectors, block, false))
        }
        None => (of(None), looped_rows()),
    }
}

/// Rows grid-stride.
fn row_and_column_reduction(demand: &Demand<'_>) -> Result<(Template, Tile), String> {
    if demand.prefetchable.len() >= MANY_LOADS
        && let Some(without) = row_and_column_reduction_of_many_loads(demand)
    {
        return Ok(without);
    }
    let Some((threads, vectors)) = whole_rows(demand, narrowest, MAX_VECTORS) else {
        if demand.over_rows > 0 && demand.is_one_block() {
            return Err("sums over rows of so many columns need partials".to_owned());
        }
        let prefetch = Prefetch::default();
        return Ok((Template::RowAndColumnReduction(prefetch), looped_rows()));
    };
    let elements = demand.prefetchable.clone();
    let scalars = match elements.is_empty() {
        true => vec![],
        false => demand.prefetchable_scalars(),
    };
    let block = match demand.is_one_block() {
        true => REDUCTION_THREADS,
        false => BLOCK_THREADS,
    };
    let template = Template::RowAndColumnReduction(Prefetch { elements, scalars });
    Ok((template, tile(threads, vectors, block, false)))
}

/// Rows grid-stride, of so many loads that a row's own are enough in flight: registers for the next
/// row's would leave fewer warps. None where whole rows do not fit in registers.
fn row_and_column_reduction_of_many_loads(demand: &Demand<'_>) -> Option<(Template, Tile)> {
    let row_vectors = row_vectors(demand)?;
    let threads = narrowest(row_vectors);
    let threads = std::iter::successors(Some(threads), |threads| Some(2 * threads));
    let mut fitting = threads
        .take_while(|threads| *threads <= BLOCK_THREADS)
        .map(|threads| (threads, row_vectors.div_ceil(threads.into()) as u32))
        .filter(|&(_, vectors)| {
            let registers = registers_of_many_loads(demand, vectors);
            vectors <= MAX_VECTORS && registers <= MANY_LOADS_REGISTERS
        });
    let (threads, vectors) = fitting.next().filter(|_| !demand.is_one_block())?;
    let template = Template::RowAndColumnReduction(Prefetch::default());
    Some((template, tile(threads, vectors, BLOCK_THREADS, false)))
}

/// Registers of a thread for the elements of a row that is not prefetched.
fn registers_of_many_loads(demand: &Demand<'_>, vectors: u32) -> u32 {
    let shared = demand.over_rows + demand.row_invariant_loads.len() as u32;
    4 * vectors * (demand.resident_registers() + shared)
}

/// Blocks that an SM is to have of rows that are not prefetched.
fn blocks_of_many_loads(demand: &Demand<'_>, vectors: u32) -> u32 {
    let registers = registers_of_many_loads(demand, vectors);
    let is_small = registers <= MANY_LOADS_REGISTERS_OF_3_BLOCKS;
    match is_small && vectors < MAX_VECTORS {
        true => 3,
        false => 2,
    }
}

/// Tiles of columns.
fn column_reduction(demand: &Demand<'_>) -> (Template, Tile) {
    let (max_threads, block) = match demand.is_one_block() {
        true => (ONE_BLOCK_COLUMN_THREADS, REDUCTION_THREADS),
        false => (COLUMN_REDUCTION_THREADS, BLOCK_THREADS),
    };
    let threads = narrowed(demand, max_threads);
    (Template::ColumnReduction, tile(threads, 1, block, false))
}

/// Rectangles, or tiles of long rows.
fn full_reduction(demand: &Demand<'_>) -> (Template, Tile) {
    let of = Template::FullReduction;
    if demand.nest.cross_block == CrossBlock::OneBlock {
        let threads = narrowed(demand, 1024);
        let tile = tile(threads, 1, REDUCTION_THREADS, true);
        return (of(FullReduction::Rectangle), tile);
    }
    if has_long_rows(demand) {
        let form = match demand.has_elements() {
            true => FullReduction::ColumnTiles,
            false => FullReduction::Rectangle,
        };
        let vectors = tile_vectors(demand, COLUMN_TILE_VECTORS);
        let tile = tile(COLUMN_TILE_THREADS, vectors, BLOCK_THREADS, true);
        return (of(form), tile);
    }
    let threads = narrowed(demand, BLOCK_THREADS);
    let tile = tile(threads, 1, BLOCK_THREADS, true);
    (of(FullReduction::Rectangle), tile)
}

/// A tile of `threads_per_row` threads with as many row groups as fit a block of `block_threads`.
fn tile(threads_per_row: u32, vectors: u32, block_threads: u32, is_looped: bool) -> Tile {
    Tile {
        threads_per_row,
        row_groups: (block_threads / threads_per_row).max(1),
        vectors,
        is_looped,
    }
}

/// The tile of rows that do not fit in registers.
fn looped_rows() -> Tile {
    tile(LOOPED_THREADS, LOOPED_VECTORS, LOOPED_THREADS, true)
}

/// float4 of the longest rows, if they are bounded.
fn row_vectors(demand: &Demand<'_>) -> Option<u64> {
    let columns = demand.bounds.columns;
    columns.map(|columns| columns.div_ceil(4).max(1))
}

/// Rows are too long for one row group, or may be.
fn has_long_rows(demand: &Demand<'_>) -> bool {
    demand.is_rank_free()
        || row_vectors(demand).is_none_or(|vectors| vectors > MAX_VECTORS_OF_SHORT_ROWS)
}

/// Rows that stay rows would leave half of a pointwise block idle.
fn has_rows_of_half_a_block(demand: &Demand<'_>) -> bool {
    let is_short = |vectors| vectors <= u64::from(POINTWISE_THREADS / 2);
    demand.bounds.keeps_rows && row_vectors(demand).is_some_and(is_short)
}

/// float4 of a thread for tiles of long rows: the largest power of two whose loads fit in
/// registers.
fn tile_vectors(demand: &Demand<'_>, max: u32) -> u32 {
    let loads = demand.load_registers();
    let fits = |vectors: &u32| *vectors <= max && 4 * vectors * loads <= TILE_REGISTERS;
    [4, 2].into_iter().find(fits).unwrap_or(1)
}

/// The fewest threads that hold a whole row in registers, from `min_threads` on, and their vectors,
/// `max_vectors` at most.
fn whole_rows(
    demand: &Demand<'_>,
    min_threads: fn(u64) -> u32,
    max_vectors: u32,
) -> Option<(u32, u32)> {
    let row_vectors = row_vectors(demand)?;
    let loads = demand.row_invariant_loads.len() + demand.prefetchable.len();
    let of_column = demand.resident_registers() + demand.over_rows + loads as u32;
    let double = |threads: &u32| (*threads < 1024).then_some(2 * threads);
    let threads = std::iter::successors(Some(min_threads(row_vectors)), double);
    let mut fitting = threads.filter_map(|threads| {
        let vectors = u32::try_from(row_vectors.div_ceil(u64::from(threads))).ok()?;
        let mut limits = ELEMENT_REGISTERS.iter();
        let (_, registers) = limits.find(|(most, _)| threads <= *most)?;
        let needed = vectors.checked_mul(4)?.checked_mul(of_column.max(1))?;
        let fits = needed <= *registers && (vectors <= max_vectors || threads == 1024);
        // The last resort: one float4 a thread.
        (fits || (vectors == 1 && threads <= 256)).then_some((threads, vectors))
    });
    fitting.next()
}

/// Up to a warp, with a float4 each.
fn widest(row_vectors: u64) -> u32 {
    row_vectors.next_power_of_two().min(32) as u32
}

/// Up to a warp, with several float4 each, but a cache line at least.
fn narrowest(row_vectors: u64) -> u32 {
    let several = row_vectors.div_ceil(u64::from(MAX_VECTORS));
    (several.next_power_of_two() as u32)
        .clamp(LINE_THREADS, 32)
        .min(widest(row_vectors))
}

/// Up to `max` threads, fewer for short rows.
fn narrowed(demand: &Demand<'_>, max: u32) -> u32 {
    let row_vectors = row_vectors(demand).unwrap_or(u64::MAX / 2);
    row_vectors.min(u64::from(max)).next_power_of_two() as u32
}

impl Schedule {
    /// The alignment on which the text depends. Measured: reductions across blocks that know of
    /// float4 alone are 3 to 6 % slower, with full tiles faster; row reductions are up to 4 %
    /// slower without bounds checks, pointwise kernels of dense tensors are not (those with
    /// dependent launches have other tiles). The cause is not known.
    pub(super) fn useful_alignment(&self, known: Alignment) -> Alignment {
        let is_dense = self.is_single_row() && !self.hints.overlap;
        match known {
            _ if !self.has_elements => Alignment::Unknown,
            Alignment::Float4 if self.is_cross_block() => Alignment::Unknown,
            Alignment::FullTiles
                if !self.is_cross_block() && !is_dense && self.rows_per_warp() == 1 =>
            {
                Alignment::Float4
            }
            known => known,
        }
    }

    /// Number of blocks that an SM must have registers for: without this limit, the compiler uses
    /// registers that other blocks need. 1 where the limit does not matter.
    fn min_blocks_per_sm(&self, demand: &Demand<'_>) -> u32 {
        let operands = demand.nest.operands.len() as u32;
        let counts_columns =
            self.tile.vectors > MAX_VECTORS && demand.nest.values.contains(&Value::Column);
        let column_index = if counts_columns {
            COLUMN_INDEX_REGISTERS
        } else {
            0
        };
        let resident = demand.resident_registers();
        let hoisted = self.hoisted.len() as u32;
        // Registers of each column, other registers, and threads an SM at most.
        let (of_column, other, sm_threads) = match &self.template {
            Template::Pointwise { .. } => (
                2 * demand.load_registers(),
                POINTWISE_BASE_REGISTERS + OPERAND_REGISTERS * operands.saturating_sub(2),
                TARGET_SM_THREADS,
            ),
            Template::RowReduction { rows_per_warp } if *rows_per_warp > 1 => (
                rows_per_warp * demand.live_registers() + hoisted,
                BASE_REGISTERS,
                SM_BLOCKS * self.tile.threads(),
            ),
            Template::RowAndColumnReduction(prefetch) => {
                let has_many_loads = demand.prefetchable.len() >= MANY_LOADS;
                if has_many_loads && prefetch.elements.is_empty() && !self.tile.is_looped {
                    return blocks_of_many_loads(demand, self.tile.vectors);
                }
                let loads = prefetch.elements.len() as u32 + hoisted;
                if loads == 0 || self.tile.threads() > BLOCK_THREADS {
                    return 1;
                }
                (
                    resident + demand.over_rows + loads,
                    BASE_REGISTERS,
                    PREFETCH_SM_BLOCKS * BLOCK_THREADS,
                )
            }
            Template::FullReduction(FullReduction::RowPerGroup { deferred })
                if !self.tile.is_looped =>
            {
                let sm_threads = match deferred {
                    Some(_) => SM_THREADS,
                    None => TARGET_SM_THREADS,
                };
                (resident, BASE_REGISTERS + column_index, sm_threads)
            }
            Template::FullReduction(FullReduction::ColumnTiles) => (
                demand.load_registers(),
                BASE_REGISTERS,
                2 * COLUMN_TILE_THREADS,
            ),
            _ => return 1,
        };
        let registers = 4 * self.tile.vectors * of_column + other;
        let threads = self.tile.threads();
        let blocks = SM_REGISTERS / threads / registers;
        blocks.clamp(1, sm_threads / threads)
    }
}
