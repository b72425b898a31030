//! Outputs of a program: in memory of the host, or where an interpreter left them on a GPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Tensor, Tensors};

/// How outputs are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Their shapes.
    pub specs: &'a [TensorSpec],
    /// Outputs on a GPU may stay there, if another process can open that memory.
    pub may_stay: bool,
}

/// Outputs of a program's last run.
#[derive(Clone, Debug)]
pub enum Outputs {
    /// Their elements.
    Host(Tensors),
    /// Where they lie, by name. They are there until the program is asked for something else.
    Gpu(BTreeMap<String, GpuTensor>),
}

impl Outputs {
    /// The extents of an output.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        match self {
            Outputs::Host(tensors) => tensors.get(name).map(Tensor::shape),
            Outputs::Gpu(tensors) => tensors.get(name).map(|held| &held.shape[..]),
        }
    }

    /// Their elements, where the host has them.
    pub fn on_host(&self) -> Option<&Tensors> {
        match self {
            Outputs::Host(tensors) => Some(tensors),
            Outputs::Gpu(_) => None,
        }
    }
}

/// A tensor in memory of a GPU that another process of this machine opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuTensor {
    /// The handle of the allocation, of `cuIpcGetMemHandle`, in hexadecimal.
    pub handle: String,
    /// Where it begins there, in bytes.
    pub offset: u64,
    /// Its type, by the name that manifests have.
    pub dtype: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Sums over all of its bits, each mixed with its place: other elements have others.
    pub sums: Vec<i64>,
}
