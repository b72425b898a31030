//! Nested loops over strided operands: extents, steps, and how to take them in long pieces.

use std::ops::Range;

use rayon::prelude::*;

use sweeper_program::builtin::Call;

/// Operations on fewer elements than this stay on one thread: waking others takes longer.
const SHARED_FROM: usize = 1 << 15;

/// Four nested loops over `N` operands, each with a start and a step per loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loops<const N: usize> {
    pub(super) extents: [usize; 4],
    pub(super) starts: [isize; N],
    pub(super) steps: [[isize; 4]; N],
}

impl<const N: usize> Loops<N> {
    /// Reads extents from the four arguments at `position`, then a start and four steps for each
    /// operand. An operand without such arguments is dense.
    ///
    /// This takes much of the time of a small operation: arrays are filled by loops, because the
    /// compiler unrolls these.
    #[inline(always)]
    pub(super) fn read(call: &Call<'_>, position: usize, operands: usize) -> Self {
        let mut extents = [0; 4];
        for (dimension, extent) in extents.iter_mut().enumerate() {
            *extent = call.size(position + dimension);
        }
        let mut loops = Loops {
            extents,
            starts: [0; N],
            steps: [dense(extents); N],
        };
        for operand in 0..operands {
            let first = position + 4 + 5 * operand;
            loops.starts[operand] = call.int(first) as isize;
            for (dimension, step) in loops.steps[operand].iter_mut().enumerate() {
                *step = call.int(first + 1 + dimension) as isize;
            }
        }
        loops.merge();
        loops
    }

    /// Merges neighbouring loops where every operand steps evenly through both. The remaining loops
    /// lie at the end, the innermost last.
    #[inline(always)]
    fn merge(&mut self) {
        let mut last = 3;
        for dimension in (0..3).rev() {
            let extent = self.extents[dimension];
            if extent == 1 {
                continue;
            }
            let is_first = self.extents[last] == 1;
            let continues = !is_first
                && self
                    .steps
                    .iter()
                    .all(|steps| steps[dimension] == steps[last] * self.extents[last] as isize);
            if continues {
                self.extents[last] *= extent;
                continue;
            }
            if !is_first {
                last -= 1;
            }
            self.extents[last] = extent;
            for steps in &mut self.steps {
                steps[last] = steps[dimension];
            }
        }
        for dimension in 0..last {
            self.extents[dimension] = 1;
            for steps in &mut self.steps {
                steps[dimension] = 0;
            }
        }
    }

    /// Elements of the result.
    pub(super) fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// Elements of the innermost loop.
    pub(super) fn row(&self) -> usize {
        self.extents[3]
    }

    /// Steps of the innermost loop.
    pub(super) fn row_steps(&self) -> [isize; N] {
        self.steps.map(|steps| steps[3])
    }

    /// Calls `row` with where each operand's row starts, outermost loop first.
    #[inline(always)]
    pub(super) fn rows(&self, mut row: impl FnMut([usize; N])) {
        let [outer, middle, inner, _] = self.extents;
        let steps = [0, 1, 2].map(|dimension| self.steps.map(|steps| steps[dimension]));
        let mut first = self.starts;
        for _ in 0..outer {
            let mut second = first;
            for _ in 0..middle {
                let mut third = second;
                for _ in 0..inner {
                    row(third.map(|start| start as usize));
                    advance(&mut third, steps[2]);
                }
                advance(&mut second, steps[1]);
            }
            advance(&mut first, steps[0]);
        }
    }

    /// Calls `plane` with the start of each operand's plane, which the two inner loops go over.
    #[inline(always)]
    pub(super) fn planes(&self, mut plane: impl FnMut([usize; N])) {
        let [outer, middle, ..] = self.extents;
        let mut steps = [[0; N]; 2];
        for (dimension, steps) in steps.iter_mut().enumerate() {
            for (step, own) in steps.iter_mut().zip(&self.steps) {
                *step = own[dimension];
            }
        }
        let mut first = self.starts;
        for _ in 0..outer {
            let mut second = first;
            for _ in 0..middle {
                let mut starts = [0; N];
                for (start, &at) in starts.iter_mut().zip(&second) {
                    *start = at as usize;
                }
                plane(starts);
                advance(&mut second, steps[1]);
            }
            advance(&mut first, steps[0]);
        }
    }

