//! How the devices' time was used, for the end of a run and its folder.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::anchors::AnchorReading;
use crate::device::ceilings::Ceilings;
use crate::device::{DeviceIdentity, DeviceKind};
use crate::execute::supervisor::Usage;

/// How one device's time was used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// The kind of device.
    pub kind: DeviceKind,
    /// The device's name.
    pub name: String,
    /// What tells it from others of its name.
    pub unit: String,
    /// Blocks it measured.
    pub blocks: u32,
    /// How long it had a block, in seconds.
    pub at_work_s: f64,
    /// How long it ran programs, in seconds.
    pub running_s: f64,
    /// What it can do, where that is known.
    pub ceilings: Option<Ceilings>,
}

/// How the time of a run was used, from the first block to the last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunUsage {
    /// How long measuring took, in seconds; zero on the null device.
    pub wall_s: f64,
    /// Part of that time for which devices had a block.
    pub at_work: f64,
    /// Part of that time for which devices ran programs.
    pub running: f64,
    /// Kernels that were compiled in it.
    pub compiled: usize,
    /// The devices.
    pub devices: Vec<DeviceUsage>,
    /// Anchor points that were measured again, in the order of time.
    #[serde(default)]
    pub anchors: Vec<AnchorReading>,
}

impl RunUsage {
    /// How far an anchor point was from its first measurement at most: 0.02 is 2 %. None where none was
    /// measured again.
    pub fn drift(&self) -> Option<f64> {
        let ratios = self.anchors.iter().map(|reading| reading.ratio);
        ratios.map(|ratio| (ratio - 1.0).abs()).reduce(f64::max)
    }

    /// Adds up; on the null device no time passes.
    pub fn new(
        wall: Duration,
        compiled: usize,
        devices: &[(&DeviceIdentity, Usage, Option<&Ceilings>)],
        anchors: Vec<AnchorReading>,
    ) -> Self {
        let is_null = devices
            .iter()
            .any(|(device, ..)| device.kind == DeviceKind::Null);
        let seconds = |time: Duration| {
            let rounded = (time.as_secs_f64() * 1e6).round() / 1e6;
            if is_null { 0.0 } else { rounded }
        };
        let devices: Vec<DeviceUsage> = devices
            .iter()
            .map(|(device, usage, ceilings)| DeviceUsage {
                kind: device.kind,
                name: device.name.clone(),
                unit: device.unit.clone(),
                blocks: usage.blocks,
                at_work_s: seconds(usage.at_work),
                running_s: seconds(usage.running),
                ceilings: ceilings.cloned(),
            })
            .collect();
        let wall_s = seconds(wall);
        let all_s = wall_s * devices.len() as f64;
        let part = |of: fn(&DeviceUsage) -> f64| match all_s {
            all_s if all_s > 0.0 => devices.iter().map(of).sum::<f64>() / all_s,
            _ => 0.0,
        };
        RunUsage {
            wall_s,
            at_work: part(|device| device.at_work_s),
            running: part(|device| device.running_s),
            compiled,
            devices,
            anchors,
        }
    }
}
