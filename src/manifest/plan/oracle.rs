//! Where the right outputs of a block come from, and the operations or the program that give them.

use std::sync::{Mutex, PoisonError};

use sweeper_program::workload::{AnswerSource, ORACLE_OPERATIONS_PER_SECOND};
use sweeper_program::{CanonicalShape, Phase, Problem, Program};

use super::{Kernels, PlanDevice};

/// An oracle that takes one thread of the host longer than so many seconds is asked on the device,
/// where that has one.
const HOST_ORACLE_S: f64 = 4.0;

/// Who is asked for a block's right outputs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Asked {
    /// Nobody: there are none, or a file has them.
    #[default]
    Nobody,
    /// The host's oracle, for so many operations in all.
    Host(f64),
    /// The device: its oracle, or the backend that is the reference.
    Device,
    /// A function in another process.
    Function,
}

/// The oracle of a block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockOracle {
    /// Who is asked.
    pub asked: Asked,
    /// The sources of the device's program, by position in [`Plan::kernels`](super::Plan::kernels);
    /// none where the device is not asked.
    pub kernels: Vec<u32>,
}

impl BlockOracle {
    /// The oracle of a problem; `kernels` number the sources of the device's.
    pub(super) fn of(
        problem: &dyn Problem,
        phase: Phase,
        shape: &CanonicalShape,
        device: &PlanDevice,
        kernels: &Mutex<Kernels>,
    ) -> Self {
        let (asked, programs): (_, Vec<Program>) = match problem.answer_source() {
            Some(AnswerSource::Backend { name, judged }) => {
                // A refusal is told by whoever runs it.
                let programs = [Some(name), judged].into_iter().flatten();
                let programs = programs
                    .filter_map(|name| problem.program(&name, phase, shape, &device.target).ok());
                (Asked::Nobody, programs.collect())
            }
            Some(AnswerSource::File { .. }) => (Asked::Nobody, Vec::new()),
            None => host_or_device(problem, phase, device),
        };
        if programs.is_empty() {
            let kernels = Vec::new();
            return BlockOracle { asked, kernels };
        }
        let mut kernels = kernels.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = programs.iter().flat_map(Program::sources);
        BlockOracle {
            asked: Asked::Device,
            kernels: sources.map(|source| kernels.intern(source)).collect(),
        }
    }
}

/// Who is asked where neither a backend nor a file is: also the program of the device's oracle, if
/// it has one and the host would take long.
fn host_or_device(
    problem: &dyn Problem,
    phase: Phase,
    device: &PlanDevice,
) -> (Asked, Vec<Program>) {
    if problem.foreign_oracle().is_some() {
        return (Asked::Function, Vec::new());
    }
    let operations = problem.oracle_operations(phase, 1);
    if operations.is_infinite() {
        return (Asked::Nobody, Vec::new());
    }
    let takes_long = operations > HOST_ORACLE_S * ORACLE_OPERATIONS_PER_SECOND;
    let on_device = (takes_long && device.kind.facts().is_gpu)
        .then(|| problem.device_oracle(phase, &device.target));
    let program = on_device.flatten().map(|oracle| oracle.program);
    (Asked::Host(operations), program.into_iter().collect())
}
