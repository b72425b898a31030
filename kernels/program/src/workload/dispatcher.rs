//! The operations of a loop, one by one, and the loops that are found in them.

use std::ops::Range;

use super::Refusal;
use crate::Program;

/// A loop that a dispatcher found, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopId(pub u32);

/// How the operation that was recorded last is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Its steps are launched.
    Run,
    /// Its steps are launched. A loop was found.
    Found(LoopId),
    /// Its steps are launched; it ends an iteration of a loop that no program replaces.
    Boundary(LoopId),
    /// Its steps are kept for later.
    Hold,
    /// The loop's program runs in place of its steps and of all that are kept.
    Replace(LoopId),
    /// Steps of the last `held` operations that are kept are launched, and then its own.
    Flush {
        /// Operations whose steps are kept.
        held: usize,
    },
}

/// Makes the program of a loop; on another thread, where that must not wait.
pub type Planner = Box<dyn FnOnce() -> Result<Program, Refusal> + Send>;

/// A client of an eager framework: runs the operations of a program again and again, without
/// telling where an iteration ends, and finds loops in them.
///
/// The operations of one iteration come in a fixed order, and after the last of them the first.
pub trait Dispatcher: Send {
    /// The steps of each operation of an iteration, in the backend's program; together all timed
    /// steps, in order.
    fn steps(&self) -> &[Range<usize>];

    /// A digest of the first operation: by it a client's loops of earlier runs are found before it
    /// has run any other.
    fn first_operation(&self) -> [u8; 32];

    /// As [`Dispatcher::first_operation`], with equal digests for sizes of one bucket.
    fn first_family(&self) -> [u8; 32];

    /// Forgets all that was recorded, and all loops: a new client.
    fn restart(&mut self);

    /// Says that operations ran that were not recorded, by which the loop's state has other values,
    /// and that the operation at a position of the iteration comes next.
    fn skip_to(&mut self, at: usize);

    /// Records the next operation.
    fn record(&mut self) -> Dispatch;

    /// Whether the iterations of a loop are whole iterations of the computation, and not a part of
    /// one, or several.
    fn is_whole(&self, id: LoopId) -> bool;

    /// Makes the program of one iteration of a whole loop. Its given tensors and results have the
    /// names of the problem's.
    fn planner(&self, id: LoopId) -> Option<Planner>;

    /// As [`Dispatcher::planner`], of the program in which parts that repeat within the iteration,
    /// such as equal layers, are compiled, and all else runs as it does operation by operation.
    /// Where nothing repeats it is refused.
    fn planner_by_parts(&self, id: LoopId) -> Option<Planner>;

    /// A digest of a whole loop, equal for loops that differ in sizes of one bucket alone: their
    /// programs share all kernels.
    fn signature(&self, id: LoopId) -> Option<[u8; 32]>;

    /// A whole loop in bytes, for [`Dispatcher::know`] in a later run.
    fn bytes(&self, id: LoopId) -> Option<Vec<u8>>;

    /// Takes in a loop of an earlier run. None if the bytes are not those of a loop of this
    /// computation.
    fn know(&mut self, bytes: &[u8]) -> Option<LoopId>;

    /// Says that a loop's program is loaded: from the next iteration on it takes the place of the
    /// operations. Returns whether the loop is known.
    fn adopt(&mut self, id: LoopId) -> bool;

    /// Takes [`Dispatcher::adopt`] back. Returns how many operations are kept, which the caller
    /// then launches.
    fn abandon(&mut self, id: LoopId) -> usize;

    /// Ends the keeping of operations, as at the end of a program. Returns how many are kept, which
    /// the caller then launches.
    fn flush(&mut self) -> usize;
}
