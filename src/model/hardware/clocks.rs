//! How a GPU was doing while it was measured: clocks, temperature, power, and reasons for
//! throttling.

use serde::{Deserialize, Serialize};

/// One reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// Temperature of the chip, in degrees Celsius.
    pub temperature_c: u32,
    /// Power drawn, in milliwatts.
    pub power_mw: u32,
    /// Reasons for which clocks are lower than they could be, as NVML numbers its bits.
    pub reasons: u64,
    /// A process that is none of this sweep's has the device open.
    pub is_shared: bool,
}

/// NVML's bits that mean trouble, and words for them. Other bits mean that the device has nothing
/// to do, or that its clocks were set.
const REASONS: [(u64, &str); 5] = [
    (0x04, "power_cap"),
    (0x08, "hardware_slowdown"),
    (0x20, "software_thermal"),
    (0x40, "hardware_thermal"),
    (0x80, "power_brake"),
];

impl Clocks {
    /// True if the device held its clocks back.
    pub fn is_throttled(self) -> bool {
        REASONS.iter().any(|(bit, _)| self.reasons & bit != 0)
    }
}

/// Readings of one point's samples, added up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockSummary {
    /// Median clock of the multiprocessors, in MHz.
    pub sm_mhz: u32,
    /// Greatest temperature, in degrees Celsius.
    pub temperature_c: u32,
    /// Median power, in watts.
    pub power_w: f64,
    /// Reasons for throttling in any sample that was kept.
    pub throttled_by: Vec<String>,
}

impl ClockSummary {
    /// The summary of some readings, if there are any.
    pub fn of(readings: &[Clocks]) -> Option<Self> {
        let median = |value: fn(&Clocks) -> u32| {
            let mut values: Vec<u32> = readings.iter().map(value).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        let reasons = readings.iter().fold(0, |all, one| all | one.reasons);
        let words = REASONS.iter().filter(|(bit, _)| reasons & bit != 0);
        Some(ClockSummary {
            sm_mhz: median(|one| one.sm_mhz)?,
            temperature_c: readings.iter().map(|one| one.temperature_c).max()?,
            power_w: f64::from(median(|one| one.power_mw)?) / 1e3,
            throttled_by: words.map(|(_, word)| (*word).to_owned()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_keep_the_worst() {
        assert_eq!(ClockSummary::of(&[]), None);
        let reading = |sm_mhz, temperature_c, reasons| Clocks {
            sm_mhz,
            temperature_c,
            power_mw: 500_000,
            reasons,
            is_shared: false,
        };
        let readings = [
            reading(1980, 40, 1),
            reading(1200, 71, 0x24),
            reading(1975, 50, 0),
        ];
        let summary = ClockSummary::of(&readings).unwrap();
        assert_eq!((summary.sm_mhz, summary.temperature_c), (1975, 71));
        assert_eq!(summary.throttled_by, ["power_cap", "software_thermal"]);
        assert!((summary.power_w - 500.0).abs() < 1e-9);
        let throttled: Vec<bool> = readings.iter().map(|one| one.is_throttled()).collect();
        assert_eq!(throttled, [false, true, false]);
    }
}
