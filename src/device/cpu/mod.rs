//! The host's processors: C kernels from shared objects, builtins as plain calls.
//!
//! [`arena`] holds memory, [`library`] loads shared objects, [`run`] executes steps; this file
//! keeps the books.

use std::collections::BTreeMap;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Binding, Kernel, Program, Target, Tensors};

use super::{
    Artifact, Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Prepared, Sample, keys_of,
    spec_of,
};
use crate::identity::CacheState;

pub mod arena;
pub mod flush;
pub mod identity;
pub mod calls;
pub mod library;
pub mod run;

use arena::{Arena, Layout};
use flush::Flush;
use library::{Entry, Libraries};

/// The CPU device.
pub struct Cpu {
    identity: DeviceIdentity,
    pool: ThreadPool,
    libraries: Libraries,
    /// The input tensors of the bound problem, by name.
    inputs: BTreeMap<String, Arena>,
    /// Memory of results and scratch, shared by all programs: only one runs at a time.
    arena: Arena,
    programs: Vec<Loaded>,
    /// Run before timed steps, where caches are not to stay as they are.
    flush: Option<Flush>,
}

struct Loaded {
    program: Program,
    /// Function of each compiled kernel; `None` for builtins.
    entries: Vec<Option<Entry>>,
    /// Where each buffer that is not given lies in the arena.
    layout: Layout,
    /// How long loading took for those of its kernels that earlier programs had loaded, in
    /// nanoseconds.
    earlier_loads_ns: u64,
}

impl Cpu {
    /// A device that measures with `threads` pinned threads.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] if threads can't be started.
    pub fn new(threads: usize) -> Result<Self, DeviceError> {
        let cpus = identity::allowed_cpus();
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .start_handler(move |index| identity::pin_current_thread(&cpus, index))
            .build()
            .map_err(|error| DeviceError::Unavailable(format!("threads: {error}")))?;
        Ok(Cpu {
            identity: identity::host(),
            pool,
            libraries: Libraries::default(),
            inputs: BTreeMap::new(),
            arena: Arena::default(),
            programs: Vec::new(),
            flush: None,
        })
    }

    /// This device, set to bring the second-level caches of its threads into a state before timed
    /// steps.
    pub fn beginning(mut self, cache: CacheState) -> Self {
        self.flush = Flush::of_host(cache);
        self
    }

    fn entries(
        &mut self,
        program: &Program,
        artifacts: &[Artifact],
    ) -> Result<Vec<Option<Entry>>, DeviceError> {
        let mut load = |(kernel, position): (&Kernel, Option<usize>)| match kernel {
            Kernel::Builtin(_) => Ok(None),
            Kernel::Library(library) => match calls::refusal(library) {
                None => Ok(None),
                Some(reason) => Err(DeviceError::Launch(reason)),
            },
            Kernel::Compiled(source) => {
                let artifact = position.and_then(|position| artifacts.get(position));
                let artifact = artifact.ok_or_else(|| {
                    DeviceError::Launch(format!("`{}` was not compiled", source.entry))
                })?;
                self.libraries.entry(artifact, &source.entry).map(Some)
            }
        };
        let kernels = program.kernels.iter();
        kernels
            .zip(program.source_positions())
            .map(&mut load)
            .collect()
    }

    /// The address of each buffer of a program.
    fn addresses(&self, loaded: &Loaded) -> Vec<usize> {
        let address = |(index, offset): (usize, &Option<usize>)| match offset {
            Some(offset) => self.arena.address() + offset,
            None => self.inputs[&*loaded.program.buffers[index].name].address(),
        };
        loaded
            .layout
            .offsets
            .iter()
            .enumerate()
            .map(address)
            .collect()
    }

    fn given_bytes(&self, program: &Program) -> u64 {
        let given = program
            .buffers
            .iter()
            .filter(|buffer| buffer.binding == Binding::Given);
        given
            .map(|buffer| self.inputs[&*buffer.name].used() as u64)
            .sum()
    }

    fn check_given(&self, program: &Program) -> Result<(), DeviceError> {
        for buffer in &program.buffers {
            if buffer.binding != Binding::Given {
                continue;
            }
            let bound = self.inputs.get(&*buffer.name).map(Arena::used);
            if bound != Some(buffer.size_bytes() as usize) {
                return Err(DeviceError::Launch(format!(
                    "the program reads {} bytes of `{}`, the problem has {}",
                    buffer.size_bytes(),
                    buffer.name,
                    bound.unwrap_or(0)
                )));
            }
        }
        Ok(())
    }
}

impl Device for Cpu {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn target(&self) -> Target {
        Target::Cpu
    }

    fn computes(&self) -> bool {
        true
    }

    fn clock_resolution_ns(&self) -> f64 {
        identity::clock_resolution_ns()
    }

    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError> {
        self.programs.clear();
        self.inputs.clear();
        for (name, tensor) in inputs {
            self.inputs.insert(name.clone(), Arena::holding(tensor)?);
        }
        Ok(())
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        let program = job.program;
        program.validate().map_err(DeviceError::Launch)?;
        self.check_given(&program)?;
        run::check_writes_are_exclusive(&program).map_err(DeviceError::Launch)?;
        let earlier_loads_ns = self.libraries.load_ns(keys_of(job.artifacts));
        let entries = self.entries(&program, job.artifacts)?;
        let layout = Layout::of(&program, arena::ALIGNMENT);
        self.arena.reserve(layout.bytes)?;
        self.programs.push(Loaded {
            program,
            entries,
            layout,
            earlier_loads_ns,
        });
        Ok(Prepared(self.programs.len() - 1))
    }

    fn further_preparation_ns(&self, program: Prepared) -> u64 {
        self.programs[program.0].earlier_loads_ns
    }

    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        identity::reset_peak_resident();
        let bytes = self.programs[program.0].layout.bytes;
        self.arena.fill(bytes, 0xff);
        Ok(())
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let loaded = &self.programs[program.0];
        let addresses = self.addresses(loaded);
        let runner = run::Runner::new(&loaded.program, &loaded.entries, &addresses);
        let elapsed_ns = match &self.flush {
            None => self.pool.install(|| runner.sample(iterations)),
            Some(flush) => (0..iterations)
                .map(|_| {
                    let flush = || flush.run(&self.pool);
                    self.pool.install(|| runner.sample_after(flush))
                })
                .sum(),
        };
        Ok(Sample::new(elapsed_ns, iterations))
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        let loaded = &self.programs[program.0];
        let mut results = Tensors::new();
        for (buffer, offset) in loaded.program.buffers.iter().zip(&loaded.layout.offsets) {
            let (Binding::Result, Some(offset)) = (buffer.binding, offset) else {
                continue;
            };
            let spec = spec_of(buffer, specs)?;
            results.insert(spec.name.clone(), self.arena.tensor(*offset, spec));
        }
        Ok(results)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let loaded = &self.programs[program.0];
        let given = self.given_bytes(&loaded.program);
        Ok(DeviceMemory {
            peak_allocated_bytes: loaded.layout.bytes as u64 + given,
            peak_reserved_bytes: identity::peak_resident_bytes(),
        })
    }
}
