//! How a row is shared out to lanes.

use crate::nest::{Bounds, Fill, Nest, Parts, Step, Value, ValueId};
use crate::tensor::Dtype;

use super::super::stages::Stages;
use super::THREADS;

/// Threads of a block where groups have one row each and lanes several quads of it, and quads of a lane then, at most: many
/// small blocks wait for memory at the same time. But of launches that may overlap those before no more than one block
/// begins in 1.2 ns, so that theirs should not be smaller. Of others one begins in 0.7 ns.
pub(super) const ONE_ROW_THREADS: u32 = 128;
const ONE_ROW_CHUNKS: u32 = 3;

/// Threads of a block that takes a piece of a long row, and quads of each: many small blocks, as many as registers
/// allow, begin and end evenly. Of dense tensors a quad, if blocks begin fast enough, or its elements are moved one by one.
const FLAT_THREADS: u32 = 128;
const FLAT_CHUNKS: u32 = 2;
const DENSE_CHUNKS: u32 = 1;

/// The same of a block that adds up pieces, one after the other.
pub(super) const TOTAL_THREADS: u32 = 512;
const TOTAL_CHUNKS: u32 = 4;

/// Registers of such threads that may hold what they load: of 128 in all, for addresses and results, too.
const FLAT_REGISTERS: u32 = 80;

/// Registers of an element that is looked up by an index of its column: itself, and 64 bits each for its address and
/// the index times its step.
const LOOKED_UP_REGISTERS: u32 = 5;

/// Registers of a thread that may hold cells, in blocks of up to 256, 512 and 1024 threads.
const CELL_REGISTERS: [(u32, u32); 3] = [(256, 80), (512, 56), (1024, 24)];

/// Quads of a lane, where more lanes can share a row instead: enough loads at once, and little text.
pub(super) const MOST_CHUNKS: u32 = 4;

/// Lanes whose quads are a line of the cache.
const LINE_LANES: u32 = 8;

/// The same where groups have one row each and blocks leave parts of totals: up to 768 columns are one warp's.
const TOTAL_ROW_CHUNKS: u32 = 6;

/// How many lanes a row has, and what of it each.
pub(super) struct Lanes {
    /// Lanes of a group.
    pub width: u32,
    /// Times that a lane holds four columns.
    pub chunks: u32,
    /// Whether a row may have more columns than a group holds at once.
    pub is_looped: bool,
    /// Whether rows are so long that a block has a piece of one, and nothing is reduced.
    pub is_flat: bool,
    /// Whether a group has one row, all of it, or as much as it can hold at once.
    pub has_one_row: bool,
}

impl Lanes {
    /// Decides for a nest whose groups have one row each though its blocks leave parts, or not; that loads so many values ahead
    /// or once for all rows; for launches that may overlap those before or don't.
    ///
    /// # Errors
    /// A sentence where reductions over rows have no place.
    pub(super) fn new(
        nest: &Nest,
        stages: &Stages,
        bounds: Bounds,
        has_few_rows: bool,
        loads: usize,
        overlaps: bool,
    ) -> Result<Lanes, String> {
        let over_rows = stages.over_rows(nest).len() as u32;
        let over_all = !stages.over_all(nest).is_empty();
        let quads = bounds.columns.map(|most| most.div_ceil(4).max(1));
        let is_one = nest.parts == Parts::One;
        let lanes = |width, chunks| Lanes {
            width,
            chunks,
            is_looped: false,
            is_flat: false,
            has_one_row: false,
        };
        let looped = |width, chunks| Lanes {
            is_looped: true,
            ..lanes(width, chunks)
        };
        let has_last = over_rows > 0 || over_all;
        let held = |least: fn(u64) -> u32, most| {
            let needed = cells(nest, stages) + over_rows + loads as u32;
            quads.and_then(|quads| in_registers(quads, needed, least(quads), most))
        };
        let is_long = is_flat(nest) || quads.is_none_or(|quads| quads > 256);
        if !has_last && (stages.reduces_columns() || !is_long) {
            let held = held(widest, ONE_ROW_CHUNKS).map(|(width, chunks)| lanes(width, chunks));
            let long = || stages.reduces_columns().then(|| looped(512, 2));
            if let Some(lanes) = held.or_else(long) {
                return Ok(Lanes {
                    has_one_row: true,
                    ..lanes
                });
            }
        } else if stages.reduces_columns() || (over_rows > 0 && over_all) {
            let most = match has_few_rows {
                true => TOTAL_ROW_CHUNKS,
                false => MOST_CHUNKS,
            };
            let all = match held(narrowest, most) {
                Some((width, chunks)) => lanes(width, chunks),
                None if over_rows > 0 && is_one => {
                    return Err("sums over rows of so many columns need parts".to_owned());
                }
                None => looped(512, 2),
            };
            return Ok(Lanes {
                has_one_row: has_few_rows,
                ..all
            });
        }
        let is_slow = overlaps && bounds.fill >= Fill::Quads;
        let flat_most = match bounds.is_one_row && !is_slow {
            true => DENSE_CHUNKS,
            false => FLAT_CHUNKS,
        };
        Ok(if over_rows > 0 {
            lanes(narrowed(quads, if is_one { 8 } else { 32 }), 1)
        } else if over_all && is_one {
            looped(narrowed(quads, 1024), 1)
        } else if over_all && is_long {
            looped(TOTAL_THREADS, flat_chunks(nest, stages, TOTAL_CHUNKS))
        } else if over_all {
            looped(narrowed(quads, THREADS), 1)
        } else {
            Lanes {
                is_flat: true,
                ..lanes(FLAT_THREADS, flat_chunks(nest, stages, flat_most))
            }
        })
    }
}

