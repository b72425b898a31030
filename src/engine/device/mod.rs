//! Devices, which run [`Program`]s.
//!
//! A device is driven by one worker process. It binds the input tensors of one problem, prepares
//! the programs that compute it, and runs samples of them; a sample of one program may overwrite
//! the results of another, so results are read right after the sample that made them.
//!
//! Architecture invariant: `unsafe` lives in this module's device folders and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Buffer, Foreign, Kernel, Program, Runner, Target, Tensors};

pub mod platform;
pub mod null;
pub mod cpu;
pub mod cuda;
pub mod ceilings;
pub mod process;
pub mod sandbox;
pub mod memory;
pub mod busy;
pub mod nvtx;
pub mod foreign;
pub mod launcher;
pub mod layout;
pub mod outputs;

use launcher::{LoopDriver, Whole};
use layout::Damage;
use outputs::{Outputs, Reading};

use sweeper_model::hardware::clocks::Clocks;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind, DeviceMemory};
use sweeper_model::row::metric::Metric;
use sweeper_model::row::outcome::{Checked, LibraryUse, Status};

/// A compiled kernel, ready to be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// The kernel key in full; equal keys hold equal bytes.
    pub key: String,
    /// A shared object or a cubin.
    pub bytes: Arc<[u8]>,
    /// Symbols of functions that programs call by another name: a C++ name expression.
    pub symbols: BTreeMap<String, String>,
}

impl Artifact {
    /// The symbol of the function that programs call `entry`.
    fn symbol<'a>(&'a self, entry: &'a str) -> &'a str {
        self.symbols.get(entry).map_or(entry, String::as_str)
    }
}

/// Why a device failed to do a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DeviceError {
    /// There is not enough memory.
    #[error("out of memory: {needed_bytes} bytes needed, {available_bytes} available")]
    OutOfMemory {
        /// Bytes that the program needs in all.
        needed_bytes: u64,
        /// Bytes that the device could give.
        available_bytes: u64,
    },
    /// The device refuses the launch; it works on.
    #[error("launch refused: {0}")]
    Launch(String),
    /// The device is lost; the worker must be replaced.
    #[error("device lost: {0}")]
    Lost(String),
    /// The device, or a library that it needs, is missing here.
    #[error("{0}")]
    Unavailable(String),
    /// Another process failed at its work; this one and the device work on.
    #[error("{reason}")]
    Foreign {
        /// The point's status.
        status: Status,
        /// Why.
        reason: String,
    },
    /// Another process was ended from outside, or could not be started for trouble of the moment.
    #[error("{0}")]
    Interrupted(String),
}

/// The behavior that the null device pretends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Time of one iteration, in nanoseconds.
    pub time_ns: f64,
    /// Greatest relative deviation of a sample from `time_ns`; deviations follow from `seed`.
    pub noise: f64,
    /// Seed of the deviations.
    pub seed: u64,
    /// Memory that the device accounts for; the program's own where absent.
    pub memory_bytes: Option<u64>,
}

/// A program to prepare, with its kernels.
pub struct Job<'a> {
    /// The program.
    pub program: Program,
    /// The program's compiled kernels, in the order of [`Program::sources`].
    pub artifacts: &'a [Artifact],
    /// The behavior that the null device pretends; other devices do not look at it.
    pub script: Option<Script>,
}

/// A program that was prepared: its number among those of the runner that has it, or of the device
/// itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prepared(pub usize, pub Option<Runner>);

/// A sample may wait for a processor for this part of its time.
const MOST_WAITED: f64 = 0.01;

/// One timed span.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of all iterations together, in nanoseconds.
    pub elapsed_ns: f64,
    /// How often the timed steps ran in it.
    pub iterations: u32,
    /// The device did not wait until all was queued: the time may hold some of the host's.
    pub is_ungated: bool,
    /// The program changed the floating-point modes of a thread, which were restored after it.
    pub has_changed_modes: bool,
    /// How the device was doing, where it can be asked.
    pub clocks: Option<Clocks>,
    /// The longest that one of the program's threads stood ready and had no processor meanwhile, in
    /// nanoseconds, where the system says so.
    pub waited_ns: Option<f64>,
    /// Further values, each a mean over its iterations, by name.
    pub metrics: BTreeMap<String, Metric>,
}

impl Sample {
    /// A sample with only its time known.
    pub fn new(elapsed_ns: f64, iterations: u32) -> Self {
        Sample {
            elapsed_ns,
            iterations,
            is_ungated: false,
            has_changed_modes: false,
            clocks: None,
            waited_ns: None,
            metrics: BTreeMap::new(),
        }
    }

