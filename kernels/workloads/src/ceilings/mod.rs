//! Programs that find a device's limits: how fast it copies memory, multiplies and adds.
//!
//! They are measured as any program is, and the rates of other programs are held against theirs.

use std::borrow::Cow;

use crate::copy::copy_kernel;
use sweeper_program::headers::CPU_H;
use sweeper_program::tensor::Dtype;
use sweeper_program::workload::{Capabilities, Target};
use sweeper_program::{
    Arg, Binding, Geometry, Index, Kernel, KernelSource, Language, Program, Role, SourceFile, Step,
};

/// The unit in which a probe counts its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Bytes read and bytes written.
    Bytes,
    /// Operations of one kind of arithmetic, a multiplication and an addition being two.
    Flops(&'static str),
}

/// A program that does one thing as fast as the device can.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The counted unit.
    pub counts: Counts,
    /// Number of units in an iteration.
    pub amount: f64,
    /// The program.
    pub program: Program,
}

/// The sizes of a device that probes must exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// CPU threads, or multiprocessors of a GPU.
    pub workers: u32,
    /// The last cache before memory, in bytes.
    pub cache_bytes: u64,
}

/// Multiply-adds that a CPU's thread does in each of its ten chains.
const CPU_ROUNDS: usize = 1 << 24;
const CPU_CHAINS: usize = 10;

/// Rounds of a GPU's thread, chains of its kernels, threads of a block, and blocks of each
/// multiprocessor.
const GPU_ROUNDS: usize = 4096;
const GPU_CHAINS: usize = 8;
const GPU_THREADS: u32 = 256;
const GPU_BLOCKS: u32 = 32;

/// Vectors that a CPU copies have so many bytes at least, and at most.
const LEAST_COPY_BYTES: u64 = 64 << 20;
const MOST_COPY_BYTES: u64 = 128 << 20;
/// A GPU copies so many: its memory is fast.
const GPU_COPY_BYTES: u64 = 512 << 20;

static C_FILES: [SourceFile; 2] = [
    SourceFile::embedded("ceilings.c", include_str!("ceilings.c")),
    CPU_H,
];
static CUDA_FILES: [SourceFile; 1] = [SourceFile::embedded(
    "ceilings.cu",
    include_str!("ceilings.cu"),
)];

/// The probes of a device.
pub fn probes(target: &Target, size: Size) -> Vec<Probe> {
    let mut probes = Vec::new();
    match target {
        Target::Cpu => {
            probes.push(copy("builtin", target, size));
            probes.push(copy("compiled", target, size));
            let flops = 2.0 * (CPU_CHAINS * CPU_ROUNDS) as f64 * f64::from(size.workers);
            let geometry = Geometry::blocks(size.workers);
            let source = source(Language::C, "fma_f32", Vec::new());
            probes.push(arithmetic("f32", source, geometry, CPU_ROUNDS, flops));
        }
        Target::Cuda { arch } => {
            probes.push(copy("compiled", target, size));
            // Operations of one chain and round of a block: a warp's matrices are shared by its
            // threads.
            let able = Capabilities::of(arch);
            let warps = f64::from(GPU_THREADS / able.warp);
            let kinds = [
                ("f32", "fma_f32", 2.0 * f64::from(GPU_THREADS)),
                ("bf16", "mma_bf16", warps * 2.0 * f64::from(16 * 8 * 16)),
                ("tf32", "mma_tf32", warps * 2.0 * f64::from(16 * 8 * 8)),
            ];
            let has_tensor = able.has_tensor_cores;
            let blocks = size.workers * GPU_BLOCKS;
            for (kind, entry, operations) in kinds {
                if kind != "f32" && !has_tensor {
                    continue;
                }
                let defines = vec![KernelSource::define("TENSOR", u32::from(has_tensor))];
                let source = source(Language::Cuda, entry, defines);
                let rounds = (GPU_CHAINS * GPU_ROUNDS) as f64;
                let flops = operations * rounds * f64::from(blocks);
                let geometry = Geometry::linear(blocks, GPU_THREADS);
                probes.push(arithmetic(kind, source, geometry, GPU_ROUNDS, flops));
            }
        }
    }
    probes
}

fn source(
    language: Language,
    entry: &'static str,
    defines: Vec<(Cow<'static, str>, String)>,
) -> KernelSource {
    KernelSource {
        language,
        files: Cow::Borrowed(match language {
            Language::C => &C_FILES,
            Language::Cuda => &CUDA_FILES,
        }),
        entry: entry.into(),
        defines,
        options: Vec::new(),
        user: None,
    }
}

/// A copy of far more than the caches hold.
fn copy(backend: &str, target: &Target, size: Size) -> Probe {
    let bytes = (2 * size.cache_bytes).clamp(LEAST_COPY_BYTES, MOST_COPY_BYTES);
    let bytes = match target {
        Target::Cpu => bytes,
        Target::Cuda { .. } => GPU_COPY_BYTES,
    };
    let elements = (bytes / 4) as usize;
    let (kernel, geometry) = copy_kernel(backend, elements, target);
    let mut program = Program::default();
    let mut buffer = |name: &'static str| {
        let (role, binding) = (Role::Workspace, Binding::Scratch);
        program.buffer(name, Dtype::F32, elements, role, binding)
    };
    let (from, to) = (buffer("from"), buffer("to"));
    let kernel = program.kernel(kernel);
    let args = vec![
        Arg::Read(program.all(from)),
        Arg::Write(program.all(to)),
        Arg::Int(Index::from(elements)),
    ];
    program.steps.push(Step::Launch {
        kernel,
        geometry,
        args,
    });
    Probe {
        counts: Counts::Bytes,
        amount: 2.0 * bytes as f64,
        program,
    }
}

fn arithmetic(
    kind: &'static str,
    source: KernelSource,
    geometry: Geometry,
    rounds: usize,
    flops: f64,
) -> Probe {
    let mut program = Program::default();
    let len = geometry.grid[0] as usize;
    let out = program.buffer("out", Dtype::F32, len, Role::Workspace, Binding::Scratch);
    let kernel = program.kernel(Kernel::Compiled(source));
    let args = vec![
        Arg::Write(program.all(out)),
        // A little under one, so that chains stay finite.
        Arg::Float(0.999),
        Arg::Int(Index::from(rounds)),
    ];
    program.steps.push(Step::Launch {
        kernel,
        geometry,
        args,
    });
    Probe {
        counts: Counts::Flops(kind),
        amount: flops,
        program,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_valid_programs() {
        let size = Size {
            workers: 4,
            cache_bytes: 50 << 20,
        };
        let gpu = |arch: &str| Target::Cuda {
            arch: arch.to_owned(),
        };
        for (target, count) in [
            (Target::Cpu, 3),
            (gpu("sm_90a"), 4),
            (gpu("sm_80"), 4),
            (gpu("sm_75"), 2),
        ] {
            let probes = probes(&target, size);
            assert_eq!(probes.len(), count, "{target:?}");
            for probe in probes {
                probe.program.validate().unwrap();
                assert!(probe.amount > 1e6);
            }
        }
    }
}
