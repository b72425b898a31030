//! An NVIDIA GPU: kernels from cubins, through the driver.
//!
//! [`driver`] says whether there is one and explains its errors, [`identity`] describes it;
//! [`context`], [`memory`] (large copies to it by [`staging`], changes to it by [`sums`]),
//! [`inputs`] and [`module`] hold the objects on it, [`run`] queues steps, [`timing`] and [`gate`]
//! time them, [`flush`] sets the state of the cache before that, [`graph`] makes one launch of
//! many, [`nvml`] watches clocks; [`compiler`] calls NVRTC, which needs no GPU; [`calls`] makes a
//! launch a call of a kernel or of one of NVIDIA's [`libraries`]; [`numerics`] asks one how exact
//! it is. This file keeps the books.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

use sweeper_program::workload::TensorSpec;
use sweeper_program::{Binding, Buffer, Data, Kernel, KernelId, Program, Target, Tensor, Tensors};

use super::cpu::run::check_writes_are_exclusive;
use super::launcher::LoopDriver;
use super::layout::{Damage, Layout};
use super::{
    Artifact, Device, DeviceError, DeviceIdentity, DeviceMemory, Job, Preparation, Prepared,
    RunsPrograms, Sample, check_given, keys_of, needs_runner, spec_of,
};
use sweeper_model::hardware::clocks::Clocks;
use sweeper_model::identity::CacheState;

pub mod driver;
pub mod identity;
mod platform;
pub mod compiler;
pub mod context;
pub mod memory;
pub mod inputs;
pub mod staging;
pub mod sums;
pub mod module;
pub mod blas;
pub mod dnn;
pub mod operation_graph;
pub mod attention;
pub mod calls;
pub mod libraries;
pub mod gate;
pub mod flush;
pub mod run;
pub mod timing;
pub mod graph;
mod numerics;
pub mod nvml;
mod launcher;

use calls::{Callable, Vendor};
use context::Context;
use driver::Fault;
use graph::Graph;
use inputs::Inputs;
use launcher::InStream;
use memory::{Allocation, Pool};
use module::Modules;
use nvml::Monitor;
pub use platform::PLATFORM;
use run::{Runner, Spans};
use sums::Adder;
use timing::Timer;

/// Buffers start at multiples of this many bytes, as those of `cudaMalloc` do.
const ALIGNMENT: usize = 256;

/// A span of more launches is not gated: the stream holds about a thousand.
const MOST_GATED_LAUNCHES: u64 = 500;

/// The CUDA device.
///
/// All calls are made on the thread that opened it. Fields drop in this order: the context is
/// released last.
pub struct Cuda {
    identity: DeviceIdentity,
    target: Target,
    modules: Modules,
    vendor: Vendor,
    timer: Timer,
    clock_resolution_ns: f64,
    /// The input tensors of the bound problem, by name.
    inputs: Inputs,
    /// Memory of results and scratch, shared by all programs: only one runs at a time.
    arena: Option<Allocation>,
    programs: Vec<Loaded>,
    monitor: Option<Monitor>,
    adder: Adder,
    pool: Pool,
    context: Rc<Context>,
}

struct Loaded {
    program: Program,
    /// One for each kernel.
    functions: Vec<Callable>,
    /// Addresses of variables of kernels that it writes, by their names.
    symbols: BTreeMap<Cow<'static, str>, u64>,
    /// Where each buffer that is not given lies in the arena.
    layout: Layout,
    /// Launches of one iteration.
    launches: u64,
    /// Spans are gated. The first is not: the initial work of a first launch may wait for the
    /// device.
    gated: bool,
    /// The program's timed steps are launched as one graph.
    as_graph: bool,
    /// The program's timed steps as one launch, once they were recorded.
    graph: Option<Graph>,
    /// How long it took to load kernels and libraries that earlier programs had loaded, and to
    /// record its graph for the first time.
    further_preparation_ns: u64,
    /// How long it took to open the libraries that it calls.
    open_ns: u64,
}

