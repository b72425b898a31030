//! Right answers that wait for the device: its own, another backend's, or those of a reference that
//! runs on it.

use std::panic::resume_unwind;
use std::thread;

use sweeper_program::workload::AnswerSource;
use sweeper_program::{Program, Tensors};

use super::{ContextError, program};
use crate::device::{Device, memory};
use crate::execute::block::Listener;
use crate::execute::block_inputs::{BlockInputs, SmallerProblem, covering_phase};
use crate::execute::device_oracle::{Answered, DeviceOracle};
use crate::execute::foreign_oracle;
use crate::execute::peer::Peer;
use crate::execute::protocol::Stage;
use crate::execute::verify::ProblemInstance;

/// Asks the device for the right answers, if that is what a smaller problem is for; the host, where
/// it has none.
pub(super) fn answered_by_device(
    oracle: &DeviceOracle<'_>,
    block_inputs: BlockInputs,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
) -> Result<BlockInputs, ContextError> {
    let BlockInputs {
        mut whole,
        smaller,
        mut showing,
    } = block_inputs;
    let (block, answers) = (oracle.block, oracle.answers);
    let smaller = match smaller {
        SmallerProblem::Trial(small) => {
            let asked = (&mut whole, showing.as_mut());
            match oracle.answer(asked, &small, device, listener)? {
                Answered::Whole => SmallerProblem::Nothing,
                Answered::Reduced(copy) => SmallerProblem::Reduced(copy),
                Answered::Nothing => {
                    let left_bytes = memory::available_bytes();
                    let by_host = BlockInputs::with_host_oracle(block, whole, left_bytes, answers);
                    whole = by_host.whole;
                    let phase = covering_phase(block);
                    showing = showing.map(|it| it.answered(&block.problem, phase, answers));
                    by_host.smaller
                }
            }
        }
        smaller => smaller,
    };
    Ok(BlockInputs {
        whole,
        smaller,
        showing,
    })
}

/// Asks another backend, or a reference that waited for the device, for the right answer.
pub(super) fn answered_by_reference(
    oracle: &DeviceOracle<'_>,
    whole: &mut ProblemInstance,
    device: &mut dyn Device,
    listener: &mut dyn Listener,
) -> Result<(), ContextError> {
    let (block, artifacts) = (oracle.block, oracle.artifacts);
    foreign_oracle::forget_others(block);
    if let Some(AnswerSource::Backend { name, judged }) = whole.problem.answer_source() {
        let peer = Peer {
            name: &name,
            judged: judged.as_deref(),
        };
        whole.expected = Some(peer.answer(block, whole, artifacts, device, listener)?);
        whole.peer = Some(name);
    }
    if whole.expected.is_none()
        && foreign_oracle::waits_for_device(whole.problem.as_ref())
        && let Some(first) = block.points.first()
    {
        listener.working(first.number, Stage::Reference);
        // What is left of the problem before takes memory of the device, which the reference needs.
        // A device that is lost is told by the next that asks it.
        let _ = device.bind(&Tensors::new());
        // Libraries take seconds to import, in the interpreters of references and of functions.
        let programs = block.points.iter().filter_map(|point| {
            let program = program(whole.problem.as_ref(), point, device);
            program.ok()
        });
        let programs: Vec<Program> = programs.collect();
        foreign_oracle::start_interpreter(block, whole.problem.as_ref());
        let found = thread::scope(|scope| {
            let answer = || foreign_oracle::answer(block, whole, oracle.answers);
            let answer = scope.spawn(answer);
            let functions = programs.iter().filter_map(Program::foreign);
            functions.for_each(|function| device.load_foreign(function));
            answer.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        whole.expected = found.transpose()?;
    }
    Ok(())
}
