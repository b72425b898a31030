//! How a row is shared out to lanes.

use crate::nest::Fill;

use super::THREADS;
use super::work::Work;

/// Threads of a block where groups have one row each and lanes several quads of it, and quads of a lane then, at most: many
/// small blocks wait for memory at the same time. But of launches that may overlap those before no more than one block
/// begins in 1.2 ns, so that theirs should not be smaller. Of others one begins in 0.7 ns.
const ONE_ROW_THREADS: u32 = 128;
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

/// Registers of a thread that may hold cells, in blocks of up to 256, 512 and 1024 threads.
const CELL_REGISTERS: [(u32, u32); 3] = [(256, 80), (512, 56), (1024, 24)];

/// Quads of a lane, where more lanes can share a row instead: enough loads at once, and little text.
pub(super) const MOST_CHUNKS: u32 = 4;

/// Lanes whose quads are a line of the cache.
const LINE_LANES: u32 = 8;

/// The same where groups have one row each and blocks leave parts of totals: up to 768 columns are one warp's.
const TOTAL_ROW_CHUNKS: u32 = 6;

/// The same where the first warp of a block computes what is known late: then warps may share a row for no more than one barrier.
/// What is asked for at once is a narrow window of memory, for which little of what others left in the cache has to leave.
const LATE_CHUNKS: u32 = 3;

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
    /// Decides for a nest.
    ///
    /// # Errors
    /// A sentence where reductions over rows have no place.
    pub(super) fn new(work: &Work<'_>) -> Result<Lanes, String> {
        let alone = match !work.has_last() && (work.reduces_columns || !is_long(work)) {
            true => Lanes::of_one_row(work),
            false => None,
        };
        match alone {
            Some(lanes) => Ok(lanes),
            None if work.is_whole() && work.has_last() => Lanes::of_many_rows(work),
            None => Ok(Lanes::of_pieces(work)),
        }
    }

    fn held(width: u32, chunks: u32) -> Lanes {
        Lanes {
            width,
            chunks,
            is_looped: false,
            is_flat: false,
            has_one_row: false,
            rows: 1,
        }
    }

    fn looped(width: u32, chunks: u32) -> Lanes {
        Lanes {
            is_looped: true,
            ..Lanes::held(width, chunks)
        }
    }

    /// Lanes that hold a row, if registers do: `least` of its quads, and quads of a lane, `most` at most.
    fn holding(work: &Work<'_>, least: fn(u64) -> u32, most: u32) -> Option<Lanes> {
        let loads = work.shared_loads.len() + work.ahead.len();
        let needed = work.cells() + work.over_rows + loads as u32;
        let quads = quads(work)?;
        let (width, chunks) = in_registers(quads, needed, least(quads), most)?;
        Some(Lanes::held(width, chunks))
    }

    /// Of groups that have one row, or several side by side; none where rows are too long for it, and nothing of them is needed
    /// together.
    fn of_one_row(work: &Work<'_>) -> Option<Lanes> {
        let holding = || Lanes::holding(work, widest, ONE_ROW_CHUNKS);
        let long = || work.reduces_columns.then(|| Lanes::looped(512, 2));
        let lanes = Lanes::abreast(work).or_else(holding).or_else(long);
        lanes.map(|lanes| Lanes {
            has_one_row: true,
            ..lanes
        })
    }

    /// Of warps that have several rows side by side.
    fn abreast(work: &Work<'_>) -> Option<Lanes> {
        if !work.bounds.has_many_rows || work.overlaps || !work.may_be_abreast() {
            return None;
        }
        let (live, shared) = (work.live_cells(), work.shared_loads.len() as u32);
        let (rows, chunks) = abreast_of(quads(work)?, live, shared)?;
        Some(Lanes {
            rows,
            ..Lanes::held(32, chunks)
        })
    }

    /// Of groups that have many rows, of which something is left.
    fn of_many_rows(work: &Work<'_>) -> Result<Lanes, String> {
        let most = match work.has_few_rows {
            true if work.late.is_some() => LATE_CHUNKS,
            true => TOTAL_ROW_CHUNKS,
            false => MOST_CHUNKS,
        };
        let lanes = match Lanes::holding(work, narrowest, most) {
            Some(lanes) => lanes,
            None if work.over_rows > 0 && work.is_one() => {
                return Err("sums over rows of so many columns need parts".to_owned());
            }
            None => Lanes::looped(512, 2),
        };
        Ok(Lanes {
            has_one_row: work.has_few_rows,
            ..lanes
        })
    }

    /// Of groups that have pieces of rows.
    fn of_pieces(work: &Work<'_>) -> Lanes {
        let quads = quads(work);
        if work.over_rows > 0 {
            Lanes::held(narrowed(quads, if work.is_one() { 8 } else { 32 }), 1)
        } else if work.over_all && work.is_one() {
            Lanes::looped(narrowed(quads, 1024), 1)
        } else if work.over_all && is_long(work) {
            Lanes::looped(TOTAL_THREADS, flat_chunks(work, TOTAL_CHUNKS))
        } else if work.over_all {
            Lanes::looped(narrowed(quads, THREADS), 1)
        } else {
            let is_slow = work.overlaps && work.bounds.fill >= Fill::Quads;
            let most = match work.bounds.is_one_row && !is_slow {
                true => DENSE_CHUNKS,
                false => FLAT_CHUNKS,
            };
            Lanes {
                is_flat: true,
                ..Lanes::held(FLAT_THREADS, flat_chunks(work, most))
            }
        }
    }

    /// Threads of a block.
    pub(super) fn threads(&self, work: &Work<'_>) -> u32 {
        if work.has_last() && work.is_one() {
            512
        } else if self.is_flat || (self.is_looped && work.is_whole()) || self.rows > 1 {
            self.width
        } else if work.has_few_rows && self.chunks <= MOST_CHUNKS {
            // So many that parts are not many more than one block takes while others work.
            512
        } else if self.has_one_row && self.chunks > 1 && !work.has_few_rows {
            ONE_ROW_THREADS
        } else {
            THREADS
        }
    }
}

/// Quads of the longest rows, if they are bounded.
fn quads(work: &Work<'_>) -> Option<u64> {
    work.bounds.columns.map(|most| most.div_ceil(4).max(1))
}

/// Whether rows are too long for one group each, or may be.
fn is_long(work: &Work<'_>) -> bool {
    work.is_flat() || quads(work).is_none_or(|quads| quads > 256)
}

/// Quads of a thread that takes pieces of long rows: as many as registers hold the loads of, in a power of two.
fn flat_chunks(work: &Work<'_>, most: u32) -> u32 {
    let held = work.loaded();
    let fits = |chunks: &u32| *chunks <= most && 4 * chunks * held <= FLAT_REGISTERS;
    [4, 2].into_iter().find(fits).unwrap_or(1)
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
