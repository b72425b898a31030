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

impl DeviceKind {
    /// The word of manifests and rows.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Null => "null",
        }
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
