//! References: an answer in f64 and what rounding does to it, by one request.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sweeper_program::{Foreign, Tensors};

use super::shared_file::SharedFile;
use super::{Python, interpreter_of, of_system};
use crate::device::DeviceError;
use crate::device::outputs::{GpuTensor, Outputs};

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
    /// Starts the interpreter of a function, if need be. Yields the request that calls it.
    ///
    /// # Errors
    /// An interpreter that is not there.
    pub fn start(&mut self, function: &Foreign) -> Result<Value, DeviceError> {
        let request: Value = serde_json::from_str(&function.request)
            .map_err(|error| DeviceError::Launch(error.to_string()))?;
        self.open(&interpreter_of(&request), None)?;
        Ok(request)
    }

    /// Imports the library of a function's arrays, and PyTorch's compiler where it is used: neither
    /// is part of the time that a call may take. Yields that call's request.
    ///
    /// # Errors
    /// An interpreter or a library that is not there.
    pub(super) fn load_library(&mut self, function: &Foreign) -> Result<Value, DeviceError> {
        let request = self.start(function)?;
        let (arrays, compile) = (&request["arrays"], &request["torch_compile"]);
        let load = json!({ "do": "load", "arrays": arrays, "torch_compile": compile });
        self.ask_within(None, &load, self.limit.max(LOADING_LIMIT))?;
        Ok(request)
    }

    /// The right outputs of a reference, for inputs of the types that the problem has, unless they
    /// are to be kept in the interpreter. Beside them there are `noise sums of NAME` (of PyTorch,
    /// by `child/reference.py`) or `probe K of NAME` (of other libraries, by `child/probes.py`),
    /// what rounding does to an output, and `own error of NAME`; none of the first two where they
    /// are not asked for.
    ///
    /// # Errors
    /// A function that fails, takes too long, or returns other tensors than the problem has.
    pub fn reference(
        &mut self,
        function: &Foreign,
        inputs: &Tensors,
        kept: Option<&KeptAnswer>,
        with_spread: bool,
    ) -> Result<Tensors, DeviceError> {
        let mut request = self.load_library(function)?;
        request["do"] = json!("answer");
        request["keep"] = json!(kept);
        if !with_spread {
            request["with_spread"] = json!(false);
        }
        self.ask_with_tensors(request, inputs)
    }

    /// For each output of a kept answer's problem, sums over its errors
    /// ([`sweeper_program::spread::name_of_error_sums`]).
    ///
    /// # Errors
    /// An interpreter that has no such answer: it has ended since.
    pub fn compare(
        &mut self,
        kept: &KeptAnswer,
        outputs: &Outputs,
    ) -> Result<Tensors, DeviceError> {
        let mut request = json!({ "do": "compare", "keep": kept });
        match outputs {
            Outputs::Host(outputs) => self.ask_with_tensors(request, outputs),
            Outputs::Gpu(outputs) => {
                request["on_gpu"] = json!(outputs);
                self.ask_for_tensors(request)
            }
        }
    }

    /// Opens outputs on the GPU, to find out whether that works.
    ///
    /// # Errors
    /// It does not.
    pub fn open_outputs(
        &mut self,
        places: &BTreeMap<String, GpuTensor>,
    ) -> Result<(), DeviceError> {
        let request = json!({ "do": "open_outputs", "on_gpu": places });
        self.ask(None, &request).map(drop)
    }

    /// Lets all kept answers go.
    ///
    /// # Errors
    /// An interpreter that has ended.
    pub fn forget(&mut self) -> Result<(), DeviceError> {
        self.ask(None, &json!({ "do": "forget" })).map(drop)
    }

    /// The tensors that a request about others yields.
    fn ask_with_tensors(
        &mut self,
        mut request: Value,
        tensors: &Tensors,
    ) -> Result<Tensors, DeviceError> {
        let given = SharedFile::of_tensors("sweeper-given", tensors).map_err(of_system)?;
        request["file"] = json!(given.path());
        self.ask_for_tensors(request)
    }

    /// The tensors that a request yields.
    fn ask_for_tensors(&mut self, mut request: Value) -> Result<Tensors, DeviceError> {
        let answer = SharedFile::new("sweeper-answer").map_err(of_system)?;
        request["results"] = json!(answer.path());
        self.ask(None, &request)?;
        answer.tensors().map_err(of_system)
    }
}

/// An answer that stays in the interpreter which computed it, for outputs to be compared there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// The problem: answers of others go when one of this is kept.
    pub problem: String,
    /// What it is the answer for: it takes the place of the one before.
    pub slot: Slot,
}

/// Inputs of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Slot {
    /// The published ones.
    Published,
    /// Those that show mistakes.
    Showing,
    /// The first ones of an audit.
    Audit,
    /// Further ones of an audit.
    FurtherAudit,
}