impl Cuda {
    /// Opens a device by number, which brings its second-level cache into a state before timed
    /// steps.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] with the missing part.
    pub fn open(ordinal: u32, cache: CacheState) -> Result<Self, DeviceError> {
        let identity = identity::of(ordinal).map_err(DeviceError::Unavailable)?;
        let unavailable = |fault: Fault| {
            DeviceError::Unavailable(format!("{}: {}", identity.name, fault.of_opening()))
        };
        let context = Rc::new(Context::open(ordinal).map_err(unavailable)?);
        let timer = Timer::new(&context, cache).map_err(unavailable)?;
        Ok(Cuda {
            target: Target::Cuda {
                arch: identity.details["arch"].clone(),
            },
            identity: identity.clone(),
            modules: Modules::default(),
            vendor: Vendor::default(),
            clock_resolution_ns: timer.resolution_ns().map_err(unavailable)?,
            timer,
            inputs: Inputs::new(&context).map_err(unavailable)?,
            arena: None,
            programs: Vec::new(),
            monitor: Monitor::of(&identity.unit),
            adder: Adder::new(&context).map_err(unavailable)?,
            pool: Pool::new(&context).map_err(unavailable)?,
            context,
        })
    }

    /// The device's error for a fault, for a caller that needs `bytes` in all.
    fn means(&self, fault: Fault, bytes: usize) -> DeviceError {
        fault.means(bytes as u64, self.pool.available_bytes())
    }

    /// Makes the arena exactly so large; its contents are lost if it changes. What was given of
    /// updated inputs makes room for it.
    fn fit_arena(&mut self, bytes: usize) -> Result<(), DeviceError> {
        if self
            .arena
            .as_ref()
            .is_some_and(|held| held.bytes() == bytes)
        {
            return Ok(());
        }
        self.arena = None;
        let allocate = |pool: &Pool| pool.trim().and_then(|()| pool.allocate(bytes));
        let allocated =
            allocate(&self.pool).or_else(|fault| match self.inputs.move_originals()? {
                true => allocate(&self.pool),
                false => Err(fault),
            });
        self.arena = Some(allocated.map_err(|fault| self.means(fault, bytes))?);
        Ok(())
    }

    /// Makes the arena at least so large.
    fn grow_arena(&mut self, bytes: usize) -> Result<(), DeviceError> {
        match &self.arena {
            Some(held) if held.bytes() >= bytes => Ok(()),
            _ => self.fit_arena(bytes),
        }
    }

    /// The target that each kernel of a program calls.
    fn functions(
        &mut self,
        program: &Program,
        artifacts: &[Artifact],
    ) -> Result<Vec<Callable>, Fault> {
        let stream = self.context.stream().cast();
        let mut functions = Vec::with_capacity(program.kernels.len());
        let positions = program.source_positions();
        for (index, (kernel, position)) in program.kernels.iter().zip(positions).enumerate() {
            functions.push(match kernel {
                Kernel::Builtin(builtin) => {
                    let name = builtin.name;
                    return Err(Fault::refused(format!(
                        "`{name}` is a function of the host, and runs on a CPU only"
                    )));
                }
                Kernel::Foreign(foreign) => {
                    return Err(Fault::refused(needs_runner(&foreign.name).to_string()));
                }
                Kernel::Library(library) => {
                    let kernel = KernelId(index);
                    self.vendor.callable(program, kernel, library, stream)?
                }
                Kernel::Compiled(source) => {
                    let artifact = position.and_then(|position| artifacts.get(position));
                    let artifact = artifact.ok_or_else(|| {
                        Fault::refused(format!("`{}` was not compiled", source.entry))
                    })?;
                    Callable::Function(self.modules.function(artifact, &source.entry)?)
                }
            });
        }
        Ok(functions)
    }