    /// Time of one iteration, in nanoseconds.
    pub fn per_iteration_ns(&self) -> f64 {
        self.elapsed_ns / f64::from(self.iterations)
    }

    /// True if the device held its clocks back while it was taken.
    pub fn is_throttled(&self) -> bool {
        self.clocks.is_some_and(Clocks::is_throttled)
    }

    /// True if it waited for a processor: its time is that of others, too.
    pub fn has_waited(&self) -> bool {
        let most = MOST_WAITED * self.elapsed_ns;
        self.waited_ns.is_some_and(|waited| waited > most)
    }
}

/// Times of steps that make a program ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preparation {
    /// Loading libraries, in nanoseconds: those of NVIDIA that it calls or, of a function in an
    /// interpreter, itself and the library of its arrays.
    pub import_ns: u64,
    /// The first call of a function in an interpreter, in which it compiles, in nanoseconds.
    pub first_call_ns: Option<u64>,
    /// Files of the user that it loaded and that are not part of the run's identity.
    pub unlisted: Vec<String>,
    /// Configurations that autotuners have chosen so far for kernels that it launches, such as
    /// `softmax_kernel: BLOCK=1024 num_warps=8`.
    pub autotuned: BTreeSet<String>,
    /// States of its process that it changed so far, such as `floating-point modes`.
    pub changed: BTreeSet<String>,
    /// What of each call is the referee's, in nanoseconds, and is subtracted: the median, and the
    /// distance of its quartiles.
    pub referee_ns: Option<(u64, u64)>,
}

/// A run of a program on inputs that it had not seen.
#[derive(Clone, Debug)]
pub struct UnseenRun {
    /// The results, as they were when the run ended.
    pub outputs: Outputs,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: f64,
    /// There is memory for more such inputs.
    pub has_room: bool,
    /// Some of the host's time may be in it, although the device has a clock of its own.
    pub is_ungated: bool,
}

/// Runs programs that it has prepared.
pub trait RunsPrograms {
    /// The time that making a program ready takes beyond the time of its
    /// [`prepare`](Device::prepare), in nanoseconds: to load kernels and libraries that programs
    /// before it had loaded already, and to record its graph once it ran. Both together are the
    /// price of the program by itself.
    fn further_preparation_ns(&self, _program: Prepared) -> u64 {
        0
    }

    /// Times of the steps that made a program ready, of a foreign one where its process says so;
    /// none where nothing was loaded.
    fn preparation(&self, _program: Prepared) -> Option<Preparation> {
        None
    }

    /// From now on launches a program's timed steps as one graph. A device that knows no graphs
    /// goes on as before.
    fn launch_as_graph(&mut self, _program: Prepared) {}

    /// Overwrites all results and scratch memory of a program, so that elements that are never
    /// written show.
    ///
    /// # Errors
    /// A lost device.
    fn poison(&mut self, program: Prepared) -> Result<(), DeviceError>;

