//! Inputs that a function of the user makes, in an interpreter of its own on the host.

use sweeper_program::inputs::InputKey;
use sweeper_program::{Problem, Tensors};

use super::foreign_oracle::{interpreter, with_limit};
use super::protocol::Block;
use super::refused::of_key;
use crate::device::DeviceError;
use crate::device::foreign::python::Python;

/// Makes inputs, one call after another.
pub(super) struct InputMaker {
    interpreter: Python,
}

impl InputMaker {
    /// The interpreter is started with the first call.
    pub(super) fn new(block: &Block) -> Self {
        InputMaker {
            interpreter: interpreter(block.settings.oracle_s),
        }
    }

    /// The inputs of a problem for a key; none where no function makes them.
    ///
    /// # Errors
    /// A function that fails, takes too long, or returns other tensors than the manifest declares:
    /// with its key.
    pub(super) fn make(
        &mut self,
        block: &Block,
        problem: &dyn Problem,
        key: &InputKey,
    ) -> Option<Result<Tensors, DeviceError>> {
        let function = problem.foreign_inputs(seed(key))?;
        let made = self.interpreter.generate(&function);
        Some(made.map_err(|error| with_limit(block, of_key(block, "inputs_from", "", error))))
    }
}

/// A seed that every generator of random numbers takes: 31 bits.
fn seed(key: &InputKey) -> u32 {
    let [a, b, c, d, ..] = key.0;
    u32::from_le_bytes([a, b, c, d]) >> 1
}
