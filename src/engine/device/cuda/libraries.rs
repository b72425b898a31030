//! NVIDIA's libraries that programs call: where they are, and loading them.

use std::path::PathBuf;

use cudarc::cublaslt::sys as lt;
use cudarc::cudnn::sys as dnn;
use libloading::os::unix::{Library as Opened, RTLD_GLOBAL, RTLD_NOW};

use sweeper_model::library_folders;

/// A library of NVIDIA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nvidia {
    /// Products of matrices.
    CublasLt,
    /// Convolutions.
    Cudnn,
}

/// Facts about a library.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The library's word in reports.
    pub word: &'static str,
    /// The library's name.
    pub name: &'static str,
    /// The beginning of its file's name.
    pub file: &'static str,
    /// The operation that programs call it for.
    pub purpose: &'static str,
}

impl Nvidia {
    /// All libraries.
    pub const ALL: [Nvidia; 2] = [Nvidia::CublasLt, Nvidia::Cudnn];

    /// Facts about this library.
    pub fn facts(self) -> Facts {
        match self {
            Nvidia::CublasLt => Facts {
                word: "cublaslt",
                name: "cuBLASLt",
                file: "libcublasLt.so",
                purpose: "products",
            },
            Nvidia::Cudnn => Facts {
                word: "cudnn",
                name: "cuDNN",
                file: "libcudnn.so",
                purpose: "convolutions",
            },
        }
    }

    /// Loads it, where the system's loader does not find it by itself from a toolkit or a package
    /// of Python: by its whole path, so that it is found again by its name.
    ///
    /// # Errors
    /// The missing library, and the package to install.
    #[expect(unsafe_code, reason = "loading a library runs its initialisers")]
    pub fn load(self) -> Result<(), String> {
        if self.is_here() {
            return Ok(());
        }
        let Facts { name, file, .. } = self.facts();
        for path in candidates(file) {
            // SAFETY: it is NVIDIA's library, by its name and from a folder that the user or the
            // system named.
            if let Ok(library) = unsafe { Opened::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) } {
                // Never unloaded: its handles live as long as the process.
                std::mem::forget(library);
                if self.is_here() {
                    return Ok(());
                }
            }
        }
        Err(format!(
            "{name} ({file}) is not here: install it with the CUDA toolkit or as a package of Python, or \
             name its folder in {}",
            library_folders::FOLDERS_VARIABLE
        ))
    }

    /// The library's version, such as `9.14.0`, once it is loaded.
    ///
    /// # Errors
    /// As [`Nvidia::load`].
    #[expect(unsafe_code, reason = "calls of the libraries")]
    pub fn version(self) -> Result<String, String> {
        self.load()?;
        // SAFETY: they are loaded, and tell their version at any time.
        let version = unsafe {
            match self {
                Nvidia::CublasLt => lt::cublasLtGetVersion(),
                Nvidia::Cudnn => dnn::cudnnGetVersion(),
            }
        };
        Ok(dotted(version))
    }

    #[expect(unsafe_code, reason = "loading a library runs its initialisers")]
    fn is_here(self) -> bool {
        // SAFETY: the names that are tried are those of NVIDIA's libraries.
        unsafe {
            match self {
                Nvidia::CublasLt => lt::is_culib_present(),
                Nvidia::Cudnn => dnn::is_culib_present(),
            }
        }
    }
}

/// A version from its number, in which minor versions and patches have two digits each.
fn dotted(version: usize) -> String {
    let (major, minor, patch) = (version / 10_000, version / 100 % 100, version % 100);
    format!("{major}.{minor}.{patch}")
}

/// Files of a library in all folders where NVIDIA's may be.
fn candidates(file: &str) -> Vec<PathBuf> {
    let folders = library_folders::folders().into_iter();
    folders
        .flat_map(|folder| library_folders::children(&folder, file))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_dots() {
        assert_eq!(dotted(91_400), "9.14.0");
        assert_eq!(dotted(130_103), "13.1.3");
    }

    #[test]
    fn a_library_has_a_version_or_it_is_said_what_to_install() {
        for library in Nvidia::ALL {
            match library.version() {
                Ok(version) => assert_eq!(version.split('.').count(), 3, "{version}"),
                Err(reason) => {
                    let file = library.facts().file;
                    assert!(
                        reason.contains(file) && reason.contains("install"),
                        "{reason}"
                    );
                }
            }
        }
    }
}