    /// Runs `iterations` times the prologue untimed and the steps timed. Given tensors that a
    /// program updates are restored before each, untimed as well.
    ///
    /// # Errors
    /// A refused launch or a lost device.
    fn sample(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError>;

    /// The least that a sample of several iterations of a program may last, in nanoseconds, however
    /// finely the clock ticks: the first call after a request is slower than those that follow.
    fn least_sample_ns(&self, _program: Prepared) -> f64 {
        0.0
    }

    /// What of a sample's iteration, in nanoseconds, are calls: the time that as many calls of a
    /// function that does nothing take, made and timed like those of the program. None where calls
    /// are not in times, or nobody can tell.
    fn launch_floor_ns(&mut self, _program: Prepared, _iterations: u32) -> Option<f64> {
        None
    }

    /// Reads the results of a program's last sample, with the shapes of `specs`.
    ///
    /// # Errors
    /// A lost device.
    fn results(&mut self, program: Prepared, specs: &[TensorSpec]) -> Result<Tensors, DeviceError>;

    /// As [`results`](Self::results), where outputs may stay on a GPU.
    ///
    /// # Errors
    /// A lost device.
    fn outputs(&mut self, program: Prepared, read: Reading<'_>) -> Result<Outputs, DeviceError> {
        self.results(program, read.specs).map(Outputs::Host)
    }

    /// A text that changes with any bit of the results of a program's last sample. None where it
    /// takes as long as reading them.
    ///
    /// # Errors
    /// A lost device.
    fn fingerprint(&mut self, _program: Prepared) -> Result<Option<String>, DeviceError> {
        Ok(None)
    }

    /// How thoroughly [`results`](Self::results) itself judges a program's run; none where the
    /// results that it reads are judged.
    fn judged(&self, _program: Prepared) -> Option<Checked> {
        None
    }

    /// Where a program with kernels of the user wrote beside its results and its scratch memory
    /// since it was poisoned. No other program has run since then: it would have written there.
    ///
    /// # Errors
    /// A lost device.
    fn damage(&mut self, _program: Prepared) -> Result<Vec<Damage>, DeviceError> {
        Ok(Vec::new())
    }

    /// Compares the memory of given tensors with what was bound, and makes it so again where a
    /// program wrote what it must not. Yields the names of those that had changed; a tensor that a
    /// program updates is not looked at.
    ///
    /// # Errors
    /// A lost device.
    fn restore_inputs(&mut self, _given: &Tensors) -> Result<Vec<String>, DeviceError> {
        Ok(Vec::new())
    }

    /// Overwrites the inputs with `given`, tensors of the shapes that were bound, where they lie;
    /// then the results and the scratch memory of a program: with poison, or with their own bits
    /// where it `keeps_results`. Caches are alike after both. False where inputs lie in memory of
    /// another process.
    ///
    /// # Errors
    /// A lost device.
    fn rewrite(
        &mut self,
        _program: Prepared,
        _given: &Tensors,
        _keeps_results: bool,
    ) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// Runs a program once on inputs that it has not seen, with its results poisoned before, and
    /// reads them. None for programs that can't be audited.
    ///
    /// # Errors
    /// Those of [`sample`](Self::sample), [`outputs`](Self::outputs) and
    /// [`rewrite`](Self::rewrite).
    fn run_unseen(
        &mut self,
        program: Prepared,
        inputs: &Tensors,
        read: Reading<'_>,
    ) -> Result<Option<UnseenRun>, DeviceError> {
        if !self.rewrite(program, inputs, false)? {
            return Ok(None);
        }
        let elapsed_ns = self.sample(program, 1)?.elapsed_ns;
        Ok(Some(UnseenRun {
            outputs: self.outputs(program, read)?,
            elapsed_ns,
            has_room: true,
            is_ungated: false,
        }))
    }

    /// How many calls on unseen inputs are to be made together, so that they last long enough.
    fn calls_together(&self, _program: Prepared) -> usize {
        1
    }

    /// As [`run_unseen`](Self::run_unseen), on each of several inputs.
    ///
    /// # Errors
    /// Those of [`run_unseen`](Self::run_unseen); a program that can't be run on unseen inputs.
    fn run_together(
        &mut self,
        program: Prepared,
        inputs: &[&Tensors],
        read: Reading<'_>,
    ) -> Result<Vec<UnseenRun>, DeviceError> {
        let each = inputs.iter().map(|inputs| {
            let run = self.run_unseen(program, inputs, read)?;
            run.ok_or_else(|| DeviceError::Launch("it takes no inputs but its own".to_owned()))
        });
        each.collect()
    }

    /// Runs a program once on the `given` inputs, which it knows, and with its results of them in
    /// place, as in its samples. All of this memory was overwritten with its own bits before, as it
    /// is for [`run_unseen`](Self::run_unseen). The time in nanoseconds.
    ///
    /// # Errors
    /// Those of [`sample`](Self::sample) and [`rewrite`](Self::rewrite).
    fn run_known(&mut self, program: Prepared, given: &Tensors) -> Result<f64, DeviceError> {
        self.rewrite(program, given, false)?;
        self.sample(program, 1)?;
        self.rewrite(program, given, true)?;
        Ok(self.sample(program, 1)?.elapsed_ns)
    }

    /// Refuses a program that works on after the span in which it was called.
    ///
    /// # Errors
    /// [`DeviceError::Foreign`], and those of [`sample`](Self::sample).
    fn refuse_late_work(&mut self, _program: Prepared) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Calls a function once on inputs that it has not seen, untimed and under a profiler, and says
    /// which kernels of libraries it launches. None where nobody can tell.
    ///
    /// # Errors
    /// A function that fails, a profiler that notes nothing.
    fn library_use(
        &mut self,
        _program: Prepared,
        _inputs: &Tensors,
    ) -> Result<Option<LibraryUse>, DeviceError> {
        Ok(None)
    }

    /// Lets a process that waits for the next call of a program stand still until then.
    fn rest(&mut self, _program: Prepared) {}

    /// Ends the process that runs a program of the user, and runs the program in a new one as often
    /// as it ran there: what was the luck of a process, such as where its memory lies, is then that
    /// of another. False where no such process runs it.
    ///
    /// # Errors
    /// Those of [`sample`](Self::sample).
    fn start_anew(&mut self, _program: Prepared) -> Result<bool, DeviceError> {
        Ok(false)
    }

    /// The memory that the program took, by the device's own accounting.
    ///
    /// # Errors
    /// A lost device.
    fn memory(&mut self, program: Prepared) -> Result<DeviceMemory, DeviceError>;
}

/// A device: it prepares programs, and runs them.
pub trait Device: RunsPrograms {
    /// The identity of the device.
    fn identity(&self) -> &DeviceIdentity;

