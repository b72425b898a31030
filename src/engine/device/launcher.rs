//! Loops whose launches are chosen one after another.
//!
//! A program that is run as a loop always launches all of its steps. A [`LoopDriver`] decides
//! before each launch, as the dispatcher of an eager framework does: it runs parts of programs, and
//! may load others while the loop runs.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::{DeviceError, Job, Prepared};

/// A moment in the order of a loop's launches, by number: when the device has done all that was
/// launched before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(pub usize);

/// A device in a loop.
pub trait Launcher {
    /// Loads a program, between two iterations. Results and scratch memory of all programs are
    /// undefined afterwards; given tensors keep their values.
    ///
    /// # Errors
    /// Those of [`Device::prepare`](super::Device::prepare).
    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError>;

    /// How many timed steps a program has.
    fn steps(&self, program: Prepared) -> usize;

    /// Launches a program's prologue.
    ///
    /// # Errors
    /// A refused launch.
    fn begin(&mut self, program: Prepared) -> Result<(), DeviceError>;

    /// Launches some of a program's steps, and does not wait for them.
    ///
    /// # Errors
    /// A refused launch.
    fn launch(&mut self, program: Prepared, steps: Range<usize>) -> Result<(), DeviceError>;

    /// Notes the moment after all that was launched.
    ///
    /// # Errors
    /// A lost device.
    fn moment(&mut self) -> Result<Moment, DeviceError>;

    /// The time between two moments, in nanoseconds; none as long as the device has not passed the
    /// later one.
    ///
    /// # Errors
    /// A lost device.
    fn between_ns(&mut self, from: Moment, to: Moment) -> Result<Option<f64>, DeviceError>;

    /// Waits until the device has done all that was launched.
    ///
    /// # Errors
    /// A lost device, or an error of a kernel.
    fn wait(&mut self) -> Result<(), DeviceError>;

    /// The host's clock.
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// Chooses the launches of a loop. On a CPU it runs on one of the threads that run programs.
pub trait LoopDriver: Send {
    /// Runs the loop; how long it took from its first launch until the device had finished.
    ///
    /// # Errors
    /// Those of the launcher.
    fn run(&mut self, launcher: &mut dyn Launcher) -> Result<Duration, DeviceError>;

    /// Iterations of the loop.
    fn iterations(&self) -> u32;
}

/// All steps of one program in each iteration.
pub(super) struct Whole {
    pub(super) program: Prepared,
    pub(super) iterations: u32,
}

impl LoopDriver for Whole {
    fn run(&mut self, launcher: &mut dyn Launcher) -> Result<Duration, DeviceError> {
        let steps = launcher.steps(self.program);
        launcher.begin(self.program)?;
        launcher.wait()?;
        let start = launcher.now();
        for _ in 0..self.iterations {
            launcher.launch(self.program, 0..steps)?;
        }
        launcher.wait()?;
        Ok(launcher.now() - start)
    }

    fn iterations(&self) -> u32 {
        self.iterations
    }
}
