//! A device that does nothing, in scripted times: the whole engine is tested with it, to the byte.

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Language, Program, Target, Tensors};

use super::platform::{Platform, threads_of_all};
use super::{
    Device, DeviceError, DeviceIdentity, DeviceKind, DeviceMemory, Job, Prepared, RunsPrograms,
    Sample, Script, cpu,
};

/// The null device.
pub struct Null {
    identity: DeviceIdentity,
    programs: Vec<Scripted>,
}

struct Scripted {
    program: Program,
    script: Script,
    samples: u64,
}

/// Used for a program without a script.
const DEFAULT_SCRIPT: Script = Script {
    time_ns: 1000.0,
    noise: 0.0,
    seed: 0,
    memory_bytes: None,
};

impl Default for Null {
    fn default() -> Self {
        Null::unit(0)
    }
}

impl Null {
    /// One of several units that are pretended; the first is the only one where there is one.
    pub fn unit(ordinal: u32) -> Self {
        let identity = DeviceIdentity {
            kind: DeviceKind::Null,
            name: "null".to_owned(),
            unit: match ordinal {
                0 => String::new(),
                other => format!("unit-{other}"),
            },
            details: [("arch".to_owned(), "none".to_owned())].into(),
        };
        Null {
            identity,
            programs: Vec::new(),
        }
    }
}

/// Null devices as a platform: as many as a manifest asks for.
pub static PLATFORM: Platform = Platform {
    kind: DeviceKind::Null,
    language: Language::C,
    may_be_here: || true,
    discover: || Ok(vec![Null::default().identity]),
    device: |ordinal| Ok(Null::unit(ordinal).identity),
    device_of_arch: |_| None,
    target: |_| Target::Cpu,
    describe: |_, _| "does nothing, in scripted times; for tests".to_owned(),
    libraries: Vec::new,
    probe_size: cpu::probe_size,
    open: |opening| Ok((Box::new(Null::unit(opening.ordinal)), None)),
    input_copies: 0,
    host_threads: threads_of_all,
    spare_processors: |_, _| Vec::new(),
    blocks_at_once: [2, 2],
};

impl Device for Null {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn target(&self) -> Target {
        Target::Cpu
    }

    fn computes(&self) -> bool {
        false
    }

    fn clock_resolution_ns(&self) -> f64 {
        0.0
    }

    fn bind(&mut self, _inputs: &Tensors) -> Result<(), DeviceError> {
        self.programs.clear();
        Ok(())
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        let script = job.script.unwrap_or(DEFAULT_SCRIPT);
        self.programs.push(Scripted {
            program: job.program,
            script,
            samples: 0,
        });
        Ok(Prepared(self.programs.len() - 1, None))
    }

    fn run_loop(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        self.sample(program, iterations)
    }
}

impl RunsPrograms for Null {
    fn poison(&mut self, _program: Prepared) -> Result<(), DeviceError> {
        Ok(())
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let scripted = &mut self.programs[program.0];
        let unit = unit_interval(scripted.script.seed, scripted.samples);
        scripted.samples += 1;
        let factor = 1.0 + scripted.script.noise * (2.0 * unit - 1.0);
        let elapsed_ns = scripted.script.time_ns * factor * f64::from(iterations);
        Ok(Sample::new(elapsed_ns, iterations))
    }

    fn results(
        &mut self,
        _program: Prepared,
        _specs: &[TensorSpec],
    ) -> Result<Tensors, DeviceError> {
        Ok(Tensors::new())
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let Scripted {
            program, script, ..
        } = &self.programs[program.0];
        let bytes = script
            .memory_bytes
            .unwrap_or_else(|| program.memory_bytes());
        Ok(DeviceMemory {
            peak_allocated_bytes: bytes,
            peak_reserved_bytes: bytes,
        })
    }
}

/// A number in [0, 1) that follows from a seed and a position (SplitMix64, Steele et al. 2014).
fn unit_interval(seed: u64, position: u64) -> f64 {
    let mut z = seed.wrapping_add((position + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_bounded_and_repeats() {
        let times = || {
            let mut device = Null::default();
            let script = Script {
                time_ns: 100.0,
                noise: 0.05,
                seed: 7,
                memory_bytes: Some(12),
            };
            let job = Job {
                program: Program::default(),
                artifacts: &[],
                script: Some(script),
            };
            let program = device.prepare(job).unwrap();
            assert_eq!(device.memory(program).unwrap().peak_allocated_bytes, 12);
            (0..100)
                .map(|_| device.sample(program, 2).unwrap().per_iteration_ns())
                .collect::<Vec<_>>()
        };
        assert_eq!(times(), times());
        assert!(times().iter().all(|time| (95.0..105.0).contains(time)));
        assert!(
            times().iter().any(|&time| time < 97.0) && times().iter().any(|&time| time > 103.0)
        );
    }
}
