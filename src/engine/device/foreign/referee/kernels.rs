//! Kernels that nobody trusts: where their buffers lie, and what their process is asked for.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Arg, Binding, Buffer, Geometry, Kernel, Program, Step, View};

use super::places::{Initial, Places};
use super::unavailable;
use crate::device::cpu::run::check_writes_are_exclusive;
use crate::device::{Artifact, DeviceError};

/// A program of kernels, all of whose buffers lie in memory that the referee writes.
pub(super) struct Kernels {
    program: Program,
    /// Where each buffer begins, in bytes from the first tensor of a set, and the bytes of a set.
    offsets: Vec<u64>,
    set_bytes: u64,
}

/// What the process of kernels calls.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Task {
    /// The functions, in the order of their calls.
    pub(super) calls: Vec<Call>,
    /// The arguments of all calls, one behind the other, for each set of tensors.
    pub(super) cells: Vec<u64>,
    /// So many arguments belong to a set.
    pub(super) cells_of_set: usize,
    /// Address and bytes of each result of each set, in the process's memory.
    pub(super) results: Vec<(u64, u64)>,
    /// The shared objects: the key of each, and its file.
    pub(super) objects: Vec<(String, PathBuf)>,
}

/// A call of a function.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Call {
    /// The number of its shared object.
    pub(super) object: usize,
    pub(super) entry: String,
    /// The number of its first argument in a set.
    pub(super) first_cell: usize,
    /// The bytes of each argument.
    pub(super) argument_bytes: Vec<usize>,
    /// How a GPU launches it.
    pub(super) geometry: Geometry,
}

impl Kernels {
    /// The kernels of a program, the places of its buffers, and its results, each in one dimension.
    ///
    /// # Errors
    /// A program that does more than to call kernels of a user.
    pub(super) fn new(program: Program) -> Result<(Self, Places, Vec<TensorSpec>), DeviceError> {
        program.validate().map_err(DeviceError::Launch)?;
        check_writes_are_exclusive(&program).map_err(DeviceError::Launch)?;
        let (mut inputs, mut others, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for (number, buffer) in program.buffers.iter().enumerate() {
            let spec = spec_of(buffer);
            match buffer.binding {
                Binding::Given => inputs.push(spec),
                Binding::Result | Binding::Scratch => {
                    if buffer.binding == Binding::Result {
                        outputs.push(spec.clone());
                    }
                    let initial = initial(&program, number, &spec)?;
                    others.push((spec, initial));
                }
                Binding::Updated { .. } | Binding::Symbol { .. } => return Err(other_program()),
            }
        }
        let places = Places::of_buffers(inputs, others);
        let offset = |buffer: &Buffer| places.offset(&buffer.name).unwrap_or_default() as u64;
        let offsets = program.buffers.iter().map(offset).collect();
        let set_bytes = places.bytes() as u64;
        let kernels = Kernels {
            program,
            offsets,
            set_bytes,
        };
        Ok((kernels, places, outputs))
    }

    /// What a process is asked for that has so many sets of tensors from this address on. Shared
    /// objects are written into a folder that it reads.
    ///
    /// # Errors
    /// The system's, and a program that does more than to call kernels.
    pub(super) fn task(
        &self,
        (address, sets): (u64, usize),
        artifacts: &[Artifact],
        folder: &Path,
    ) -> Result<Task, DeviceError> {
        let mut task = Task::default();
        for (number, artifact) in artifacts.iter().enumerate() {
            let path = folder.join(format!("kernels-{number}"));
            let written = fs::write(&path, &artifact.bytes);
            written.map_err(|error| unavailable(&error.to_string()))?;
            task.objects.push((artifact.key.clone(), path));
        }
        for set in 0..sets as u64 {
            let first = address + set * self.set_bytes;
            let addresses: Vec<u64> = self.offsets.iter().map(|offset| first + offset).collect();
            for step in &self.program.steps {
                let Step::Launch { args, .. } = step else {
                    return Err(other_program());
                };
                let cells = args.iter().map(|arg| self.cell(arg, &addresses));
                task.cells.extend(cells);
            }
            let buffers = self.program.buffers.iter().zip(&addresses);
            let results = buffers.filter(|(buffer, _)| buffer.binding == Binding::Result);
            let results = results.map(|(buffer, address)| (*address, buffer.size_bytes()));
            task.results.extend(results);
        }
        task.cells_of_set = task.cells.len() / sets.max(1);
        self.add_calls(&mut task, artifacts)?;
        Ok(task)
    }

    /// Adds the calls of a set.
    fn add_calls(&self, task: &mut Task, artifacts: &[Artifact]) -> Result<(), DeviceError> {
        let positions = self.program.source_positions();
        let mut first_cell = 0;
        for step in &self.program.steps {
            let Step::Launch {
                kernel,
                geometry,
                args,
            } = step
            else {
                return Err(other_program());
            };
            let (Kernel::Compiled(source), Some(object)) =
                (&self.program.kernels[kernel.0], positions[kernel.0])
            else {
                return Err(other_program());
            };
            task.calls.push(Call {
                object,
                entry: artifacts[object].symbol(&source.entry).to_owned(),
                first_cell,
                argument_bytes: args.iter().map(bytes_of).collect(),
                geometry: *geometry,
            });
            first_cell += args.len();
        }
        Ok(())
    }

    fn cell(&self, arg: &Arg, addresses: &[u64]) -> u64 {
        match arg {
            Arg::Read(view) | Arg::Write(view) => {
                let size = self.program.buffers[view.buffer.0].dtype.size_bytes();
                addresses[view.buffer.0] + (view.offset.at(&[]) as usize * size) as u64
            }
            Arg::Int(index) => index.at(&[]) as u64,
            Arg::Float(value) => u64::from(value.to_bits()),
            Arg::Scalar(scalar) => scalar.bits(),
        }
    }
}

/// The bytes of an argument.
fn bytes_of(arg: &Arg) -> usize {
    match arg {
        Arg::Scalar(scalar) => scalar.dtype().size_bytes(),
        Arg::Read(_) | Arg::Write(_) | Arg::Int(_) | Arg::Float(_) => size_of::<u64>(),
    }
}

fn spec_of(buffer: &Buffer) -> TensorSpec {
    TensorSpec {
        name: buffer.name.to_string(),
        dtype: buffer.dtype,
        shape: vec![buffer.len],
    }
}

/// What the steps before the timed ones leave in a buffer.
fn initial(program: &Program, buffer: usize, spec: &TensorSpec) -> Result<Initial, DeviceError> {
    let is_whole = |view: &View| *view == program.all(view.buffer);
    let mut found = Initial::Poison;
    for step in &program.prologue {
        match step {
            Step::Fill { view, value } if view.buffer.0 == buffer && is_whole(view) => {
                found = Initial::constant(spec, *value);
            }
            Step::Copy { from, to } if to.buffer.0 == buffer && is_whole(from) && is_whole(to) => {
                let from = &program.buffers[from.buffer.0];
                found = Initial::Input(from.name.to_string());
            }
            Step::Fill { view, .. } | Step::Copy { to: view, .. } if view.buffer.0 != buffer => {}
            _ => return Err(other_program()),
        }
    }
    Ok(found)
}

fn other_program() -> DeviceError {
    unavailable(
        "of programs that nobody trusts the referee runs those of kernels of the user alone",
    )
}
