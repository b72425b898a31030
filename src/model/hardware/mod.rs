//! Devices as data: their kind, identity, memory, clocks and ceilings, without any way to run
//! something.
//!
//! Devices measure them; rows and reports hold them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub mod ceilings;
pub mod clocks;
pub mod peaks;

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    /// The host's processors.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// Nothing: times and memory follow a script.
    Null,
}

/// The properties of a kind of device that plans, runs and reports ask for.
#[derive(Debug)]
pub struct KindFacts {
    /// The word of manifests and rows.
    pub name: &'static str,
    /// False where times follow a script: nothing is compiled, and no time passes.
    pub computes: bool,
    /// The device has processors and memory of its own, which are not the host's.
    pub is_gpu: bool,
    /// Programs are launched in the ways that the manifest names, as graphs too.
    pub has_launch_modes: bool,
    /// The assumed scale of the difference of two runs, as a share.
    pub spread: f64,
}

impl DeviceKind {
    /// The properties of the kind.
    pub const fn facts(self) -> &'static KindFacts {
        match self {
            // Shared machines' processors change their clocks by a step or two between runs.
            DeviceKind::Cpu => &KindFacts {
                name: "cpu",
                computes: true,
                is_gpu: false,
                has_launch_modes: false,
                spread: 0.05,
            },
            DeviceKind::Cuda => &KindFacts {
                name: "cuda",
                computes: true,
                is_gpu: true,
                has_launch_modes: true,
                spread: 0.01,
            },
            DeviceKind::Null => &KindFacts {
                name: "null",
                computes: false,
                is_gpu: false,
                has_launch_modes: true,
                spread: 0.0,
            },
        }
    }

    /// The word of manifests and rows.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }
}

/// The identity of a device. Measurements on two devices are comparable where it is equal: equal
/// hardware and drivers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceIdentity {
    /// The kind.
    pub kind: DeviceKind,
    /// The product's name.
    pub name: String,
    /// Unit of the device, which tells it from others of its name: a GPU's UUID; empty for a CPU.
    pub unit: String,
    /// Everything else that a number may depend on, such as the driver's version.
    pub details: BTreeMap<String, String>,
}

impl DeviceIdentity {
    /// The name that rows have: the product's, and the unit where there are several.
    pub fn name_in_rows(&self) -> String {
        match self.unit.as_str() {
            "" => self.name.clone(),
            unit => format!("{} {unit}", self.name),
        }
    }

    /// The product's name in a name that rows have.
    pub fn model(name_in_rows: &str) -> &str {
        match name_in_rows.rsplit_once(' ') {
            Some((model, unit)) if unit.starts_with("GPU-") || unit.starts_with("MIG-") => model,
            _ => name_in_rows,
        }
    }
}

/// Memory of one prepared program as the device accounts for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// Greatest number of bytes that were allocated for the program at one time.
    pub peak_allocated_bytes: u64,
    /// Greatest number of bytes that the process or pool held from the system while it ran.
    pub peak_reserved_bytes: u64,
}
