//! The driver: whether it is there, and the meaning of its errors.

use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use crate::device::DeviceError;

/// The least driver, as it numbers the CUDA it supports: older ones lack functions that are called.
const LEAST_CUDA: i32 = 13_000;

/// Starts the driver, once a process; the version of CUDA that it supports, as `1000 major + 10
/// minor`.
///
/// # Errors
/// The missing part, and the package to install. Nothing else of this module's folder may be called
/// then: calls into a library that is not there panic.
pub fn start() -> Result<i32, String> {
    static STARTED: OnceLock<Result<i32, String>> = OnceLock::new();
    STARTED.get_or_init(start_now).clone()
}

fn start_now() -> Result<i32, String> {
    if !is_present() {
        return Err(
            "there is no CUDA driver (libcuda.so.1): install NVIDIA's driver 580 or newer, or in a \
             container start it with the host's driver"
                .to_owned(),
        );
    }
    let version = version().map_err(|fault| fault.to_string())?;
    if version < LEAST_CUDA {
        return Err(format!(
            "the CUDA driver supports CUDA {}, {} is needed: install NVIDIA's driver 580 or newer",
            version_text(version),
            version_text(LEAST_CUDA)
        ));
    }
    result::init()
        .during("starting the CUDA driver")
        .map_err(|fault| invisible(fault, std::env::var(VISIBLE).ok().as_deref()))?;
    Ok(version)
}

/// Restricts which devices a process sees.
pub const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// The message where no device is seen, with the value of [`VISIBLE`].
fn invisible(fault: Fault, visible: Option<&str>) -> String {
    match (fault.code, visible) {
        (NO_DEVICE | INVALID_DEVICE, Some("")) => format!("{VISIBLE} is empty: it hides every GPU"),
        (NO_DEVICE | INVALID_DEVICE, Some(value)) => {
            format!("{VISIBLE}={value} names no GPU of this machine (`nvidia-smi -L` lists them)")
        }
        (NO_DEVICE, None) => {
            "there is a CUDA driver, and no GPU (/dev/nvidia* of a container?)".to_owned()
        }
        _ => fault.to_string(),
    }
}

/// Numbers of the driver's errors that are spoken of below.
const OUT_OF_MEMORY: u32 = 2;
const NOT_AVAILABLE: u32 = 46;
const NO_DEVICE: u32 = 100;
const INVALID_DEVICE: u32 = 101;
const NO_BINARY: u32 = 209;
const NO_TRANSLATOR: u32 = 221;
const NOT_READY: u32 = 802;
const DRIVER_MISMATCH: u32 = 803;

/// Advice about an error, where the driver's words have none.
fn hint(code: u32) -> Option<&'static str> {
    match code {
        NOT_AVAILABLE => Some(
            "another process uses the device exclusively, or its mode forbids computing \
             (`nvidia-smi -q -d COMPUTE`)",
        ),
        NO_BINARY => Some("the kernel was compiled for another architecture than this device's"),
        NO_TRANSLATOR => Some(
            "libnvidia-ptxjitcompiler.so.1 belongs to the driver: a container needs it too; \
             `l2 = \"cold\"` does without",
        ),
        NOT_READY => Some("the system's fabric manager is not running, or not yet"),
        DRIVER_MISMATCH => {
            Some("the driver's library and its kernel module differ: restart the machine")
        }
        _ => None,
    }
}