    /// The addresses of the variables that a program writes, by their name expressions.
    fn symbols(
        &mut self,
        program: &Program,
        artifacts: &[Artifact],
    ) -> Result<BTreeMap<Cow<'static, str>, u64>, Fault> {
        let positions = program.source_positions();
        let mut found = BTreeMap::new();
        for buffer in &program.buffers {
            let Binding::Symbol { kernel, name } = &buffer.binding else {
                continue;
            };
            let artifact = positions[kernel.0].and_then(|position| artifacts.get(position));
            let artifact =
                artifact.ok_or_else(|| Fault::refused(format!("`{name}` was not compiled")))?;
            let address = self.modules.variable(artifact, name, buffer.size_bytes())?;
            found.insert(name.clone(), address);
        }
        Ok(found)
    }

    /// The address of each buffer of a program.
    fn addresses(&self, loaded: &Loaded) -> Vec<u64> {
        let arena = self.arena.as_ref().map_or(0, Allocation::address);
        let buffers = loaded.program.buffers.iter().zip(&loaded.layout.offsets);
        buffers
            .map(|(buffer, offset)| match offset {
                Some(offset) => arena + *offset as u64,
                None => match &buffer.binding {
                    Binding::Symbol { name, .. } => loaded.symbols.get(name).copied().unwrap_or(0),
                    _ => self.inputs.get(&buffer.name).map_or(0, Allocation::address),
                },
            })
            .collect()
    }

    /// The memory that a buffer is in: the arena, if it has a place there.
    fn memory_of(&self, buffer: &Buffer, offset: Option<usize>) -> Option<&Allocation> {
        match offset {
            Some(_) => self.arena.as_ref(),
            None => self.inputs.get(&buffer.name),
        }
    }

    /// Makes memory for a program's buffers, and brings its given tensors together; the address of
    /// each buffer.
    fn make_room(&mut self, program: Prepared) -> Result<Vec<u64>, DeviceError> {
        let bytes = self.programs[program.0].layout.bytes;
        self.grow_arena(bytes)?;
        let together = &self.programs[program.0].program;
        let together = self.inputs.bring_together(together, &self.pool);
        together.map_err(|fault| self.means(fault, bytes))?;
        Ok(self.addresses(&self.programs[program.0]))
    }

    /// Records a program's timed steps as a graph, unless that was done and its buffers stayed
    /// where they were.
    fn record(&mut self, program: Prepared, addresses: &[u64]) -> Result<(), Fault> {
        let loaded = &self.programs[program.0];
        let held = loaded.graph.as_ref();
        if held.is_some_and(|graph| graph.is_for(addresses)) {
            return Ok(());
        }
        if loaded.launches > graph::MOST_NODES {
            return Err(Fault::refused(format!(
                "{} launches are too many for one graph, which takes {}",
                loaded.launches,
                graph::MOST_NODES
            )));
        }
        let (program_data, functions) = (&loaded.program, &loaded.functions);
        let runner = Runner::new(&self.context, program_data, functions, addresses);
        let start = Instant::now();
        let graph = Graph::record(&self.context, addresses, |recording| {
            runner.record(recording)
        })?;
        let loaded = &mut self.programs[program.0];
        if loaded.graph.replace(graph).is_none() {
            loaded.further_preparation_ns += start.elapsed().as_nanos() as u64;
        }
        Ok(())
    }
}

impl Device for Cuda {
    fn identity(&self) -> &DeviceIdentity {
        &self.identity
    }

    fn target(&self) -> Target {
        self.target.clone()
    }

    fn computes(&self) -> bool {
        true
    }

    fn clock_resolution_ns(&self) -> f64 {
        self.clock_resolution_ns
    }

