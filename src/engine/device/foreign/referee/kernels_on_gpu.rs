//! Kernels in CUDA that nobody trusts, in their process: calls are queued between a wait for the
//! gate and the bell.

use std::time::Duration;
use std::{hint, thread};

use cudarc::driver::sys;
use sweeper_program::Geometry;

use super::gpu::{ENTRY, PTX, RegisteredWords, open_memory};
use super::kernels::{Call, Task};
use super::page::{NO_MORE, Page, Word};
use super::process::Complaint;
use crate::device::Artifact;
use crate::device::DeviceError;
use crate::device::cuda::context::Context;
use crate::device::cuda::driver::{self, During, Fault};
use crate::device::cuda::module::{Function, Modules};
use sweeper_model::row::outcome::Status;

/// Between two looks for the next turn; meanwhile the device may fail.
const LOOK: Duration = Duration::from_micros(100);

/// The device that this process sees.
const ORDINAL: u32 = 0;

/// A kernel that does nothing is launched before each turn, so that an empty turn has the device,
/// too: it copies no bytes.
const NOTHING: [u64; 3] = [0; 3];

/// Calls of kernels in CUDA.
pub(super) struct GpuCalls {
    words: RegisteredWords,
    modules: Modules,
    nothing: Function,
    /// Where the tensors lie.
    base: sys::CUdeviceptr,
    /// Each kernel that a turn launches for a set of tensors.
    launches: Vec<Launch>,
    task: Task,
    context: Context,
    /// Unmapped after the device has let go of its words.
    page: Page,
}

struct Launch {
    function: Function,
    geometry: Geometry,
    first_cell: usize,
}

impl From<Fault> for Complaint {
    fn from(fault: Fault) -> Self {
        let error = fault.means(0, 0);
        let reason = error.to_string();
        let (status, ends) = match error {
            DeviceError::Lost(_) => (Status::Crashed, true),
            DeviceError::OutOfMemory { .. } => (Status::Oom, false),
            _ => (Status::Error, false),
        };
        Complaint {
            status,
            reason,
            ends,
        }
    }
}

impl GpuCalls {
    /// Opens the device.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(page: Page) -> Result<Self, Complaint> {
        driver::start()?;
        let context = Context::open(ORDINAL)?;
        Ok(GpuCalls {
            words: RegisteredWords::new(&page)?,
            modules: Modules::default(),
            nothing: Function::of_ptx(PTX, ENTRY)?,
            base: 0,
            launches: Vec::new(),
            task: Task::default(),
            context,
            page,
        })
    }

    /// Opens the memory of the tensors by its handle in hexadecimal digits; its address.
    ///
    /// # Errors
    /// A handle that opens nothing.
    pub(super) fn open(&mut self, handle: &str) -> Result<u64, Complaint> {
        let handle = hex::decode(handle).map_err(|error| error.to_string())?;
        (self.base, _) = open_memory(handle.into_iter())?;
        Ok(self.base)
    }

    /// Gets ready for turns without kernels.
    pub(super) fn enter(&mut self, task: &Task) {
        self.launches.clear();
        self.tell(task);
    }

    /// Loads the kernels of a task, and launches them for each set of tensors: behind a gate
    /// nothing can be loaded.
    ///
    /// # Errors
    /// The driver's, and arguments that a kernel does not take.
    pub(super) fn prepare(&mut self, task: Task, objects: &[Artifact]) -> Result<(), Complaint> {
        let calls = task.calls.iter();
        let launches = calls.map(|call| launch(&mut self.modules, call, &objects[call.object]));
        self.launches = launches.collect::<Result<_, Complaint>>()?;
        self.tell(&task);
        self.task = task;
        let sets = self.task.cells.len().checked_div(self.task.cells_of_set);
        for _ in 0..2 {
            self.launch(sets.unwrap_or(1))?;
        }
        Ok(self.context.synchronize()?)
    }

    /// Says where the results lie, which stays so.
    fn tell(&self, task: &Task) {
        for (number, (address, bytes)) in task.results.iter().enumerate() {
            self.page.tell(number, (address - self.base, *bytes), true);
        }
    }

    /// Launches all kernels for the first sets of tensors.
    fn launch(&mut self, sets: usize) -> Result<(), Fault> {
        for set in 0..sets {
            for launch in &self.launches {
                let first = set * self.task.cells_of_set + launch.first_cell;
                let count = launch.function.parameter_bytes().len();
                let cells = &mut self.task.cells[first..first + count];
                let stream = self.context.stream();
                launch.function.launch(stream, &launch.geometry, cells)?;
            }
        }
        Ok(())
    }

    /// Turns between gate and bell, from a number on, until there are no more.
    ///
    /// # Errors
    /// The driver's: a kernel that failed.
    pub(super) fn turns(&mut self, first: u64) -> Result<(), Complaint> {
        for number in first.. {
            if !self.is_announced(number)? {
                break;
            }
            self.turn(number)?;
        }
        Ok(())
    }

    /// Waits for a turn; whether there is one.
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn is_announced(&self, number: u64) -> Result<bool, Fault> {
        let mut is_at_work = true;
        loop {
            match self.page.load(Word::Announced) {
                NO_MORE => return Ok(false),
                announced if announced == number => return Ok(true),
                _ => {}
            }
            if is_at_work {
                // SAFETY: the stream is that of the context.
                let state = unsafe { sys::cuStreamQuery(self.context.stream()) };
                is_at_work = state == sys::CUresult::CUDA_ERROR_NOT_READY;
                if !is_at_work {
                    state.result().during("running the kernels")?;
                }
            }
            thread::sleep(LOOK);
        }
    }

    #[expect(unsafe_code, reason = "calls of the driver")]
    fn turn(&mut self, number: u64) -> Result<(), Fault> {
        let stream = self.context.stream();
        let is_queued = self.page.load(Word::IsQueued) != 0;
        if is_queued {
            let reached = sys::CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ as u32;
            let gate = self.words.address(Word::Opened);
            // SAFETY: the word lies in memory that the device reads as long as `self` lives.
            unsafe { sys::cuStreamWaitValue32_v2(stream, gate, number as u32, reached) }
                .result()
                .during("waiting for the gate")?;
        } else {
            self.page.store(Word::Ready, number);
            while self.page.load(Word::Opened) != number {
                hint::spin_loop();
            }
        }
        self.nothing
            .launch(stream, &Geometry::linear(1, 32), &mut NOTHING.clone())?;
        self.launch(self.page.load(Word::Count) as usize)?;
        let bell = self.words.address(Word::Rung);
        // SAFETY: as above, and the device may write it.
        unsafe { sys::cuStreamWriteValue32_v2(stream, bell, number as u32, 0) }
            .result()
            .during("ringing the bell")?;
        self.page.store(Word::Told, number);
        if is_queued {
            self.page.store(Word::Ready, number);
        }
        Ok(())
    }
}

/// A launch by its call.
fn launch(modules: &mut Modules, call: &Call, object: &Artifact) -> Result<Launch, Complaint> {
    let function = modules.function(object, &call.entry)?;
    let (taken, given) = (function.parameter_bytes(), &call.argument_bytes);
    if taken != given {
        return Err(format!(
            "`{}` takes arguments of {taken:?} bytes, and gets those of {given:?}",
            call.entry
        )
        .into());
    }
    function.allow(call.geometry.shared_bytes, call.geometry.cluster)?;
    Ok(Launch {
        function,
        geometry: call.geometry,
        first_cell: call.first_cell,
    })
}