/// A version of CUDA for people, such as `13.0`.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Whether the driver's library is here.
#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
pub fn is_present() -> bool {
    // SAFETY: the names that are tried are those of NVIDIA's driver library.
    unsafe { sys::is_culib_present() }
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn version() -> Result<i32, Fault> {
    let mut version = 0;
    // SAFETY: the library is there, and the pointer is to a number of the right type.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }
        .result()
        .during("asking for the driver's version")?;
    Ok(version)
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Fault {
    code: u32,
    what: String,
}

impl Fault {
    /// This fault, of opening a device: it mentions other users of the device's memory.
    pub fn of_opening(mut self) -> Self {
        if self.code == OUT_OF_MEMORY {
            self.what
                .push_str("; other processes hold the device's memory (`nvidia-smi` lists them)");
        }
        self
    }

    /// A refusal that the driver was not even asked for.
    pub fn refused(what: impl Into<String>) -> Self {
        Fault {
            code: sys::CUresult::CUDA_ERROR_INVALID_VALUE as u32,
            what: what.into(),
        }
    }

    /// True if the device can't do the requested operation.
    pub fn is_unsupported(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32
    }

    /// This fault, with the name of its kernel.
    pub fn of_kernel(mut self, name: &str) -> Self {
        self.what = format!("`{name}`: {}", self.what);
        self
    }

    /// The error of the device. `needed_bytes` and `available_bytes` are told where memory is
    /// missing.
    pub fn means(self, needed_bytes: u64, available_bytes: u64) -> DeviceError {
        match self.code {
            OUT_OF_MEMORY => DeviceError::OutOfMemory {
                needed_bytes,
                available_bytes,
            },
            NOT_AVAILABLE | NO_DEVICE | INVALID_DEVICE => DeviceError::Unavailable(self.what),
            // Every call after one of these errors fails with it again, until the process ends.
            214 | 700 | 702 | 710 | 714..=719 | 999 => DeviceError::Lost(self.what),
            _ => DeviceError::Launch(self.what),
        }
    }
}

/// Gives the driver's errors a place.
pub trait During<T> {
    /// The value, or a fault that says that it happened while `doing`.
    ///
    /// # Errors
    /// The driver's.
    fn during(self, doing: &str) -> Result<T, Fault>;
}

impl<T> During<T> for Result<T, DriverError> {
    fn during(self, doing: &str) -> Result<T, Fault> {
        self.map_err(|error| {
            let code = error.0 as u32;
            let words = match (error.error_name(), error.error_string()) {
                (Ok(name), Ok(text)) => {
                    format!("{}, {}", name.to_string_lossy(), text.to_string_lossy())
                }
                _ => format!("error {code}"),
            };
            let hint = hint(code).map(|hint| format!(" ({hint})"));
            Fault {
                code,
                what: format!("{doing}: {words}{}", hint.unwrap_or_default()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(code: u32) -> DeviceError {
        let what = code.to_string();
        Fault { code, what }.means(8, 4)
    }

    #[test]
    fn only_sticky_errors_lose_the_device() {
        for code in [214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999] {
            assert!(matches!(meaning(code), DeviceError::Lost(_)), "{code}");
        }
        for code in [1, 200, 209, 500, 701, 713, 720, 801] {
            assert!(matches!(meaning(code), DeviceError::Launch(_)), "{code}");
        }
        let out_of_memory = DeviceError::OutOfMemory {
            needed_bytes: 8,
            available_bytes: 4,
        };
        assert_eq!(meaning(2), out_of_memory);
        assert_eq!(version_text(13_010), "13.1");
        assert!(matches!(meaning(46), DeviceError::Unavailable(_)));
    }

    #[test]
    fn what_hides_a_gpu_is_named() {
        let said = |code, visible| {
            let what = "starting".to_owned();
            invisible(Fault { code, what }, visible)
        };
        assert!(said(100, Some("")).contains("CUDA_VISIBLE_DEVICES is empty"));
        assert!(said(100, Some("7")).contains("CUDA_VISIBLE_DEVICES=7 names no GPU"));
        assert!(said(100, None).contains("no GPU"));
        assert_eq!(said(999, Some("0")), "starting");
        assert!(hint(209).is_some() && hint(1).is_none());
        let full = Fault {
            code: 2,
            what: "making a context".to_owned(),
        };
        assert!(full.of_opening().to_string().contains("other processes"));
    }
}
