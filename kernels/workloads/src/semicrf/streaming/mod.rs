//! `streaming`: a scan over positions, operation by operation, as an eager framework executes it.
//!
//! The honest baseline: at each position the states of the boundaries before and the scores of the
//! edges that end here are gathered, added, and summed in the semiring; each of these is a launch
//! that reads and writes memory. The loop over positions is the program's, so a program is a few
//! dozen launches for any T. Choices that a framework leaves open:
//!
//! * `logsumexp` takes the steps of `torch.logsumexp`: maximum, difference, exponential, sum,
//!   logarithm, sum. Its guard against infinite maxima is left out, as scores are finite.
//! * The maximum is one reduction that gives values and indices, as `torch.max` along an axis.
//! * States are f64, everything of the size of an edge tensor f32 relative to the greatest state of
//!   the window: at T = 10000 an f32 state has a spacing of 0.002.
//! * Phases with gradients save the tensors that autograd saves: the scores and sum of each
//!   position (for max the index). The backward pass of the entropy sum is its closed form, as a
//!   custom function would have it. Gradients of edges go straight to their place, where autograd's
//!   indexing would make a tensor of zeros a position. No two threads add to one element, so
//!   results have equal bits in every run.
//!
//! [`position`] has the places of data, [`buffers`] the memory, [`semiring`] is the sum and its
//! derivative, [`forward`] and [`backward`] are the passes.

mod position;
mod buffers;
mod semiring;
mod forward;
mod backward;

use super::sizes::Sizes;
use crate::ops::emit::Emitter;
use buffers::Buffers;
use sweeper_program::Program;
use sweeper_program::workload::{Phase, Target};

/// The program of `phase`.
pub fn program(sizes: &Sizes, phase: Phase, target: &Target) -> Program {
    let mut scan = Scan::new(sizes, phase, target);
    scan.forward();
    if phase == Phase::Backward {
        scan.emit.end_prologue();
    }
    if phase.has_gradients() {
        scan.backward();
    }
    scan.emit.finish()
}

/// A program that is being written.
struct Scan {
    sizes: Sizes,
    emit: Emitter,
    buffers: Buffers,
}

impl Scan {
    fn new(sizes: &Sizes, phase: Phase, target: &Target) -> Self {
        let mut emit = Emitter::new(target);
        let buffers = Buffers::new(sizes, phase, &mut emit);
        Scan {
            sizes: *sizes,
            emit,
            buffers,
        }
    }

    /// Elements of one boundary's states.
    fn states(&self) -> usize {
        self.sizes.b * self.sizes.c
    }
}
