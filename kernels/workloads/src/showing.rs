//! Inputs that show mistakes which generated ones hide.
//!
//! Normal numbers within 3.5 deviations overflow nothing, leave tails and small variances alone,
//! and give each element of a long sum as little weight as any other. So each problem is judged on
//! further inputs, too: rows of several kinds, and sums whose first, last and block-bounding terms
//! carry half of the result. What each kind is for:
//!
//! | kind | shows |
//! |---|---|
//! | times 50 | overflow where no maximum is subtracted, tails of functions |
//! | by 300 | an epsilon that is missing, wrong, or in the wrong place |
//! | plus 3 | cancellation, a mean that is not subtracted |
//! | edges times 30 | a first, last or block-bounding term that is left out |
//! | both ends large | a row whose greatest element is its first or its last |
//! | tiny | denormals |
//! | -3 and less, -18 and less | lower tails of functions, which other elements of a row hide |

use sweeper_program::inputs::Stream;

/// Number of kinds of rows, plain ones among them.
pub(crate) const KINDS: usize = 9;

/// Distances at which kernels divide their work: vectors, warps, blocks, tiles.
const BLOCKS: [usize; 3] = [32, 128, 1024];

/// Most places of a row that bound blocks.
const MOST_EDGES: usize = 12;

/// Places that a faulty bound leaves out or counts twice: the first and the last, those beside
/// multiples of [`BLOCKS`], and a few of chance.
pub(crate) fn edges(len: usize, stream: &Stream) -> Vec<usize> {
    let mut bounds: Vec<usize> = BLOCKS
        .iter()
        .flat_map(|&block| (1..=len / block).map(move |at| at * block))
        .filter(|&bound| bound < len)
        .flat_map(|bound| [bound - 1, bound])
        .collect();
    bounds.sort_unstable();
    bounds.dedup();
    let step = bounds.len().div_ceil(MOST_EDGES).max(1);
    let mut edges: Vec<usize> = bounds.into_iter().step_by(step).collect();
    edges.extend([0, len - 1]);
    let places = stream.integers(3, 0, len as i64 - 1);
    edges.extend(places.into_iter().map(|at| at as usize));
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Makes rows of all kinds from plain ones; `kind` tells that of a row.
pub(crate) fn make_kinds(
    values: &mut [f32],
    columns: usize,
    kind: impl Fn(usize) -> usize,
    stream: &Stream,
) {
    let edges = edges(columns, stream);
    for (row, values) in values.chunks_exact_mut(columns).enumerate() {
        match kind(row) % KINDS {
            1 => values.iter_mut().for_each(|x| *x *= 50.0),
            2 => values.iter_mut().for_each(|x| *x /= 300.0),
            3 => values.iter_mut().for_each(|x| *x += 3.0),
            4 => edges.iter().for_each(|&at| values[at] *= 30.0),
            5 => {
                values[0] = 15.0;
                // Beyond what an exponential relative to the greatest of the others can take.
                values[columns - 1] = 130.0;
            }
            6 => values.iter_mut().for_each(|x| *x *= 1e-39),
            7 => values.iter_mut().for_each(|x| *x = -3.0 - 2.0 * x.abs()),
            8 => values.iter_mut().for_each(|x| *x = -18.0 - 2.0 * x.abs()),
            _ => {}
        }
    }
}

/// Makes rows of all kinds along the last axis of a tensor, or of parts of it where that is its
/// only one.
pub fn make_rows(values: &mut [f32], shape: &[usize], stream: &Stream) {
    match shape {
        [] => {}
        [len] => make_kinds(values, (len / KINDS).max(1), |row| row, stream),
        [outer @ .., columns] => {
            let rows = outer.last().copied().unwrap_or(1);
            let batch = outer.iter().product::<usize>() / rows;
            let kind = |row: usize| kind_of_row(row, batch, rows);
            make_kinds(values, *columns, kind, stream);
        }
    }
}

/// The kind of a row of a tensor (batch, sequence, ..): one for all rows with an index along an
/// axis that is long enough, so that kinds do not hide each other there.
pub(crate) fn kind_of_row(row: usize, batch: usize, sequence: usize) -> usize {
    match (sequence >= KINDS, batch >= KINDS) {
        (true, _) => row % sequence,
        (false, true) => row / sequence,
        _ => row,
    }
}
