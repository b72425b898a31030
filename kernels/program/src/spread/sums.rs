//! Sums over all elements of a tensor and over each slice along each axis, in an order that does
//! not depend on the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::is_sliced;

/// Pieces that are summed in parallel, at most: each has a sum for each slice.
const PIECES: usize = 32;

/// Elements of a piece, at least.
const PIECE: usize = 1 << 14;

/// Elements of a tile at most, unless the last axis alone has more.
const TILE: usize = 1 << 12;

/// As many totals are added to in turns: each addition waits for the one before it.
const LANES: usize = 8;

/// The number of axes before the tile: the last axes together, each place in which has a sum of its
/// own. The sums over slices along them follow from those: short axes cost no more than long ones.
fn outer_axes(shape: &[usize]) -> usize {
    let mut elements = 1;
    let mut axes = shape.iter().rev();
    let inner = axes.position(|extent| {
        let is_last = elements == 1;
        elements *= extent;
        elements > TILE && !is_last
    });
    inner.map_or(0, |inner| shape.len() - inner)
}

/// The number of places of a tile that have sums: none where no axis in it is sliced. A long row
/// that is nothing but summed takes no memory.
fn places_of(shape: &[usize], outer: usize) -> usize {
    let elements = shape.iter().product();
    let inner = &shape[outer..];
    let has_slices = inner.iter().any(|&extent| is_sliced(extent, elements));
    if has_slices {
        inner.iter().product()
    } else {
        0
    }
}

/// Adds the numbers of some columns of a tile to those of its places, if it has any; their totals.
fn add_columns<const N: usize>(
    places: &mut [Vec<f64>; N],
    columns: Range<usize>,
    numbers: impl Fn(usize) -> [f64; N],
) -> [f64; N] {
    let mut totals = [[0.0; LANES]; N];
    let mut places = places
        .each_mut()
        .map(|places| places.get_mut(columns.clone()).unwrap_or_default());
    let columns_of_lanes = columns.len() / LANES * LANES;
    for column in (0..columns_of_lanes).step_by(LANES) {
        let mut held = [[0.0; LANES]; N];
        for lane in 0..LANES {
            let numbers = numbers(columns.start + column + lane);
            for (held, number) in held.iter_mut().zip(numbers) {
                held[lane] = number;
            }
        }
        for ((places, totals), held) in places.iter_mut().zip(&mut totals).zip(&held) {
            for (total, held) in totals.iter_mut().zip(held) {
                *total += held;
            }
            if let Some(places) = places.get_mut(column..column + LANES) {
                for (place, held) in places.iter_mut().zip(held) {
                    *place += held;
                }
            }
        }
    }
    for column in columns_of_lanes..columns.len() {
        let held = numbers(columns.start + column);
        for (at, places) in places.iter_mut().enumerate() {
            totals[at][0] += held[at];
            if let Some(place) = places.get_mut(column) {
                *place += held[at];
            }
        }
    }
    totals.map(|lanes| lanes.iter().sum())
}

/// Sums of a number that each element of a tensor has.
#[derive(Clone, Debug, PartialEq)]
pub struct SliceSums {
    /// Number of elements.
    pub elements: usize,
    /// Over all of them.
    pub whole: f64,
    /// Over the slices along each axis that [`is_sliced`], in order.
    pub axes: Vec<Vec<f64>>,
}

impl SliceSums {
    /// Of a tensor of this shape without any elements added yet.
    pub fn zero(shape: &[usize]) -> Self {
        let elements = shape.iter().product();
        let sliced = shape.iter().filter(|extent| is_sliced(**extent, elements));
        SliceSums {
            elements,
            whole: 0.0,
            axes: sliced.map(|&extent| vec![0.0; extent]).collect(),
        }
    }

    /// The sums of `number`, a function of an element's place in row-major order.
    pub fn from_elements(shape: &[usize], number: impl Fn(usize) -> f64 + Sync) -> Self {
        let [sums] = SliceSums::of_several(shape, |at| [number(at)]);
        sums
    }

    /// The sums of several numbers that each element has, in one pass.
    pub fn of_several<const N: usize>(
        shape: &[usize],
        numbers: impl Fn(usize) -> [f64; N] + Sync,
    ) -> [Self; N] {
        let mut sums: [Self; N] = std::array::from_fn(|_| SliceSums::zero(shape));
        let elements: usize = shape.iter().product();
        if elements == 0 {
            return sums;
        }
        let outer = outer_axes(shape);
        let tile: usize = shape[outer..].iter().product();
        let held = places_of(shape, outer);
        // A long tile is cut: a tensor may be a single row.
        let cut = tile.min(PIECE);
        let parts = tile.div_ceil(cut);
        let units = elements / tile * parts;
        let in_piece = units.div_ceil(PIECES).max(PIECE.div_ceil(cut));
        let pieces: Vec<([Self; N], [Vec<f64>; N])> = (0..units.div_ceil(in_piece))
            .into_par_iter()
            .map(|piece| {
                let mut sums = std::array::from_fn(|_| SliceSums::zero(shape));
                let mut places = std::array::from_fn(|_| vec![0.0; held]);
                for unit in piece * in_piece..((piece + 1) * in_piece).min(units) {
                    let first = unit % parts * cut;
                    let columns = first..(first + cut).min(tile);
                    let start = unit / parts * tile;
                    let totals = add_columns(&mut places, columns, |at| numbers(start + at));
                    for (sums, total) in sums.iter_mut().zip(totals) {
                        sums.whole += total;
                        sums.add_to_slices(shape, 0..outer, unit / parts, total);
                    }
                }
                (sums, places)
            })
            .collect();
        for (at, sums) in sums.iter_mut().enumerate() {
            let mut places = vec![0.0; held];
            for (piece, own) in &pieces {
                sums.add(&piece[at]);
                places
                    .iter_mut()
                    .zip(&own[at])
                    .for_each(|(sum, own)| *sum += own);
            }
            for (place, &total) in places.iter().enumerate() {
                sums.add_to_slices(shape, outer..shape.len(), place, total);
            }
        }
        sums
    }

