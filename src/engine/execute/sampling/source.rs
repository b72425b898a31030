//! Who takes the samples of a program.

use std::rc::Rc;

use crate::auto::Auto;
use crate::device::{Device, DeviceError, Prepared, Sample};
use crate::execute::audit::Calls;

/// Who takes the samples of a program.
pub enum Source {
    /// The device, on the problem's inputs.
    Device,
    /// A loop that decides itself whether to compile.
    Loop(Box<Auto>),
    /// The device, on inputs of which no two calls have the same.
    Calls(Rc<Calls>),
    /// Starts of a command, each a sample: the time that it tells may be that of one of its many
    /// operations.
    Starts,
}

/// The most calls on inputs of their own in a sample: each has to be made, and some are judged.
const MOST_CALLS: u32 = 64;

impl Source {
    /// The iterations of a sample that is to last so long.
    pub(super) fn batch(&self, wanted_ns: f64, iteration_ns: f64) -> u32 {
        let count = batch(wanted_ns, iteration_ns);
        match self {
            Source::Calls(_) => count.min(MOST_CALLS),
            Source::Starts => 1,
            Source::Device | Source::Loop(_) => count,
        }
    }

    /// One sample of so many iterations of their own.
    pub(super) fn sample(
        &self,
        device: &mut dyn Device,
        program: Prepared,
        iterations: u32,
    ) -> Result<Sample, DeviceError> {
        match self {
            Source::Calls(calls) => calls.sample(device, program, iterations),
            _ => device.sample(program, iterations),
        }
    }
}

/// How many iterations last `wanted_ns`.
pub(super) fn batch(wanted_ns: f64, iteration_ns: f64) -> u32 {
    (wanted_ns / iteration_ns.max(1.0)).ceil().clamp(1.0, 1e6) as u32
}
