//! The devices that exist, without opening one.

use std::collections::BTreeMap;
use std::fs;
use std::sync::OnceLock;

use cudarc::driver::{result, sys};
use sys::CUdevice_attribute as Attribute;

use super::driver::{self, During, Fault};
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};

/// All devices that this process may use, by number.
///
/// # Errors
/// Why there are none, and how to change that.
pub fn all() -> Result<&'static [DeviceIdentity], String> {
    static ALL: OnceLock<Result<Vec<DeviceIdentity>, String>> = OnceLock::new();
    match ALL.get_or_init(find) {
        Ok(devices) => Ok(devices),
        Err(reason) => Err(reason.clone()),
    }
}

/// Whether there is a driver, which is not started.
pub fn has_driver() -> bool {
    driver::is_present()
}

/// The device with this number.
///
/// # Errors
/// Why it is not there.
pub fn of(ordinal: u32) -> Result<&'static DeviceIdentity, String> {
    let devices = all()?;
    let device = devices.get(ordinal as usize).ok_or_else(|| {
        format!(
            "there is no CUDA device {ordinal}: this process sees {} (`sweeper devices` lists them)",
            devices.len()
        )
    })?;
    match too_old(&device.details["compute_capability"]) {
        true => Err(format!(
            "{} has compute capability {}, kernels need {}.{} or newer",
            device.name,
            device.details["compute_capability"],
            LEAST_CAPABILITY.0,
            LEAST_CAPABILITY.1
        )),
        false => Ok(device),
    }
}

/// The oldest devices that the compiler of the least driver makes code for.
const LEAST_CAPABILITY: (u32, u32) = (7, 5);

fn too_old(capability: &str) -> bool {
    let numbers = capability.split_once('.');
    let pair = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    pair.is_some_and(|pair: (u32, u32)| pair < LEAST_CAPABILITY)
}

fn find() -> Result<Vec<DeviceIdentity>, String> {
    let cuda = driver::start()?;
    let count = result::device::get_count()
        .during("counting devices")
        .map_err(|fault| fault.to_string())?;
    if count == 0 {
        return Err(format!(
            "the CUDA driver sees no GPU; look at {}",
            driver::VISIBLE
        ));
    }
    (0..count)
        .map(|ordinal| describe(ordinal, cuda).map_err(|fault| fault.to_string()))
        .collect()
}

fn describe(ordinal: i32, cuda: i32) -> Result<DeviceIdentity, Fault> {
    let device = result::device::get(ordinal).during("looking at a device")?;
    let name = result::device::get_name(device).during("asking for a device's name")?;
    let uuid = result::device::get_uuid(device).during("asking for a device's UUID")?;
    let number = |kind| attribute(device, kind);
    let major = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let mut details: BTreeMap<String, String> = [
        ("arch", arch(major, minor)),
        ("compute_capability", format!("{major}.{minor}")),
        ("cuda", driver::version_text(cuda)),
        ("memory_bytes", total_bytes(device)?.to_string()),
        (
            "l2_bytes",
            number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?.to_string(),
        ),
        (
            "multiprocessors",
            number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.to_string(),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let kernel_module = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    if let Some(version) = driver_version(&kernel_module) {
        details.insert("driver".to_owned(), version);
    }
    Ok(DeviceIdentity {
        kind: DeviceKind::Cuda,
        name,
        unit: uuid_text(uuid.bytes.map(|byte| byte as u8)),
        details,
    })
}

/// The architecture that programs are compiled for: with its own instructions where a kernel may
/// use them.
fn arch(major: i32, minor: i32) -> String {
    match (major, minor) {
        (9, 0) => "sm_90a".to_owned(),
        _ => format!("sm_{major}{minor}"),
    }
}

/// A device that need not be here, by its architecture: `sm_90`, `sm_90a`, `90` and `9.0` are one.
///
/// # Errors
/// If that is not an architecture.
pub fn of_arch(text: &str) -> Result<DeviceIdentity, String> {
    let digits: String = text
        .trim_start_matches("sm_")
        .trim_end_matches('a')
        .split('.')
        .collect();
    let number: i32 = digits.parse().ok().filter(|number| *number >= 10).ok_or_else(|| {
        format!("`{text}` is not an architecture of a GPU; `sweeper devices` names them where they are, such as sm_80 or sm_90")
    })?;
    let arch = arch(number / 10, number % 10);
    Ok(DeviceIdentity {
        kind: DeviceKind::Cuda,
        name: arch.clone(),
        unit: String::new(),
        details: [("arch".to_owned(), arch)].into(),
    })
}

/// A UUID as NVIDIA's tools write it.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = hex::encode(bytes);
    let (a, b, c, d, e) = (
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    );
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

/// The version in the driver's own account of itself: the first word like `580.65.06`.
fn driver_version(account: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word
                .bytes()
                .all(|byte| byte == b'.' || byte.is_ascii_digit())
    };
    account
        .split_whitespace()
        .find(is_version)
        .map(str::to_owned)
}

/// An attribute of a device.
///
/// # Errors
/// The driver's.
#[expect(unsafe_code, reason = "a call of the driver")]
pub fn attribute(device: sys::CUdevice, attribute: Attribute) -> Result<i32, Fault> {
    // SAFETY: devices are made by `cuDeviceGet` alone.
    unsafe { result::device::get_attribute(device, attribute) }
        .during("asking for an attribute of the device")
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn total_bytes(device: sys::CUdevice) -> Result<usize, Fault> {
    // SAFETY: as in `attribute`.
    unsafe { result::device::total_mem(device) }.during("asking for the device's memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_other_tools() {
        assert_eq!(arch(9, 0), "sm_90a");
        assert_eq!(arch(8, 6), "sm_86");
        assert_eq!(arch(12, 0), "sm_120");
        assert!(too_old("7.0") && too_old("6.1"));
        assert!(!too_old("7.5") && !too_old("10.0"));
        for text in ["sm_90", "sm_90a", "90", "9.0"] {
            assert_eq!(of_arch(text).unwrap().details["arch"], "sm_90a", "{text}");
        }
        assert_eq!(of_arch("sm_120").unwrap().details["arch"], "sm_120");
        assert!(of_arch("hopper").unwrap_err().contains("sm_80"));
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8);
        assert_eq!(uuid_text(bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        let account = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release\n\
                       GCC version:  gcc version 13.3.0";
        assert_eq!(driver_version(account).as_deref(), Some("580.65.06"));
        assert_eq!(driver_version(""), None);
    }
}
