//! The host's processors: C kernels from shared objects, builtins as plain calls.
//!
//! [`arena`] holds memory, [`library`] loads shared objects, [`run`] executes steps; this file
//! keeps the books.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Kernel, Program, Target, Tensors};

use super::launcher::LoopDriver;
use super::layout::{Damage, Layout};
use super::{
    Artifact, Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Prepared, RunsPrograms,
    Sample, check_given, keys_of, needs_runner, spec_of,
};
use sweeper_model::identity::CacheState;

pub mod arena;
pub mod flush;
pub mod identity;
mod platform;
pub mod calls;
pub mod library;
pub mod run;
mod float_modes;
mod launcher;
mod resolved;
mod waits;

use arena::Arena;
use float_modes::{FloatModes, PoolModes};
use flush::Flush;
use launcher::OnThreads;
use library::{Entry, Libraries};
pub use platform::PLATFORM;
pub(super) use platform::probe_size;
use waits::Waits;

/// The CPU device.
pub struct Cpu {
    identity: DeviceIdentity,
    pool: Arc<ThreadPool>,
    waits: Waits,
    libraries: Libraries,
    /// The input tensors of the bound problem, by name.
    inputs: BTreeMap<String, Input>,
    /// Memory of results and scratch, shared by all programs: only one runs at a time.
    arena: Arena,
    programs: Vec<Loaded>,
    /// Run before timed steps, where caches are not to stay as they are.
    flush: Option<Flush>,
}

/// An input tensor of the bound problem.
struct Input {
    memory: Arena,
    /// Given values of tensors that a program updates.
    original: Option<Arena>,
    /// Whether a program has updated it since.
    is_changed: bool,
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
            waits: Waits::of(&pool),
            pool: Arc::new(pool),
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
            Kernel::Foreign(foreign) => Err(needs_runner(&foreign.name)),
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
            None => self.inputs[&*loaded.program.buffers[index].name]
                .memory
                .address(),
        };
        loaded
            .layout
            .offsets
            .iter()
            .enumerate()
            .map(address)
            .collect()
    }

    /// Keeps the given values of all tensors that a program updates.
    fn keep_originals(&mut self, program: &Program) -> Result<(), DeviceError> {
        for buffer in program.updated() {
            if let Some(input) = self.inputs.get_mut(&*buffer.name)
                && input.original.is_none()
            {
                input.original = Some(Arena::holding(input.memory.held())?);
            }
        }
        Ok(())
    }

    /// Makes all inputs as they were given, before a run of a program that changes some of them.
    fn restore_for(&mut self, program: Prepared) {
        for input in self.inputs.values_mut().filter(|input| input.is_changed) {
            if let Some(original) = &input.original {
                input.memory.hold(original.held());
            }
            input.is_changed = false;
        }
        for buffer in self.programs[program.0].program.updated() {
            if let Some(input) = self.inputs.get_mut(&*buffer.name) {
                input.is_changed = true;
            }
        }
    }

    /// Runs a program; the time of its timed steps, and how long a thread waited for a processor
    /// meanwhile, in nanoseconds.
    fn run(&self, program: Prepared, iterations: u32) -> (f64, Option<f64>) {
        let loaded = &self.programs[program.0];
        let addresses = self.addresses(loaded);
        let runner = run::Runner::new(&loaded.program, &loaded.entries, &addresses);
        let Some(flush) = &self.flush else {
            let sample = || self.waits.during(|| runner.sample(iterations));
            return self.pool.install(sample);
        };
        let runs = (0..iterations).map(|_| {
            let sample = || runner.sample_after(|| flush.run(&self.pool));
            self.pool.install(|| self.waits.during(sample))
        });
        let (times_ns, waits_ns): (Vec<f64>, Vec<Option<f64>>) = runs.unzip();
        (times_ns.iter().sum(), waits_ns.into_iter().sum())
    }

    fn given_bytes(&self, program: &Program) -> u64 {
        let given = program.buffers.iter().filter(|buffer| buffer.is_given());
        given
            .map(|buffer| self.inputs[&*buffer.name].memory.used() as u64)
            .sum()
    }

    /// Overwrites inputs, and the results and the scratch memory of a program, as
    /// [`RunsPrograms::rewrite`] says.
    fn write_again(
        &mut self,
        program: Prepared,
        given: &Tensors,
        keeps_results: bool,
    ) -> Result<(), DeviceError> {
        for (name, tensor) in given {
            let Some(input) = self.inputs.get_mut(name) else {
                continue;
            };
            let bytes = tensor.data().bytes();
            input.memory.hold(bytes);
            if let Some(original) = &mut input.original {
                original.hold(bytes);
            }
            input.is_changed = false;
        }
        if !keeps_results {
            self.poison(program)?;
        }
        // Large stretches of poison are stored past the caches: results are brought in either way.
        self.arena.touch(self.programs[program.0].layout.bytes);
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
            let input = Input {
                memory: Arena::holding(tensor.data().bytes())?,
                original: None,
                is_changed: false,
            };
            self.inputs.insert(name.clone(), input);
        }
        Ok(())
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        let program = job.program;
        program.validate().map_err(DeviceError::Launch)?;
        if let Some(kernel) = program.kernels.first().filter(|_| program.is_untrusted()) {
            return Err(needs_runner(kernel.name()));
        }
        let bound = |name: &str| Some(self.inputs.get(name)?.memory.used());
        check_given(&program, bound)?;
        if !program.adjacent.is_empty() {
            let reason = "given tensors lie where they are, one behind another on GPUs alone";
            return Err(DeviceError::Launch(reason.to_owned()));
        }
        run::check_writes_are_exclusive(&program).map_err(DeviceError::Launch)?;
        let earlier_loads_ns = self.libraries.load_ns(keys_of(job.artifacts));
        // A library's initialiser may change them, as that of `-ffast-math` does.
        let modes = FloatModes::of_thread();
        let entries = self.entries(&program, job.artifacts);
        modes.restore();
        let entries = entries?;
        let layout = Layout::of(&program, arena::ALIGNMENT);
        self.arena.reserve(layout.bytes)?;
        self.keep_originals(&program)?;
        self.programs.push(Loaded {
            program,
            entries,
            layout,
            earlier_loads_ns,
        });
        Ok(Prepared(self.programs.len() - 1, None))
    }

    fn drive(
        &mut self,
        program: Prepared,
        driver: &mut dyn LoopDriver,
    ) -> Result<Sample, DeviceError> {
        self.restore_for(program);
        let pool = Arc::clone(&self.pool);
        let modes = PoolModes::of(&pool);
        let elapsed = pool.install(|| driver.run(&mut OnThreads::new(self)));
        let has_changed_modes = modes.restore(&pool);
        Ok(Sample {
            has_changed_modes,
            ..Sample::new(elapsed?.as_nanos() as f64, driver.iterations())
        })
    }
}

