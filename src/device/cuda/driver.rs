//! The driver: whether it is there, and what its complaints mean.

use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use crate::device::DeviceError;

/// The least driver, as it numbers the CUDA it supports: older ones lack functions that are called.
const LEAST_CUDA: i32 = 13_000;

/// Starts the driver, once a process; the version of CUDA that it supports, as `1000 major + 10 minor`.
///
/// # Errors
/// What is missing here, and what to install. Nothing else of this module's folder may be called
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
        .map_err(|fault| {
            format!("{fault}; is a GPU visible here (CUDA_VISIBLE_DEVICES, /dev/nvidia*)?")
        })?;
    Ok(version)
}

/// A version of CUDA for people, such as `13.0`.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[expect(unsafe_code, reason = "loading a library runs its initialisers")]
fn is_present() -> bool {
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
    /// A refusal that the driver was not even asked for.
    pub fn refused(what: impl Into<String>) -> Self {
        Fault {
            code: sys::CUresult::CUDA_ERROR_INVALID_VALUE as u32,
            what: what.into(),
        }
    }

    /// True if the device can't do what was asked for.
    pub fn is_unsupported(&self) -> bool {
        self.code == sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as u32
    }

    /// The same, with the kernel that it is about.
    pub fn of_kernel(mut self, name: &str) -> Self {
        self.what = format!("`{name}`: {}", self.what);
        self
    }

    /// What it means for the device. `needed_bytes` and `available_bytes` are told where memory is
    /// what is missing.
    pub fn means(self, needed_bytes: u64, available_bytes: u64) -> DeviceError {
        match self.code {
            2 => DeviceError::OutOfMemory {
                needed_bytes,
                available_bytes,
            },
            100 | 101 => DeviceError::Unavailable(self.what),
            // Whatever is called after one of these fails with it again, until the process ends.
            214 | 700 | 702 | 710 | 714..=719 | 999 => DeviceError::Lost(self.what),
            _ => DeviceError::Launch(self.what),
        }
    }
}

/// Gives the driver's errors a place.
pub trait During<T> {
    /// The value, or what went wrong while `doing`.
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
            Fault {
                code,
                what: format!("{doing}: {words}"),
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
    }
}
