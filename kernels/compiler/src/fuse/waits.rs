//! Which kernels have to run after which, as kernels come to share launches.

use super::order::{before, launches};
use super::plan::Plan;

/// The kernels that have to run after other kernels, by position among a plan's clusters.
pub(super) struct Waits {
    /// For each kernel, whether another one comes after it.
    after: Vec<Vec<bool>>,
}

impl Waits {
    /// The order of a plan without horizontal groups.
    pub(super) fn new(plan: &Plan) -> Self {
        let count = plan.clusters.len();
        let after = vec![vec![false; count]; count];
        let mut waits = Waits { after };
        for at in launches(plan).into_iter().flatten().rev() {
            let later = waits.after[at].clone();
            for before in before(plan, at) {
                waits.after[before][at] = true;
                add(&mut waits.after[before], &later);
            }
        }
        plan.single_passes.iter().for_each(|pair| waits.join(pair));
        waits
    }

    /// Whether a kernel has to run after another one.
    pub(super) fn is_after(&self, later: usize, earlier: usize) -> bool {
        self.after[earlier][later]
    }

    /// Whether one of two kernels has to run after the other.
    pub(super) fn are_ordered(&self, one: usize, other: usize) -> bool {
        self.is_after(one, other) || self.is_after(other, one)
    }

    /// Makes some kernels share a launch: a kernel that runs after one of them runs after all of
    /// them.
    pub(super) fn join(&mut self, kernels: &[usize]) {
        let mut later = vec![false; self.after.len()];
        kernels
            .iter()
            .for_each(|&at| add(&mut later, &self.after[at]));
        for (at, after) in self.after.iter_mut().enumerate() {
            if kernels.contains(&at) {
                after.clone_from(&later);
            } else if kernels.iter().any(|&kernel| after[kernel]) {
                kernels.iter().for_each(|&kernel| after[kernel] = true);
                add(after, &later);
            }
        }
    }
}

fn add(to: &mut [bool], more: &[bool]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to |= more);
}
