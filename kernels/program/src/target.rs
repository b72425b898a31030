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

/// The properties of a GPU that kernels ask for, instead of its architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Threads that run in step.
    pub warp: u32,
    /// The most shared memory that a block can have, in bytes (CUDA C++ Programming Guide,
    /// technical specifications per compute capability).
    pub shared_bytes: usize,
    /// Copies to shared memory go on while a thread computes: `cp.async`.
    pub has_async_copies: bool,
    /// `mma.sync` takes bf16 and tf32.
    pub has_tensor_cores: bool,
    /// Four warps multiply together, from shared memory: `wgmma`.
    pub has_warp_groups: bool,
    /// A kernel may begin before the one before it has ended: programmatic dependent launch.
    pub overlaps_launches: bool,
}

impl Capabilities {
    /// Those of an architecture such as `sm_90a`.
    pub fn of(arch: &str) -> Self {
        let generation = generation(arch);
        let shared_kib = match generation {
            70 | 72 => 96,
            75 => 64,
            80 | 87 => 163,
            90 | 100..=110 => 227,
            _ => 99,
        };
        Capabilities {
            warp: 32,
            shared_bytes: shared_kib << 10,
            has_async_copies: generation >= 80,
            has_tensor_cores: generation >= 80,
            has_warp_groups: arch == "sm_90a",
            overlaps_launches: generation >= 90,
        }
    }
}

/// The number of an architecture such as `sm_90a`: 10 times its compute capability; 0 for what is
/// a name of another form.
pub fn generation(arch: &str) -> u32 {
    let digits = arch.trim_start_matches("sm_");
    let digits = digits.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    digits.parse().unwrap_or(0)
}
