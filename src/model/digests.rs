//! The digests of the sources that the program was built from. The program's own package takes them
//! when it is built, so that no other package is built again for them.

use std::sync::OnceLock;

/// Digests, in hexadecimal digits.
#[derive(Clone, Copy, Debug)]
pub struct Digests {
    /// Of all that measures: the engine.
    pub engine: &'static str,
    /// Of all that makes kernels.
    pub kernels: &'static str,
}

static BUILT: OnceLock<Digests> = OnceLock::new();

/// Says what the program was built from; the first time counts.
pub fn set(digests: Digests) {
    let _ = BUILT.set(digests);
}

/// What the program was built from; zeros in tests of single packages.
pub fn digests() -> Digests {
    const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";
    let none = Digests {
        engine: NONE,
        kernels: NONE,
    };
    BUILT.get().copied().unwrap_or(none)
}