    /// Runs `piece` over parts of the outermost loop and the parts of `out` that belong to them;
    /// the last operand is `out`, which is dense. Small operations are one part, and so are all
    /// operations on a pool of one thread.
    #[inline]
    pub(super) fn split<T: Send>(&self, out: &mut [T], piece: impl Fn(&Self, &mut [T]) + Sync) {
        let threads = threads_for(self.len());
        if threads == 1 {
            piece(self, out);
        } else {
            self.split_among(threads, out, piece);
        }
    }

    fn split_among<T: Send>(
        &self,
        threads: usize,
        out: &mut [T],
        piece: impl Fn(&Self, &mut [T]) + Sync,
    ) {
        let dimension = self.extents.iter().position(|&extent| extent > 1);
        let dimension = dimension.unwrap_or(3);
        let share = self.extents[dimension].div_ceil(threads);
        let inner: usize = self.extents[dimension + 1..].iter().product();
        out.par_chunks_mut(share * inner)
            .enumerate()
            .for_each(|(number, out)| {
                let first = number * share;
                let mut loops = self.within(dimension, first..first + out.len() / inner);
                loops.starts[N - 1] = 0;
                piece(&loops, out);
            });
    }

    fn within(mut self, dimension: usize, range: Range<usize>) -> Self {
        for (start, steps) in self.starts.iter_mut().zip(&self.steps) {
            *start += steps[dimension] * range.start as isize;
        }
        self.extents[dimension] = range.len();
        self
    }
}

#[inline(always)]
fn advance<const N: usize>(starts: &mut [isize; N], steps: [isize; N]) {
    for operand in 0..N {
        starts[operand] += steps[operand];
    }
}

/// Number of threads that pay for an operation on `elements` elements.
pub(super) fn threads_for(elements: usize) -> usize {
    if elements < SHARED_FROM {
        1
    } else {
        rayon::current_num_threads()
    }
}

/// Steps of a dense row-major tensor.
pub(super) fn dense(extents: [usize; 4]) -> [isize; 4] {
    let mut steps = [1; 4];
    for dimension in (0..3).rev() {
        steps[dimension] = steps[dimension + 1] * extents[dimension + 1] as isize;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(extents: [usize; 4], one: [isize; 4]) -> Loops<2> {
        let mut loops = Loops {
            extents,
            starts: [5, 0],
            steps: [one, dense(extents)],
        };
        loops.merge();
        loops
    }

    #[test]
    fn dense_operands_are_one_row() {
        let merged = loops([2, 3, 4, 5], dense([2, 3, 4, 5]));
        assert_eq!(
            (merged.extents, merged.row_steps()),
            ([1, 1, 1, 120], [1, 1])
        );
    }

    #[test]
    fn a_broadcast_operand_keeps_its_rows() {
        // (2, 3, 1, 5) to (2, 3, 4, 5): the first two loops are one.
        let merged = loops([2, 3, 4, 5], [15, 5, 0, 1]);
        assert_eq!(merged.extents, [1, 6, 4, 5]);
        let mut starts = Vec::new();
        merged.rows(|start| starts.push(start));
        assert_eq!(starts.len(), 24);
        assert_eq!(starts[3..6], [[5, 15], [10, 20], [10, 25]]);
    }

    #[test]
    fn loops_of_one_iteration_vanish() {
        let merged = loops([4, 1, 1, 1], [7, 9, 9, 9]);
        assert_eq!((merged.extents, merged.row_steps()), ([1, 1, 1, 4], [7, 1]));
    }
}
