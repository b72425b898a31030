//! The remaining blocks, and the workers that have them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::Sender;

use super::schedule::Schedule;
use super::workers::Numbered;
use sweeper_engine::execute::supervisor::Task;
use sweeper_manifest::plan::PlannedBlock;

/// The queue of blocks, and the block of each worker.
pub(super) struct Dispatch<'a> {
    pub(super) blocks: Vec<&'a PlannedBlock>,
    pub(super) schedule: Schedule,
    pub(super) tasks: Vec<Sender<Numbered>>,
    /// The blocks of each worker: the block that it measures, then the blocks that it prepares.
    pub(super) hands: Vec<VecDeque<usize>>,
    /// Greatest number of blocks that a worker has.
    pub(super) depth: usize,
    /// Workers that can't go on.
    pub(super) lost: Vec<bool>,
    /// Blocks of each case that are not done.
    pub(super) of_case: BTreeMap<u16, usize>,
}

impl Dispatch<'_> {
    /// True if no worker has a block.
    pub(super) fn is_idle(&self) -> bool {
        self.hands.iter().all(VecDeque::is_empty)
    }

    /// Gives a worker a task. A thread that is gone is heard of as the end of all messages.
    pub(super) fn give(&mut self, worker: usize, block: usize, task: Task) {
        self.hands[worker].push_back(block);
        let _ = self.tasks[worker].send((block, task));
    }

    /// True if a worker can be given another block.
    pub(super) fn has_room(&self, worker: usize) -> bool {
        !self.lost[worker] && self.hands[worker].len() < self.depth
    }
}
