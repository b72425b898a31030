//! References: an answer in f64 and what rounding does to it, by one request.

use std::time::Duration;

use serde_json::{Value, json};
use sweeper_program::{Foreign, Tensors};

use super::shared_file::SharedFile;
use super::{Python, interpreter_of, of_system};
use crate::device::DeviceError;

/// How long an interpreter may take to start and to import a library.
pub(super) const LOADING_LIMIT: Duration = Duration::from_secs(120);

/// The text by which references are evaluated: answers depend on it.
pub const TEXTS: [&str; 10] = [
    include_str!("child/reference.py"),
    include_str!("child/probes.py"),
    include_str!("child/roundings.py"),
    include_str!("child/rounding.py"),
    include_str!("child/rounding_sums.py"),
    include_str!("child/rounding_numpy.py"),
    include_str!("child/rounding_ufuncs.py"),
    include_str!("child/rounding_jax.py"),
    include_str!("child/rounding_jaxprs.py"),
    include_str!("child/spread.py"),
];

impl Python {
    /// Starts the interpreter of a function, if need be, and imports the library of its arrays,
    /// which is no part of the time that a call may take.
    ///
    /// # Errors
    /// An interpreter or a library that is not there.
    pub fn load(&mut self, function: &Foreign) -> Result<(), DeviceError> {
        let request: Value = serde_json::from_str(&function.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        self.open(&interpreter_of(&request), None)?;
        let request = json!({ "do": "load", "arrays": request["arrays"] });
        self.ask_within(None, &request, self.limit.max(LOADING_LIMIT))
            .map(drop)
    }

    /// The right outputs of a reference, for inputs of the types that the problem has. Beside them
    /// there are `noise sums of NAME` (of PyTorch, by `child/reference.py`) or `probe K of NAME`
    /// (of other libraries, by `child/probes.py`), what rounding does to an output, and `own error
    /// of NAME`.
    ///
    /// # Errors
    /// A function that fails, takes too long, or returns other tensors than the problem has.
    pub fn reference(
        &mut self,
        function: &Foreign,
        inputs: &Tensors,
    ) -> Result<Tensors, DeviceError> {
        self.load(function)?;
        let mut request: Value = serde_json::from_str(&function.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        let given = SharedFile::of_tensors("sweeper-inputs", inputs).map_err(of_system)?;
        let answer = SharedFile::new("sweeper-answer").map_err(of_system)?;
        request["do"] = json!("answer");
        request["file"] = json!(given.path());
        request["results"] = json!(answer.path());
        self.ask(None, &request)?;
        answer.tensors().map_err(of_system)
    }
}
