//! A loop on the device itself, whose programs have the numbers of all.

use std::ops::Range;
use std::time::Duration;

use super::Owner;
use crate::device::launcher::{Launcher, LoopDriver, Moment};
use crate::device::{DeviceError, Job, Prepared, no_loop};

/// A driver for the native device.
pub(super) struct Renumbered<'a> {
    pub(super) driver: &'a mut dyn LoopDriver,
    /// The owner of each program, and its number there.
    pub(super) programs: &'a mut Vec<(Owner, Prepared)>,
}

impl LoopDriver for Renumbered<'_> {
    fn run(&mut self, launcher: &mut dyn Launcher) -> Result<Duration, DeviceError> {
        let mut native = Native {
            launcher,
            programs: self.programs,
        };
        self.driver.run(&mut native)
    }

    fn iterations(&self) -> u32 {
        self.driver.iterations()
    }
}

struct Native<'a> {
    launcher: &'a mut dyn Launcher,
    programs: &'a mut Vec<(Owner, Prepared)>,
}

impl Native<'_> {
    fn number(&self, program: Prepared) -> Result<Prepared, DeviceError> {
        match self.programs[program.0] {
            (Owner::Native, native) => Ok(native),
            (Owner::Runner(_), _) => Err(no_loop()),
        }
    }
}

impl Launcher for Native<'_> {
    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        let native = self.launcher.prepare(job)?;
        self.programs.push((Owner::Native, native));
        Ok(Prepared(self.programs.len() - 1))
    }

    fn steps(&self, program: Prepared) -> usize {
        self.number(program)
            .map_or(0, |native| self.launcher.steps(native))
    }

    fn begin(&mut self, program: Prepared) -> Result<(), DeviceError> {
        self.launcher.begin(self.number(program)?)
    }

    fn launch(&mut self, program: Prepared, steps: Range<usize>) -> Result<(), DeviceError> {
        self.launcher.launch(self.number(program)?, steps)
    }

    fn moment(&mut self) -> Result<Moment, DeviceError> {
        self.launcher.moment()
    }

    fn between_ns(&mut self, from: Moment, to: Moment) -> Result<Option<f64>, DeviceError> {
        self.launcher.between_ns(from, to)
    }

    fn wait(&mut self) -> Result<(), DeviceError> {
        self.launcher.wait()
    }
}