    /// Adds a number to the slices along some axes in which an index of these axes lies.
    fn add_to_slices(
        &mut self,
        shape: &[usize],
        axes: Range<usize>,
        mut index: usize,
        number: f64,
    ) {
        let is_sliced = |extent: &&usize| is_sliced(**extent, self.elements);
        let mut sums = self.axes[..shape[..axes.end].iter().filter(is_sliced).count()].iter_mut();
        for extent in shape[axes].iter().rev() {
            if is_sliced(&extent)
                && let Some(sums) = sums.next_back()
            {
                sums[index % extent] += number;
            }
            index /= extent;
        }
    }

    /// Sums of the same tensor, taken from the front of `rest`; none if there are too few.
    pub(super) fn filled_from(&self, rest: &mut &[f64]) -> Option<Self> {
        let whole = *rest.split_off_first()?;
        let axes = self
            .axes
            .iter()
            .map(|sums| Some(rest.split_off(..sums.len())?.to_vec()));
        Some(SliceSums {
            whole,
            axes: axes.collect::<Option<_>>()?,
            elements: self.elements,
        })
    }

    /// Of sums of squares: the root mean squares of the whole, then of the slices along each axis.
    pub fn root_mean_squares(&self) -> Vec<f64> {
        let of = |sum: f64, elements: usize| (sum / elements.max(1) as f64).sqrt();
        let mut roots = vec![of(self.whole, self.elements)];
        for sums in &self.axes {
            let in_slice = self.elements / sums.len().max(1);
            roots.extend(sums.iter().map(|&sum| of(sum, in_slice)));
        }
        roots
    }

    /// Adds the sums over other elements.
    pub fn add(&mut self, other: &SliceSums) {
        self.whole += other.whole;
        for (sums, others) in self.axes.iter_mut().zip(&other.axes) {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum += other;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shapes whose tile is some axes, all of them, or a long one that is cut.
    const SHAPES: [&[usize]; 9] = [
        &[],
        &[1],
        &[3, 5, 7],
        &[2, 40_000],
        &[40_000, 1],
        &[33, 41, 6, 6],
        &[9, 1, 4100, 2],
        &[3, 70_000],
        &[200_000],
    ];

    /// Each piece that is summed has a sum for each place: a long row had as many as elements.
    #[test]
    fn a_row_that_is_only_summed_has_no_places() {
        for shape in [&[1 << 30][..], &[4096, 393_216], &[1 << 20, 1]] {
            assert_eq!(places_of(shape, outer_axes(shape)), 0, "{shape:?}");
        }
        let shape = [1000, 200, 6, 6];
        assert_eq!(places_of(&shape, outer_axes(&shape)), 36);
    }

    /// A tile is as many of the last axes as have no more elements than it holds.
    #[test]
    fn a_tile_is_filled_by_whole_axes() {
        assert_eq!(outer_axes(&[3, 64, 64]), 1);
        assert_eq!(outer_axes(&[3, 64, 65]), 2);
        assert_eq!(outer_axes(&[9, 1, 4100, 2]), 3);
        assert_eq!(outer_axes(&[3, 5, 7]), 0);
    }

    #[test]
    fn roots_are_of_the_mean_of_each_slice() {
        let sums = SliceSums {
            elements: 8,
            whole: 72.0,
            axes: vec![vec![4.0, 64.0], vec![16.0, 36.0, 0.0, 1.0]],
        };
        let half = 0.5_f64.sqrt();
        let expected = [3.0, 1.0, 4.0, 8.0_f64.sqrt(), 18.0_f64.sqrt(), 0.0, half];
        assert_eq!(sums.root_mean_squares(), expected);
        let empty = SliceSums {
            elements: 0,
            whole: 0.0,
            axes: vec![vec![]],
        };
        assert_eq!(empty.root_mean_squares(), [0.0]);
    }

    #[test]
    fn every_slice_has_the_sum_of_its_elements() {
        for shape in SHAPES {
            let elements: usize = shape.iter().product();
            let numbers = |at: usize| [(at % 101) as f64, (at % 7) as f64];
            let found = SliceSums::of_several(shape, numbers);
            for (number, found) in found.iter().enumerate() {
                let mut expected = SliceSums::zero(shape);
                for at in 0..elements {
                    let value = numbers(at)[number];
                    expected.whole += value;
                    let mut inner = elements;
                    let mut axes = expected.axes.iter_mut();
                    for &extent in shape {
                        inner /= extent;
                        if is_sliced(extent, elements)
                            && let Some(sums) = axes.next()
                        {
                            sums[at / inner % extent] += value;
                        }
                    }
                }
                // Whole numbers are added without rounding in any order.
                assert_eq!(*found, expected, "{shape:?}");
            }
        }
    }
}