    fn clocks(&mut self) -> Option<Clocks> {
        self.monitor.as_mut().and_then(Monitor::clocks)
    }

    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError> {
        self.programs.clear();
        self.arena = None;
        let all = inputs.values().map(|tensor| tensor.data().bytes().len());
        let all: usize = all.sum();
        let bound = self.inputs.clear().and_then(|()| {
            self.pool.trim()?;
            self.inputs.bind(inputs, &self.pool, &self.adder)
        });
        bound.map_err(|fault| self.means(fault, all))
    }

    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError> {
        let program = job.program;
        program.validate().map_err(DeviceError::Launch)?;
        if let Some(kernel) = program.kernels.first().filter(|_| program.is_untrusted()) {
            return Err(needs_runner(kernel.name()));
        }
        check_given(&program, |name| {
            self.inputs.get(name).map(Allocation::bytes)
        })?;
        check_writes_are_exclusive(&program).map_err(DeviceError::Launch)?;
        let layout = Layout::of(&program, ALIGNMENT);
        let earlier_ns =
            self.modules.load_ns(keys_of(job.artifacts)) + self.vendor.open_ns(&program);
        let functions = self.functions(&program, job.artifacts);
        let functions = functions.and_then(|functions| {
            run::check_launches(&program, &functions)?;
            Ok((functions, self.symbols(&program, job.artifacts)?))
        });
        let (functions, symbols) = functions.map_err(|fault| self.means(fault, layout.bytes))?;
        self.fit_arena(layout.bytes)?;
        let together = self.inputs.bring_together(&program, &self.pool);
        together.map_err(|fault| self.means(fault, layout.bytes))?;
        let kept = self.inputs.keep_originals(&program);
        kept.map_err(|fault| self.means(fault, layout.bytes))?;
        let open_ns = self.vendor.open_ns(&program);
        self.programs.push(Loaded {
            launches: program.totals().launches,
            program,
            functions,
            symbols,
            layout,
            gated: false,
            as_graph: false,
            graph: None,
            further_preparation_ns: earlier_ns,
            open_ns,
        });
        Ok(Prepared(self.programs.len() - 1, None))
    }

    fn drive(
        &mut self,
        program: Prepared,
        driver: &mut dyn LoopDriver,
    ) -> Result<Sample, DeviceError> {
        self.make_room(program)?;
        let restored = self.inputs.restore_for(&self.programs[program.0].program);
        restored.map_err(|fault| self.means(fault, 0))?;
        let elapsed = driver.run(&mut InStream::new(self))?;
        Ok(Sample {
            clocks: self.clocks(),
            ..Sample::new(elapsed.as_nanos() as f64, driver.iterations())
        })
    }
}

impl RunsPrograms for Cuda {
    fn further_preparation_ns(&self, program: Prepared) -> u64 {
        self.programs[program.0].further_preparation_ns
    }

    fn preparation(&self, program: Prepared) -> Option<Preparation> {
        let import_ns = self.programs[program.0].open_ns;
        (import_ns > 0).then_some(Preparation {
            import_ns,
            ..Preparation::default()
        })
    }

    fn launch_as_graph(&mut self, program: Prepared) {
        self.programs[program.0].as_graph = true;
    }

