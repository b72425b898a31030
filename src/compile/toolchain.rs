//! The compilers of a machine.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread;

use sweeper_kernels::program::Language;

use super::cc::Cc;
use super::digests::Digests;
use super::nvrtc::Nvrtc;
use crate::device::DeviceKind;

/// The compilers that this machine has. Each is looked for when it is first asked for: that runs
/// programs, or reads a hundred megabytes.
#[derive(Clone, Debug)]
pub struct Toolchain {
    found: Arc<Found>,
}

/// Compilers, or why there are none, as far as anybody asked.
#[derive(Debug, Default)]
struct Found {
    /// The C compiler to use instead of the usual ones.
    named_cc: Option<PathBuf>,
    cc: OnceLock<Result<Cc, String>>,
    nvrtc: OnceLock<Result<Nvrtc, String>>,
    digests: Digests,
}

impl Toolchain {
    /// This machine's compilers. `cc` names the C compiler to use instead of the usual ones; digests of
    /// compilers are remembered in the folder of a cache.
    pub fn here(cc: Option<PathBuf>, cache: Option<&Path>) -> Self {
        Toolchain {
            found: Arc::new(Found {
                named_cc: cc,
                digests: Digests::remembered_in(cache),
                ..Found::default()
            }),
        }
    }

    /// No compilers, for this reason.
    pub fn none(reason: &str) -> Self {
        Toolchain {
            found: Arc::new(Found {
                cc: OnceLock::from(Err(reason.to_owned())),
                nvrtc: OnceLock::from(Err(reason.to_owned())),
                ..Found::default()
            }),
        }
    }

    /// Begins to look for what a kind of device needs, if it needs anything, while the caller does something else.
    pub fn look_ahead(&self, kind: DeviceKind) {
        if kind == DeviceKind::Null {
            return;
        }
        let toolchain = self.clone();
        let look = move || drop(toolchain.identity(kind));
        // Without a thread, it is found when it is asked for.
        let _ = thread::Builder::new()
            .name("toolchain".to_owned())
            .spawn(look);
    }

    /// The C compiler.
    ///
    /// # Errors
    /// Why there is none, and what to install.
    pub fn cc(&self) -> Result<&Cc, &str> {
        let Found {
            named_cc,
            cc,
            digests,
            ..
        } = &*self.found;
        let found = cc.get_or_init(|| Cc::find(named_cc.as_deref().map(Path::as_os_str), digests));
        found.as_ref().map_err(String::as_str)
    }

    /// NVRTC.
    ///
    /// # Errors
    /// Why there is none, and what to install.
    pub fn nvrtc(&self) -> Result<&Nvrtc, &str> {
        let Found { nvrtc, digests, .. } = &*self.found;
        let found = nvrtc.get_or_init(|| Nvrtc::find(digests));
        found.as_ref().map_err(String::as_str)
    }

    /// One line that identifies everything that counts for a kind of device, for run ids; equal
    /// lines, equal compilers.
    pub fn identity(&self, kind: DeviceKind) -> String {
        self.describe(match kind {
            DeviceKind::Cpu | DeviceKind::Null => Language::C,
            DeviceKind::Cuda => Language::Cuda,
        })
    }

    /// The compiler of a language, for people and run ids.
    pub(super) fn describe(&self, language: Language) -> String {
        match language {
            Language::C => match self.cc() {
                Ok(cc) => format!("cc {} ({}, {})", cc.version, cc.machine, &cc.identity[..12]),
                Err(_) => "no cc".to_owned(),
            },
            Language::Cuda => match self.nvrtc() {
                Ok(nvrtc) => format!("nvrtc {} ({})", nvrtc.version, &nvrtc.identity[..12]),
                Err(_) => "no nvrtc".to_owned(),
            },
        }
    }

    /// The identity of a language's compiler, or why there is none.
    pub(super) fn compiler(&self, language: Language) -> Result<&str, &str> {
        match language {
            Language::C => self.cc().map(|cc| cc.identity.as_str()),
            Language::Cuda => self.nvrtc().map(|nvrtc| nvrtc.identity.as_str()),
        }
    }
}
