//! Readings of NVIDIA's management library while a device works. Where the library is missing, only
//! these readings are.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use crate::hardware::clocks::Clocks;

/// The name that drivers install; the one without a number comes with developers' packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// A reading is used for so long: asking takes time that would be better spent at measuring.
const INTERVAL: Duration = Duration::from_millis(20);

/// Reads one device's clocks.
pub struct Monitor {
    nvml: Nvml,
    index: u32,
    last: Option<(Instant, Clocks)>,
}

impl Monitor {
    /// A monitor of the device with this UUID, where the library is there and knows it.
    pub fn of(uuid: &str) -> Option<Self> {
        let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().ok()?;
        let index = nvml.device_by_uuid(uuid).ok()?.index().ok()?;
        let monitor = Monitor {
            nvml,
            index,
            last: None,
        };
        // Virtual GPUs may answer none of the questions: then there is nothing to watch.
        monitor.read().ok()?;
        Some(monitor)
    }

    /// How the device is doing, as of a moment ago.
    pub fn clocks(&mut self) -> Option<Clocks> {
        if let Some((at, clocks)) = self.last
            && at.elapsed() < INTERVAL
        {
            return Some(clocks);
        }
        let clocks = self.read().ok()?;
        self.last = Some((Instant::now(), clocks));
        Some(clocks)
    }

    fn read(&self) -> Result<Clocks, NvmlError> {
        let device = self.nvml.device_by_index(self.index)?;
        Ok(Clocks {
            sm_mhz: device.clock_info(Clock::SM)?,
            temperature_c: device.temperature(TemperatureSensor::Gpu)?,
            power_mw: device.power_usage().unwrap_or(0),
            reasons: device.current_throttle_reasons()?.bits(),
        })
    }
}
