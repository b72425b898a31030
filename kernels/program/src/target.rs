//! Targets of programs: the host, or a CUDA device of an architecture.

/// The target of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The host's processors: kernels in C, builtins in Rust.
    Cpu,
    /// A CUDA device of an exact architecture, such as `sm_90a`.
    Cuda {
        /// The architecture.
        arch: String,
    },
}

/// The first [`generation`] of GPUs whose `mma.sync` takes bf16 and tf32.
pub const FIRST_WITH_TENSORS: u32 = 80;

/// The number of an architecture such as `sm_90a`: 10 times its compute capability; 0 for what is
/// a name of another form.
pub fn generation(arch: &str) -> u32 {
    let digits = arch.trim_start_matches("sm_");
    let digits = digits.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    digits.parse().unwrap_or(0)
}