impl RunsPrograms for Cpu {
    fn further_preparation_ns(&self, program: Prepared) -> u64 {
        self.programs[program.0].earlier_loads_ns
    }

    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        identity::reset_peak_resident();
        let layout = &self.programs[program.0].layout;
        self.arena.fill(layout.bytes, 0xff);
        for band in &layout.bands {
            self.arena.write(band.range.start, &band.pattern());
        }
        Ok(())
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        // Given values are restored before each iteration, else before the first: another program
        // may have updated it.
        let updates = self.programs[program.0].program.updated().next().is_some();
        let (spans, each) = match updates {
            true => (iterations, 1),
            false => (1, iterations),
        };
        let mut elapsed_ns = 0.0;
        let modes = PoolModes::of(&self.pool);
        let mut waits_ns = Vec::new();
        for _ in 0..spans {
            self.restore_for(program);
            let (time_ns, wait_ns) = self.run(program, each);
            elapsed_ns += time_ns;
            waits_ns.extend(wait_ns);
        }
        Ok(Sample {
            waited_ns: (!waits_ns.is_empty()).then(|| waits_ns.iter().sum()),
            has_changed_modes: modes.restore(&self.pool),
            ..Sample::new(elapsed_ns, iterations)
        })
    }

    fn launch_floor_ns(&mut self, program: Prepared, iterations: u32) -> Option<f64> {
        let loaded = &self.programs[program.0];
        let addresses = self.addresses(loaded);
        let runner = run::Runner::new(&loaded.program, &loaded.entries, &addresses);
        let own = &loaded.program;
        let is_one_by_one =
            self.flush.is_some() || !own.prologue.is_empty() || own.updated().next().is_some();
        let iterations = if is_one_by_one { 1 } else { iterations };
        let flush = || {
            if let Some(flush) = &self.flush {
                flush.run(&self.pool);
            }
        };
        Some(self.pool.install(|| runner.launch_floor(iterations, flush)))
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        let loaded = &self.programs[program.0];
        let mut results = Tensors::new();
        for (buffer, offset) in loaded.program.buffers.iter().zip(&loaded.layout.offsets) {
            if buffer.result().is_none() {
                continue;
            }
            let spec = spec_of(buffer, specs)?;
            let tensor = match offset {
                Some(offset) => self.arena.tensor(*offset, spec),
                None => self.inputs[&*buffer.name].memory.tensor(0, spec),
            };
            results.insert(spec.name.clone(), tensor);
        }
        Ok(results)
    }

    fn damage(&mut self, program: Prepared) -> Result<Vec<Damage>, DeviceError> {
        let Loaded {
            program, layout, ..
        } = &self.programs[program.0];
        let bands = layout.bands.iter().filter_map(|band| {
            let found = self.arena.bytes(band.range.start, band.range.len());
            band.damage(found, program)
        });
        Ok(bands.collect())
    }

    fn restore_inputs(&mut self, given: &Tensors) -> Result<Vec<String>, DeviceError> {
        let mut changed = Vec::new();
        for (name, tensor) in given {
            let bytes = tensor.data().bytes();
            if let Some(input) = self.inputs.get_mut(name)
                && input.original.is_none()
                && input.memory.held() != bytes
            {
                input.memory.hold(bytes);
                changed.push(name.clone());
            }
        }
        Ok(changed)
    }

    fn rewrite(
        &mut self,
        program: Prepared,
        given: &Tensors,
        keeps_results: bool,
    ) -> Result<bool, DeviceError> {
        // In a thread that runs kernels: memory that another processor wrote comes late, and not
        // equally late for results that are kept and others.
        let pool = Arc::clone(&self.pool);
        pool.install(|| self.write_again(program, given, keeps_results))?;
        Ok(true)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let loaded = &self.programs[program.0];
        let given = self.given_bytes(&loaded.program);
        Ok(DeviceMemory {
            peak_allocated_bytes: loaded.layout.bytes_of_buffers() as u64 + given,
            peak_reserved_bytes: identity::peak_resident_bytes(),
        })
    }
}
