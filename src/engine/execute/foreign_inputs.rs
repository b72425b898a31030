//! Inputs that a function of the user makes, in an interpreter of its own on the host.

use sweeper_program::inputs::InputKey;
use sweeper_program::{Problem, Tensors};

use super::foreign_oracle::{interpreter, with_limit};
use super::protocol::Block;
use super::refused::of_key;
use super::tensors;
use crate::device::DeviceError;
use crate::device::foreign::python::Python;
use sweeper_model::identity::ProblemId;

/// Makes inputs, one call after another.
pub struct InputMaker {
    interpreter: Python,
}

impl InputMaker {
    /// The interpreter is started with the first call.
    pub(super) fn new(block: &Block) -> Self {
        InputMaker::within(block.settings.oracle_s)
    }

    /// One each of whose calls may take `limit_s` seconds.
    pub fn within(limit_s: f64) -> Self {
        InputMaker {
            interpreter: interpreter(limit_s),
        }
    }

    /// The digest of a problem's inputs, as rows have it; none where no function makes them.
    ///
    /// # Errors
    /// A function that fails, takes too long, or returns other tensors than the manifest declares.
    pub fn digest(
        &mut self,
        problem: &dyn Problem,
        id: ProblemId,
    ) -> Option<Result<String, DeviceError>> {
        let function = problem.foreign_inputs(seed(&InputKey(*id.0.bytes())))?;
        let made = self.interpreter.generate(&function);
        Some(made.map(|inputs| tensors::digest(&inputs)))
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
