//! The distribution of blocks over workers.
//!
//! Blocks are dealt out by their predicted cost, the longest first, each to the worker with the
//! least work so far; a worker that finishes early takes blocks that another has not begun. One
//! worker alone follows the plan's order.

use std::collections::VecDeque;

/// Blocks that are not begun, by worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    queues: Vec<VecDeque<usize>>,
    costs: Vec<f64>,
}

impl Schedule {
    /// Deals out blocks of these costs.
    pub fn new(costs: Vec<f64>, workers: usize) -> Self {
        Schedule::with_order(costs, workers, workers > 1)
    }

    /// Deals out blocks of these costs in their order.
    pub fn in_order(costs: Vec<f64>, workers: usize) -> Self {
        Schedule::with_order(costs, workers, false)
    }

    fn with_order(costs: Vec<f64>, workers: usize, is_longest_first: bool) -> Self {
        let workers = workers.max(1);
        let mut order: Vec<usize> = (0..costs.len()).collect();
        if is_longest_first {
            // Stable: equal costs keep their order, so that a plan is always dealt out alike.
            order.sort_by(|&one, &other| costs[other].total_cmp(&costs[one]));
        }
        let mut queues = vec![VecDeque::new(); workers];
        let mut loads = vec![0.0; workers];
        for block in order {
            let least =
                (0..workers).min_by(|&one, &other| f64::total_cmp(&loads[one], &loads[other]));
            let worker = least.unwrap_or(0);
            loads[worker] += costs[block];
            queues[worker].push_back(block);
        }
        Schedule { queues, costs }
    }

    /// True if all blocks were taken.
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// All remaining blocks, roughly in the order in which they will be begun.
    pub fn order(&self) -> Vec<usize> {
        let longest = self.queues.iter().map(VecDeque::len).max().unwrap_or(0);
        let rounds = (0..longest).flat_map(|round| {
            let nth = move |queue: &VecDeque<usize>| queue.get(round).copied();
            self.queues.iter().filter_map(nth)
        });
        rounds.collect()
    }

    /// Takes the first of a worker's blocks that is ready, or of the worker's with the most to do.
    pub fn next(&mut self, worker: usize, is_ready: impl Fn(usize) -> bool) -> Option<usize> {
        let load = |queue: &VecDeque<usize>| queue.iter().map(|&block| self.costs[block]).sum();
        let loads: Vec<f64> = self.queues.iter().map(load).collect();
        let mut others: Vec<usize> = (0..self.queues.len()).filter(|&at| at != worker).collect();
        others.sort_by(|&one, &other| loads[other].total_cmp(&loads[one]));
        for at in std::iter::once(worker).chain(others) {
            let queue = &mut self.queues[at];
            if let Some(position) = queue.iter().position(|&block| is_ready(block)) {
                return queue.remove(position);
            }
        }
        None
    }

    /// Puts a block back that a worker could not finish.
    pub fn put_back(&mut self, worker: usize, block: usize) {
        self.queues[worker].push_front(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first_and_loads_are_even() {
        let costs = vec![1.0, 5.0, 2.0, 4.0, 3.0, 3.0];
        let schedule = Schedule::new(costs.clone(), 2);
        assert_eq!(schedule.queues, [vec![1, 5, 0], vec![3, 4, 2]]);
        assert_eq!(schedule, Schedule::new(costs.clone(), 2));
        assert_eq!(schedule.order(), [1, 3, 5, 4, 0, 2]);
        assert_eq!(
            Schedule::new(costs.clone(), 1).queues,
            [vec![0, 1, 2, 3, 4, 5]]
        );
        let in_order = Schedule::in_order(costs, 2);
        assert_eq!(in_order.queues, [vec![0, 2, 3, 5], vec![1, 4]]);
    }

    #[test]
    fn what_is_not_ready_waits_and_idle_workers_help() {
        let mut schedule = Schedule::new(vec![3.0, 3.0, 1.0, 1.0], 2);
        assert_eq!(schedule.next(0, |block| block != 0), Some(2));
        assert_eq!(schedule.next(0, |_| true), Some(0));
        assert_eq!(schedule.next(0, |_| false), None);
        // Its own blocks are gone: it takes a block of the other worker.
        assert_eq!(schedule.next(0, |_| true), Some(1));
        schedule.put_back(0, 1);
        assert_eq!(schedule.next(1, |_| true), Some(3));
        assert_eq!(schedule.next(1, |_| true), Some(1));
        assert!(schedule.is_empty());
    }
}