    /// Also begins the account of the program's memory.
    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError> {
        let bytes = self.programs[program.0].layout.bytes;
        self.fit_arena(bytes)?;
        let Loaded {
            program, layout, ..
        } = &self.programs[program.0];
        let together = self.inputs.bring_together(program, &self.pool);
        together.map_err(|fault| self.means(fault, bytes))?;
        let poisoned = self.pool.reset_marks().and_then(|()| {
            if let Some(arena) = &self.arena {
                arena.fill(0xff)?;
                let mut bands = layout.bands.iter();
                bands.try_for_each(|band| arena.write(band.range.start, &band.pattern()))?;
            }
            self.context.synchronize()
        });
        poisoned.map_err(|fault| self.means(fault, bytes))
    }

    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let bytes = self.programs[program.0].layout.bytes;
        let addresses = self.make_room(program)?;
        if self.programs[program.0].as_graph {
            let recorded = self.record(program, &addresses);
            recorded.map_err(|fault| self.means(fault, bytes))?;
        }
        let loaded = &self.programs[program.0];
        let launches = loaded.launches.max(1);
        let per_span = MOST_GATED_LAUNCHES / launches;
        // Given values are restored before each iteration, else before the first: another program
        // may have updated it.
        let updates = loaded.program.updated().next().is_some();
        let (runs, each) = match updates {
            true => (iterations, 1),
            false => (1, iterations),
        };
        let spans = Spans {
            iterations: each,
            per_span: per_span.max(1) as u32,
            gated: loaded.gated,
        };
        let runner = Runner::new(
            &self.context,
            &loaded.program,
            &loaded.functions,
            &addresses,
        );
        let mut run = || {
            self.inputs.restore_for(&loaded.program)?;
            runner.sample(&mut self.timer, spans, loaded.graph.as_ref())
        };
        let elapsed: Result<Vec<f64>, Fault> = (0..runs).map(|_| run()).collect();
        let elapsed = elapsed.map_err(|fault| self.means(fault, bytes))?;
        let elapsed_ns = elapsed.into_iter().sum();
        // Once the host was too slow for a gate, it would be again.
        let was_late = self.timer.was_late();
        let is_short = per_span > 0 || self.programs[program.0].as_graph;
        self.programs[program.0].gated = is_short && !was_late && self.timer.has_gate();
        Ok(Sample {
            is_ungated: !spans.gated || was_late,
            clocks: self.clocks(),
            ..Sample::new(elapsed_ns, iterations)
        })
    }

    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError> {
        let loaded = &self.programs[program.0];
        let mut results = Tensors::new();
        for (buffer, offset) in loaded.program.buffers.iter().zip(&loaded.layout.offsets) {
            let memory = self.memory_of(buffer, *offset);
            let (Some(_), Some(memory)) = (buffer.result(), memory) else {
                continue;
            };
            let spec = spec_of(buffer, specs)?;
            let data = Data::filled(spec.dtype, spec.elements() as usize, |bytes| {
                memory.read(offset.unwrap_or(0), bytes)
            });
            let data = data.map_err(|fault| self.means(fault, loaded.layout.bytes))?;
            results.insert(spec.name.clone(), Tensor::new(spec.shape.clone(), data));
        }
        Ok(results)
    }

    fn fingerprint(&mut self, program: Prepared) -> Result<Option<String>, DeviceError> {
        let loaded = &self.programs[program.0];
        let mut found = String::new();
        for (buffer, offset) in loaded.program.buffers.iter().zip(&loaded.layout.offsets) {
            let memory = self.memory_of(buffer, *offset);
            let (Some(_), Some(memory)) = (buffer.result(), memory) else {
                continue;
            };
            let bytes = buffer.size_bytes() as usize;
            let sums = self.adder.sums(memory, offset.unwrap_or(0), bytes);
            let sums = sums.map_err(|fault| self.means(fault, loaded.layout.bytes))?;
            found += &format!("{} {sums:x?};", buffer.name);
        }
        Ok(Some(found))
    }

    fn damage(&mut self, program: Prepared) -> Result<Vec<Damage>, DeviceError> {
        let Loaded {
            program, layout, ..
        } = &self.programs[program.0];
        let mut damage = Vec::new();
        let Some(arena) = &self.arena else {
            return Ok(damage);
        };
        for band in &layout.bands {
            let found = arena.download(band.range.start, band.range.len());
            let found = found.map_err(|fault| self.means(fault, layout.bytes))?;
            damage.extend(band.damage(&found, program));
        }
        Ok(damage)
    }

    /// Of the program that was poisoned last.
    fn restore_inputs(&mut self, given: &Tensors) -> Result<Vec<String>, DeviceError> {
        let restored = self.inputs.restore(given, &self.adder);
        restored.map_err(|fault| self.means(fault, 0))
    }

    fn rewrite(
        &mut self,
        program: Prepared,
        given: &Tensors,
        keeps_results: bool,
    ) -> Result<bool, DeviceError> {
        // Programs before it may have had an arena of another size, and other tensors together.
        self.make_room(program)?;
        let rewritten = self.inputs.rewrite(given, &self.adder);
        rewritten.map_err(|fault| self.means(fault, 0))?;
        if !keeps_results {
            self.poison(program)?;
        }
        Ok(true)
    }

    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError> {
        let loaded = &self.programs[program.0];
        let (used, reserved) = self.pool.marks().map_err(|fault| self.means(fault, 0))?;
        let bands = loaded.layout.bytes - loaded.layout.bytes_of_buffers();
        let others = self.inputs.foreign_bytes(&loaded.program) + bands as u64;
        Ok(DeviceMemory {
            peak_allocated_bytes: used.saturating_sub(others),
            peak_reserved_bytes: reserved,
        })
    }
}