/// Registers that a lane needs for each column: for what is loaded or kept.
pub(super) fn cells(nest: &Nest, stages: &Stages) -> u32 {
    let registers = |dtype: Dtype| if dtype == Dtype::I64 { 2 } else { 1 };
    let mut held: Vec<_> = stages
        .passes
        .iter()
        .flat_map(|pass| pass.kept.clone())
        .collect();
    let values = stages.passes.iter().flat_map(|pass| &pass.values);
    let is_load =
        |at: usize| matches!(nest.values[at], Value::Load { .. }) && stages.varies[at].rows;
    held.extend(values.copied().filter(|id| is_load(id.0)));
    held.sort();
    held.dedup();
    held.iter().map(|id| registers(stages.dtypes[id.0])).sum()
}

/// Quads of a thread that takes pieces of long rows: as many as registers hold the loads of, in a power of two.
fn flat_chunks(nest: &Nest, stages: &Stages, most: u32) -> u32 {
    let held = loaded(nest, stages);
    let fits = |chunks: &u32| *chunks <= most && 4 * chunks * held <= FLAT_REGISTERS;
    [4, 2].into_iter().find(fits).unwrap_or(1)
}

/// Registers that a thread needs for each column to hold what it loads.
pub(super) fn loaded(nest: &Nest, stages: &Stages) -> u32 {
    let mut loads: Vec<ValueId> = stages
        .passes
        .iter()
        .flat_map(|pass| pass.values.clone())
        .collect();
    loads.sort();
    loads.dedup();
    let registers = |id: &ValueId| match &nest.values[id.0] {
        Value::Load {
            index: Some(at), ..
        } if stages.varies[at.0].columns => LOOKED_UP_REGISTERS,
        Value::Load { .. } if stages.dtypes[id.0] == Dtype::I64 => 2,
        Value::Load { .. } => 1,
        _ => 0,
    };
    loads.iter().map(registers).sum()
}

/// Lanes for rows of so many quads, of one warp: a quad each, if there are as many.
fn widest(quads: u64) -> u32 {
    quads.next_power_of_two().min(32) as u32
}

/// The same, a cache line at least, where lanes have several quads.
fn narrowest(quads: u64) -> u32 {
    let several = quads.div_ceil(u64::from(MOST_CHUNKS));
    (several.next_power_of_two() as u32)
        .clamp(LINE_LANES, 32)
        .min(widest(quads))
}

/// The width of a group whose lanes hold rows of so many quads of columns, with `cells` registers a column: `least` or
/// more; and how many quads a lane has, `most` at most.
fn in_registers(quads: u64, cells: u32, least: u32, most: u32) -> Option<(u32, u32)> {
    let widths = std::iter::successors(Some(least), |width| (*width < 1024).then_some(2 * width));
    let mut fitting = widths.filter_map(|width| {
        let chunks = u32::try_from(quads.div_ceil(u64::from(width))).ok()?;
        let registers = CELL_REGISTERS
            .iter()
            .find(|(threads, _)| width <= *threads)?
            .1;
        let needed = chunks.checked_mul(4)?.checked_mul(cells.max(1))?;
        let fits = needed <= registers && (chunks <= most || width == 1024);
        // The last resort: one quad a lane.
        (fits || (chunks == 1 && width <= 256)).then_some((width, chunks))
    });
    fitting.next()
}

/// A width up to `most` that is not wasted on narrow rows.
fn narrowed(quads: Option<u64>, most: u32) -> u32 {
    let quads = quads.unwrap_or(u64::MAX / 2).min(u64::from(most));
    quads.next_power_of_two() as u32
}

/// Whether every operand has a step in every dimension or in none: where such tensors are dense, rows do
/// not matter.
fn is_flat(nest: &Nest) -> bool {
    nest.operands.iter().all(|operand| {
        let zeros = operand.rows.iter().filter(|step| **step == Step::Zero);
        let zeros = zeros.count() + usize::from(operand.columns == Step::Zero);
        zeros == 0 && operand.columns == Step::One || zeros == operand.rows.len() + 1
    })
}
