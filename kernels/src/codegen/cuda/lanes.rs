//! How a row is shared out to lanes.

use crate::nest::{Bounds, Fill, Nest, Parts, Step, Store, Value, ValueId};
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

/// Rows that a group of one warp has side by side, at most; registers of a lane for their cells, and for those and what all
/// rows share: one warp loads as much at once as several that have a row each, and exchanges their sums side by side. It is
/// a block of its own, of which a launch that overlaps the one before would begin too few.
const MOST_ROWS: u32 = 4;
const ABREAST_REGISTERS: u32 = 32;
const ABREAST_SHARED_REGISTERS: u32 = 48;

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
    /// Whether a group has one row, all of it, or as much as it can hold at once; or several at once.
    pub has_one_row: bool,
    /// Rows that a group has side by side.
    pub rows: u32,
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
            rows: 1,
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
            let may_be = !overlaps && bounds.has_many_rows && may_be_abreast(nest, stages);
            let abreast = |quads| abreast_of(quads, live_cells(nest, stages), loads as u32);
            if let Some((rows, chunks)) = quads.filter(|_| may_be).and_then(abreast) {
                return Ok(Lanes {
                    has_one_row: true,
                    rows,
                    ..lanes(32, chunks)
                });
            }
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
    let kept = stages.passes.iter().flat_map(|pass| pass.kept.clone());
    registers(stages, kept.chain(loads_of_rows(nest, stages)).collect())
}

/// The same, if what later passes don't need makes room for what they do: for all loads, or for what is kept from a pass on.
pub(super) fn live_cells(nest: &Nest, stages: &Stages) -> u32 {
    let live = (1..stages.passes.len()).map(|at| {
        let (before, after) = stages.passes.split_at(at);
        let is_fetched = |id: &ValueId| after.iter().any(|pass| pass.fetched.contains(id));
        let kept = before.iter().flat_map(|pass| pass.kept.clone());
        registers(stages, kept.filter(is_fetched).collect())
    });
    let loaded = registers(stages, loads_of_rows(nest, stages));
    live.fold(loaded, u32::max)
}

/// What passes load for each row.
fn loads_of_rows(nest: &Nest, stages: &Stages) -> Vec<ValueId> {
    let values = stages.passes.iter().flat_map(|pass| &pass.values);
    let is_load =
        |id: &ValueId| matches!(nest.values[id.0], Value::Load { .. }) && stages.varies[id.0].rows;
    values.copied().filter(is_load).collect()
}

/// Registers of one of each of these values.
fn registers(stages: &Stages, mut ids: Vec<ValueId>) -> u32 {
    ids.sort();
    ids.dedup();
    let of_one = |id: &ValueId| match stages.dtypes[id.0] {
        Dtype::I64 => 2,
        _ => 1,
    };
    ids.iter().map(of_one).sum()
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

/// Whether a group may have several rows side by side: something is reduced over their columns, and each writes to a place
/// of its own.
fn may_be_abreast(nest: &Nest, stages: &Stages) -> bool {
    let has_rows = |store: &Store| {
        let steps = &nest.operands[store.operand.0].rows;
        steps.iter().any(|step| *step != Step::Zero)
    };
    stages.reduces_columns() && nest.stores.iter().all(has_rows)
}

/// Rows of so many quads that a warp has side by side, with `live` registers for each column of one and `shared` for each
/// of all; none if it has fewer than two. And quads of a lane.
fn abreast_of(quads: u64, live: u32, shared: u32) -> Option<(u32, u32)> {
    let chunks = u32::try_from(quads.div_ceil(32)).ok()?;
    let fits = |rows: &u32| {
        let own = 4 * u64::from(chunks) * u64::from(rows * live.max(1));
        let all = own + 4 * u64::from(chunks) * u64::from(shared);
        own <= ABREAST_REGISTERS.into() && all <= ABREAST_SHARED_REGISTERS.into()
    };
    let rows = std::iter::successors(Some(MOST_ROWS), |rows| Some(rows / 2));
    let rows = rows.take_while(|rows| *rows > 1).find(fits)?;
    (quads >= 32).then_some((rows, chunks))
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
