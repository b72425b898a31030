//! Tables of states by boundary and label, in f64, read as f32 relative to the greatest of a
//! window.

/// States of one sequence: all boundaries, or a ring of the latest.
///
/// At a position near 1e4 an f32 state has a spacing of 0.002. Terms of one sum are close together,
/// except for terms that are too small to count, so differences are f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<D> {
    data: D,
    labels: usize,
}

impl<D: AsRef<[f64]>> Table<D> {
    /// A table of (slots, labels).
    pub(super) fn new(data: D, labels: usize) -> Self {
        Table { data, labels }
    }

    fn slots(&self) -> usize {
        self.data.as_ref().len() / self.labels
    }

    /// The states of a boundary.
    pub(super) fn row(&self, boundary: usize) -> &[f64] {
        &self.data.as_ref()[boundary % self.slots() * self.labels..][..self.labels]
    }

    /// The states of `count` boundaries before `boundary`, newest first, relative to the greatest
    /// state, which is returned.
    pub(super) fn window(&self, boundary: usize, count: usize, out: &mut [f32]) -> f64 {
        let reference = (1..=count).flat_map(|age| self.row(boundary - age)).fold(
            f64::NEG_INFINITY,
            |most, &state| if state > most { state } else { most },
        );
        for (age, out) in (1..=count).zip(out.chunks_exact_mut(self.labels)) {
            relative(self.row(boundary - age), reference, out);
        }
        reference
    }
}

impl<D: AsMut<[f64]> + AsRef<[f64]>> Table<D> {
    /// The states of a boundary, to be written.
    pub(super) fn row_mut(&mut self, boundary: usize) -> &mut [f64] {
        let slot = boundary % self.slots();
        &mut self.data.as_mut()[slot * self.labels..][..self.labels]
    }
}

/// `out = states - reference`.
pub(super) fn relative(states: &[f64], reference: f64, out: &mut [f32]) {
    for (out, &state) in out.iter_mut().zip(states) {
        *out = (state - reference) as f32;
    }
}
