//! Which kernels have to run after which, as kernels come to share launches.

use super::order::{before, launches};
use super::plan::Plan;

/// Kernels of a word.
const WORD: usize = 64;

/// The kernels that have to run after other kernels, by position among a plan's clusters.
pub(super) struct Waits {
    /// The kernels that there are, ascending.
    kernels: Vec<usize>,
    /// For each of them, a bit for each that comes after it.
    after: Vec<Vec<u64>>,
    /// Kernels that share a launch, by their numbers.
    joined: Vec<Vec<usize>>,
}

impl Waits {
    /// The order of a plan without horizontal groups.
    pub(super) fn new(plan: &Plan) -> Self {
        let kernels = plan.kernels();
        let words = kernels.len().div_ceil(WORD);
        let mut waits = Waits {
            after: vec![vec![0; words]; kernels.len()],
            joined: vec![],
            kernels,
        };
        for at in launches(plan).into_iter().flatten().rev() {
            let at = waits.number(at);
            let mut later = waits.after[at].clone();
            set(&mut later, at);
            for before in before(plan, waits.kernels[at]) {
                let before = waits.number(before);
                add(&mut waits.after[before], &later);
            }
        }
        plan.single_passes.iter().for_each(|pair| waits.join(pair));
        waits
    }

    /// A kernel's number among those that there are: only these are asked about.
    fn number(&self, at: usize) -> usize {
        self.kernels.binary_search(&at).unwrap_or_default()
    }

    /// Whether a kernel has to run after another one.
    pub(super) fn is_after(&self, later: usize, earlier: usize) -> bool {
        let [later, earlier] = [later, earlier].map(|at| self.number(at));
        is_set(&self.after[earlier], later)
    }

    /// Whether one of two kernels has to run after the other.
    pub(super) fn are_ordered(&self, one: usize, other: usize) -> bool {
        self.is_after(one, other) || self.is_after(other, one)
    }

    /// The kernels of a kernel's launch.
    fn launch_of(&self, at: usize) -> Vec<usize> {
        let launch = self.joined.iter().find(|launch| launch.contains(&at));
        launch.cloned().unwrap_or_else(|| vec![at])
    }

    /// Makes the launch of a kernel run after that of another one, which does not have to run after
    /// it.
    pub(super) fn put_after(&mut self, later: usize, earlier: usize) {
        if self.is_after(later, earlier) {
            return;
        }
        let [later, earlier] = [later, earlier].map(|at| self.number(at));
        let [own, before] = [later, earlier].map(|at| self.launch_of(at));
        let mut with_own = self.after[later].clone();
        own.iter().for_each(|&at| set(&mut with_own, at));
        for (at, after) in self.after.iter_mut().enumerate() {
            if before.contains(&at) || is_set(after, earlier) {
                add(after, &with_own);
            }
        }
    }

    /// Makes some kernels share a launch: a kernel that runs after one of them runs after all of
    /// them.
    pub(super) fn join(&mut self, kernels: &[usize]) {
        let kernels: Vec<usize> = kernels.iter().map(|&at| self.number(at)).collect();
        let mut later = vec![0; self.kernels.len().div_ceil(WORD)];
        kernels
            .iter()
            .for_each(|&at| add(&mut later, &self.after[at]));
        let mut with_own = later.clone();
        kernels.iter().for_each(|&at| set(&mut with_own, at));
        for (at, after) in self.after.iter_mut().enumerate() {
            if kernels.contains(&at) {
                after.clone_from(&later);
            } else if kernels.iter().any(|&kernel| is_set(after, kernel)) {
                add(after, &with_own);
            }
        }
        self.joined
            .retain(|launch| launch.iter().all(|at| !kernels.contains(at)));
        self.joined.push(kernels);
    }
}

fn set(bits: &mut [u64], at: usize) {
    bits[at / WORD] |= 1 << (at % WORD);
}

fn is_set(bits: &[u64], at: usize) -> bool {
    bits[at / WORD] & (1 << (at % WORD)) != 0
}

fn add(to: &mut [u64], more: &[u64]) {
    to.iter_mut().zip(more).for_each(|(to, more)| *to |= more);
}
