//! Whether two kernels can be one: no kernel may run after one of them and before the other.
//!
//! An order of kernels is kept as they are merged, so that a path from one kernel to another is
//! looked for between the two alone, not in the whole plan (Pearce and Kelly, "A dynamic
//! topological sort algorithm for directed acyclic graphs", 2006).

use std::collections::{BTreeSet, BinaryHeap};

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
        let after: Vec<BTreeSet<usize>> = (0..count).map(|at| after(plan, at).collect()).collect();
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
        let (start, end) = (self.place[first], self.place[last]);
        let mut seen = vec![false; end - start];
        let mut open = BinaryHeap::new();
        let mut from = start;
        // The latest first: where there is a path, it is most often by a long edge.
        loop {
            for next in after(plan, self.kernel[from]) {
                if next == last && from != start {
                    return true;
                }
                let place = self.place[next];
                if place < end && !std::mem::replace(&mut seen[place - start], true) {
                    open.push(place);
                }
            }
            match open.pop() {
                Some(place) => from = place,
                None => return false,
            }
        }
    }

    /// Makes room for a pair as one kernel, before the plan merges it: kernels that depend on the
    /// first of the two move behind the last.
    pub(super) fn merge(&mut self, plan: &Plan, pair: (usize, usize)) {
        let (first, last) = self.ordered(pair);
        let (start, end) = (self.place[first], self.place[last]);
        let mut depends = vec![false; end - start];
        depends[0] = true;
        for place in start..end {
            if depends[place - start] {
                let places = after(plan, self.kernel[place]).map(|at| self.place[at]);
                places
                    .filter(|&at| at < end)
                    .for_each(|at| depends[at - start] = true);
            }
        }
        let kernels = |is_later: bool| -> Vec<usize> {
            let places = (start + 1..end).filter(|place| depends[place - start] == is_later);
            places.map(|place| self.kernel[place]).collect()
        };
        let between = [kernels(false), vec![first, last], kernels(true)].concat();
        for (place, at) in (start..).zip(between) {
            self.kernel[place] = at;
            self.place[at] = place;
        }
    }
}

/// Kernels that read the results of a kernel, or come after it without reading them; some of them
/// more than once.
fn after(plan: &Plan, at: usize) -> impl Iterator<Item = usize> {
    let tasks = plan.clusters[at].tasks.iter();
    let later = tasks.flat_map(|&task| plan.readers_of(task).chain(plan.waiters(task)));
    later.filter(move |&later| later != at)
}