    /// The target that programs for the device are made for.
    fn target(&self) -> Target;

    /// False for a device whose results mean nothing: inputs, oracle and checks are left out.
    fn computes(&self) -> bool;

    /// The resolution of its clock in nanoseconds: a sample should last a thousand times as long.
    fn clock_resolution_ns(&self) -> f64;

    /// How the device is doing, where it can be asked: samples of its own programs say it
    /// themselves.
    fn clocks(&mut self) -> Option<Clocks> {
        None
    }

    /// How long it has run programs so far, by the host's clock: the rest of a run's time it waits
    /// for its host. Nothing where no time passes.
    fn running(&self) -> Duration {
        Duration::ZERO
    }

    /// Makes `inputs` resident and forgets the inputs of the problem before, with all its programs.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], or a lost device.
    fn bind(&mut self, inputs: &Tensors) -> Result<(), DeviceError>;

    /// Loads a program's kernels and allocates its memory.
    ///
    /// # Errors
    /// Out of memory, kernels that can't be loaded, a program with a request that the device
    /// refuses.
    fn prepare(&mut self, job: Job<'_>) -> Result<Prepared, DeviceError>;

    /// Lets the process that is to run a program's kernel load its libraries, where that can be
    /// done before it is prepared. What fails does so again then.
    fn load_foreign(&mut self, _foreign: &Foreign) {}

    /// Gets a program ready that another process runs, its [`runner`](Program::runner). `inputs`
    /// are the tensors of the problem: that process gets them with its first program.
    ///
    /// # Errors
    /// Those of [`prepare`](Device::prepare), and [`DeviceError::Foreign`].
    fn prepare_apart(&mut self, job: Job<'_>, _inputs: &Tensors) -> Result<Prepared, DeviceError> {
        let name = job.program.kernels.first().map_or("", Kernel::name);
        Err(needs_runner(name))
    }

    /// Runs a whole loop, from its first launch until the device has finished, by the host's clock:
    /// the prologue once and untimed, then the steps `iterations` times, each with the state that
    /// the iteration before left. Given tensors are restored before the first one alone. Caches are
    /// left as they are.
    ///
    /// # Errors
    /// A refused launch or a lost device; a program that another process runs.
    fn run_loop(&mut self, program: Prepared, iterations: u32) -> Result<Sample, DeviceError> {
        let mut whole = Whole {
            program,
            iterations,
        };
        self.drive(program, &mut whole)
    }

    /// Runs a loop whose launches `driver` chooses, as [`run_loop`](Device::run_loop) does: it
    /// begins with the given tensors of `program`.
    ///
    /// # Errors
    /// Those of the driver; a device that has no such loops.
    fn drive(
        &mut self,
        _program: Prepared,
        _driver: &mut dyn LoopDriver,
    ) -> Result<Sample, DeviceError> {
        Err(no_loop())
    }
}

/// The refusal of a kernel that a device can't run by itself.
fn needs_runner(kernel: &str) -> DeviceError {
    DeviceError::Launch(format!("`{kernel}` is run by another process"))
}

/// The refusal of whole loops.
fn no_loop() -> DeviceError {
    let reason = "whole loops are those of programs that run on the device itself";
    DeviceError::Unavailable(reason.to_owned())
}

/// Refuses a program whose given buffers have other sizes than the tensors that were bound, of
/// which `bound` says the bytes.
fn check_given(
    program: &Program,
    bound: impl Fn(&str) -> Option<usize>,
) -> Result<(), DeviceError> {
    for buffer in program.buffers.iter().filter(|buffer| buffer.is_given()) {
        let bound = bound(&buffer.name);
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

/// The keys of some artifacts, each once.
fn keys_of(artifacts: &[Artifact]) -> BTreeSet<&str> {
    let keys = artifacts.iter().map(|artifact| artifact.key.as_str());
    keys.collect()
}

/// The output of the problem that a buffer of results holds.
///
/// # Errors
/// [`DeviceError::Launch`] if there is none of its name, type and size.
fn spec_of<'a>(buffer: &Buffer, specs: &'a [TensorSpec]) -> Result<&'a TensorSpec, DeviceError> {
    let is_same = |spec: &&TensorSpec| {
        buffer.result() == Some(&*spec.name)
            && spec.dtype == buffer.dtype
            && spec.size_bytes() == buffer.size_bytes()
    };
    specs.iter().find(is_same).ok_or_else(|| {
        DeviceError::Launch(format!("`{}` is not an output of the problem", buffer.name))
    })
}
