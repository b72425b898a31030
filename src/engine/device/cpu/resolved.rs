//! A program's timed steps as a flat list of calls, resolved before a sample: while the clock runs
//! nothing is looked up, and nothing allocated.

use std::hint::black_box;

use rayon::prelude::*;
use sweeper_program::{Arg, Geometry, Kernel, Step};

use super::library::Entry;
use super::run::Runner;

/// Calls of a program at most. Loops of more launches are walked: what that takes is in times.
const MOST_CALLS: usize = 1 << 14;

/// Calls in the order of the program.
pub(super) struct Calls<'a> {
    runner: &'a Runner<'a>,
    list: Vec<Call<'a>>,
    /// The arguments of all launches, one after another.
    cells: Vec<u64>,
    /// Whether one thread calls all blocks.
    is_alone: bool,
}

enum Call<'a> {
    /// Blocks of a compiled kernel, whose cells begin at a position.
    Blocks {
        entry: Entry,
        first: usize,
        blocks: u32,
    },
    /// A step that is walked, in these iterations of the loops around it.
    Walked(&'a Step, Vec<i64>),
}

impl<'a> Calls<'a> {
    /// The calls of a runner's timed steps. In the thread that runs them.
    pub(super) fn of(runner: &'a Runner<'a>) -> Self {
        let mut calls = Calls {
            runner,
            list: Vec::new(),
            cells: Vec::new(),
            is_alone: rayon::current_num_threads() == 1,
        };
        for step in runner.timed_steps() {
            calls.add(step, &mut Vec::new());
        }
        calls
    }

    /// As many calls of a function that does nothing, with the same arguments.
    pub(super) fn emptied(&self) -> Self {
        let emptied = |call: &Call<'a>| match *call {
            Call::Blocks { first, blocks, .. } => Some(Call::Blocks {
                entry: Entry::EMPTY,
                first,
                blocks,
            }),
            Call::Walked(..) => None,
        };
        Calls {
            runner: self.runner,
            list: self.list.iter().filter_map(emptied).collect(),
            cells: self.cells.clone(),
            is_alone: self.is_alone,
        }
    }

    fn add(&mut self, step: &'a Step, iterations: &mut Vec<i64>) {
        let (calls, cells) = (self.list.len(), self.cells.len());
        if !self.resolve(step, iterations) {
            self.list.truncate(calls);
            self.cells.truncate(cells);
            self.list.push(Call::Walked(step, iterations.clone()));
        }
    }

    /// Adds a step's calls; false if it has steps that are walked, or too many.
    fn resolve(&mut self, step: &'a Step, iterations: &mut Vec<i64>) -> bool {
        match step {
            Step::Launch {
                kernel,
                geometry,
                args,
            } => match self.runner.entry(*kernel) {
                (Kernel::Compiled(_), Some(entry)) => {
                    self.launch(entry, *geometry, args, iterations);
                    self.list.len() <= MOST_CALLS
                }
                _ => false,
            },
            Step::Copy { .. } | Step::Fill { .. } => false,
            Step::Repeat { count, body } => {
                iterations.push(0);
                let is_resolved = (0..*count as i64).all(|iteration| {
                    if let Some(last) = iterations.last_mut() {
                        *last = iteration;
                    }
                    body.iter().all(|step| self.resolve(step, iterations))
                });
                iterations.pop();
                is_resolved
            }
        }
    }

    fn launch(&mut self, entry: Entry, geometry: Geometry, args: &[Arg], iterations: &[i64]) {
        self.list.push(Call::Blocks {
            entry,
            first: self.cells.len(),
            blocks: geometry.grid[0],
        });
        let cells = args.iter().map(|arg| self.runner.cell(arg, iterations));
        self.cells.extend(cells);
    }

    /// Makes all calls.
    pub(super) fn run(&self) {
        for call in &self.list {
            match *call {
                Call::Blocks {
                    entry,
                    first,
                    blocks,
                } => {
                    let cells = &self.cells[first..];
                    if blocks == 1 || self.is_alone {
                        (0..blocks).for_each(|block| entry.call(cells, block));
                    } else {
                        let blocks = (0..blocks).into_par_iter();
                        blocks.for_each(|block| entry.call(cells, block));
                    }
                }
                Call::Walked(step, ref iterations) => {
                    let step = std::slice::from_ref(step);
                    self.runner.steps(step, &mut iterations.clone());
                }
            }
        }
    }

    /// Reads all that [`Calls::run`] reads before it calls a kernel, into the nearest cache.
    pub(super) fn touch(&self) {
        let first = |call: &Call<'_>| match *call {
            Call::Blocks { entry, first, .. } => entry.address().wrapping_add(first as u64),
            Call::Walked(..) => 0,
        };
        let calls = self.list.iter().map(first).fold(0, u64::wrapping_add);
        black_box(self.cells.iter().copied().fold(calls, u64::wrapping_add));
    }
}
