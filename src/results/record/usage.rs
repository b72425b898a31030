//! How the devices' time was used, for the end of a run and its folder.

use serde::{Deserialize, Serialize};

use sweeper_model::hardware::DeviceKind;
use sweeper_model::hardware::ceilings::Ceilings;
use sweeper_model::identity::PointId;

/// An anchor point that was measured again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnchorReading {
    /// The device, by position among the run's.
    pub device: usize,
    /// The point.
    pub point: PointId,
    /// When, from the first measurement on, in seconds.
    pub after_s: f64,
    /// The median, in nanoseconds.
    pub median_ns: f64,
    /// The median in units of the first one.
    pub ratio: f64,
}

/// How one device's time was used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// The kind of device.
    pub kind: DeviceKind,
    /// The device's name.
    pub name: String,
    /// Unit of the device, which tells it from others of its name.
    pub unit: String,
    /// Blocks it measured.
    pub blocks: u32,
    /// How long it had a block, in seconds.
    pub at_work_s: f64,
    /// How long it ran programs, in seconds.
    pub running_s: f64,
    /// Ceilings of the device, where they are known.
    pub ceilings: Option<Ceilings>,
}

/// The part of a time in which some process of the machine waited for a processor, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// Of the ten seconds before the first block.
    pub before_percent: f64,
    /// From the first block to the last.
    pub during_percent: f64,
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
    /// How much processes waited for the machine's processors, where the system says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
}

impl RunUsage {
    /// How far an anchor point was from its first measurement at most: 0.02 is 2 %. None where none
    /// was measured again.
    pub fn drift(&self) -> Option<f64> {
        let ratios = self.anchors.iter().map(|reading| reading.ratio);
        ratios.map(|ratio| (ratio - 1.0).abs()).reduce(f64::max)
    }

    /// The work of several processes, each with devices of its own: times add up, and a device that
    /// several of them used is one.
    pub fn sum(parts: &[RunUsage]) -> Self {
        let mut devices: Vec<DeviceUsage> = Vec::new();
        for device in parts.iter().flat_map(|part| &part.devices) {
            let name = |held: &DeviceUsage| (held.kind, held.name.clone(), held.unit.clone());
            match devices.iter_mut().find(|held| name(held) == name(device)) {
                None => devices.push(device.clone()),
                Some(held) => {
                    held.blocks += device.blocks;
                    held.at_work_s += device.at_work_s;
                    held.running_s += device.running_s;
                }
            }
        }
        // Devices of one process work for as long as that process does.
        let device_s = |part: &RunUsage| part.wall_s * part.devices.len() as f64;
        let all_s: f64 = parts.iter().map(device_s).sum();
        let share = |of: fn(&RunUsage) -> f64| match all_s {
            all_s if all_s > 0.0 => {
                let parts = parts.iter().map(|part| of(part) * device_s(part));
                parts.sum::<f64>() / all_s
            }
            _ => 0.0,
        };
        RunUsage {
            wall_s: parts.iter().map(|part| part.wall_s).sum(),
            at_work: share(|part| part.at_work),
            running: share(|part| part.running),
            compiled: parts.iter().map(|part| part.compiled).sum(),
            anchors: parts.iter().flat_map(|part| part.anchors.clone()).collect(),
            // Each is that of another time or machine.
            pressure: None,
            devices,
        }
    }

    /// Adds up the devices' work in `wall_s` seconds.
    pub fn new(
        wall_s: f64,
        compiled: usize,
        devices: Vec<DeviceUsage>,
        anchors: Vec<AnchorReading>,
    ) -> Self {
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
            pressure: None,
        }
    }
}
