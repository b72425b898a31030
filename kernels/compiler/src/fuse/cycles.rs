//! Whether two kernels can be one: no kernel may run after one of them and before the other.
//!
//! An order of kernels is kept as they are merged, so that a path from one kernel to another is
//! looked for between the two alone, not in the whole plan (Pearce and Kelly, "A dynamic
//! topological sort algorithm for directed acyclic graphs", 2006).

use std::collections::BTreeSet;

use super::plan::Plan;

/// An order in which a plan's kernels can run.
pub(super) struct Order {
    /// Of each kernel, its place.
    place: Vec<usize>,
    /// At each place, its kernel.
    kernel: Vec<usize>,
}

impl Order {
    /// An order of the kernels that there are.
    pub(super) fn new(plan: &Plan) -> Self {
        let count = plan.clusters.len();
        let after: Vec<BTreeSet<usize>> = (0..count).map(|at| after(plan, at)).collect();
        let mut waits = vec![0; count];
        for &later in after.iter().flatten() {
            waits[later] += 1;
        }
        let mut ready: BTreeSet<usize> = (0..count).filter(|&at| waits[at] == 0).collect();
        let mut order = Order {
            place: vec![0; count],
            kernel: Vec::with_capacity(count),
        };
        while let Some(at) = ready.pop_first() {
            order.place[at] = order.kernel.len();
            order.kernel.push(at);
            for &later in &after[at] {
                waits[later] -= 1;
                if waits[later] == 0 {
                    ready.insert(later);
                }
            }
        }
        order
    }

    /// The kernel of two that comes first, and the other one.
    fn ordered(&self, (one, other): (usize, usize)) -> (usize, usize) {
        match self.place[one] < self.place[other] {
            true => (one, other),
            false => (other, one),
        }
    }

    /// Whether a kernel has to run after one of the pair and before the other.
    pub(super) fn is_cyclic(&self, plan: &Plan, pair: (usize, usize)) -> bool {
        let (first, last) = self.ordered(pair);
        let end = self.place[last];
        let before_end = |at: usize| Some(self.place[at]).filter(|place| *place < end);
        let mut open: BTreeSet<usize> = after(plan, first)
            .into_iter()
            .filter_map(before_end)
            .collect();
        let mut seen = open.clone();
        // The latest first: where there is a path, it is most often by a long edge.
        while let Some(place) = open.pop_last() {
            for next in after(plan, self.kernel[place]) {
                if next == last {
                    return true;
                }
                open.extend(before_end(next).filter(|place| seen.insert(*place)));
            }
        }
        false
    }

    /// Makes room for a pair as one kernel, before the plan merges it: kernels that depend on the
    /// first of the two move behind the last.
    pub(super) fn merge(&mut self, plan: &Plan, pair: (usize, usize)) {
        let (first, last) = self.ordered(pair);
        let (start, end) = (self.place[first], self.place[last]);
        let mut depends = BTreeSet::from([start]);
        for place in start..end {
            if depends.contains(&place) {
                let places = after(plan, self.kernel[place]).into_iter();
                depends.extend(places.map(|at| self.place[at]).filter(|&at| at < end));
            }
        }
        depends.remove(&start);
        let kernels = |is_later: bool| -> Vec<usize> {
            let places = (start + 1..end).filter(|place| depends.contains(place) == is_later);
            places.map(|place| self.kernel[place]).collect()
        };
        let between = [kernels(false), vec![first, last], kernels(true)].concat();
        for (place, at) in (start..).zip(between) {
            self.kernel[place] = at;
            self.place[at] = place;
        }
    }
}

/// Kernels that read the results of a kernel, or come after it without reading them.
fn after(plan: &Plan, at: usize) -> BTreeSet<usize> {
    let tasks = plan.clusters[at].tasks.iter();
    let later = tasks.flat_map(|&task| plan.readers(task).into_iter().chain(plan.waiters(task)));
    later.filter(|&later| later != at).collect()
}
