//! The timed steps of a program as one CUDA graph: recorded once, launched as often as wanted.

use std::rc::Rc;

use cudarc::driver::sys;

use super::context::Context;
use super::driver::{During, Fault};

/// A program of more launches is refused: a graph of it would fill the device's memory.
pub const MOST_NODES: u64 = 200_000;

/// A graph that can be launched.
pub struct Graph {
    executable: sys::CUgraphExec,
    /// Where the program's buffers were when it was recorded.
    addresses: Vec<u64>,
    context: Rc<Context>,
}

impl Graph {
    /// Records the work that `queue` puts into the stream, which does not run it.
    ///
    /// # Errors
    /// Those of `queue`, and the driver's.
    pub fn record(
        context: &Rc<Context>,
        addresses: &[u64],
        queue: impl FnOnce(&Recording<'_>) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        begin(context)?;
        // The recording must end, even after an error, or nothing can be queued any more.
        let queued = queue(&Recording { context });
        let graph = end(context);
        queued?;
        let graph = graph?;
        let executable = instantiate(&graph)?;
        Ok(Graph {
            executable,
            addresses: addresses.to_vec(),
            context: Rc::clone(context),
        })
    }

    /// True if it was recorded with these addresses: they are part of it.
    pub fn is_for(&self, addresses: &[u64]) -> bool {
        self.addresses == addresses
    }

    /// Queues it.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn launch(&self) -> Result<(), Fault> {
        // SAFETY: the executable graph and the stream live as long as `self`; the memory that it
        // uses is where it was when it was recorded (`is_for`).
        unsafe { sys::cuGraphLaunch(self.executable, self.context.stream()) }
            .result()
            .during("launching the graph")
    }
}

impl Drop for Graph {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: destroyed once; the driver waits until it no longer runs.
        let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
    }
}

/// A node of a graph that is being recorded.
pub type Node = sys::CUgraphNode;

/// A graph that is being recorded. A node waits for the one that was queued before it, unless it is
/// told to wait for others.
pub struct Recording<'a> {
    context: &'a Context,
}

impl Recording<'_> {
    /// The nodes for which the next one would wait: the last that were queued.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn last(&self) -> Result<Vec<Node>, Fault> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut nodes, mut count) = (std::ptr::null(), 0);
        // SAFETY: the pointers are to values of the right types; no result is wanted of the others.
        unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                self.context.stream(),
                &raw mut status,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw mut nodes,
                std::ptr::null_mut(),
                &raw mut count,
            )
        }
        .result()
        .during("recording a graph")?;
        if count == 0 {
            return Ok(vec![]);
        }
        // SAFETY: the driver's list is valid until the next call for the stream.
        Ok(unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec())
    }

    /// Has the next node wait for these alone.
    ///
    /// # Errors
    /// The driver's.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub fn after(&self, mut nodes: Vec<Node>) -> Result<(), Fault> {
        let set =
            sys::CUstreamUpdateCaptureDependencies_flags_enum::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
        // SAFETY: the nodes are of the graph that is being recorded, and are copied by the call.
        unsafe {
            sys::cuStreamUpdateCaptureDependencies_v2(
                self.context.stream(),
                nodes.as_mut_ptr(),
                std::ptr::null(),
                nodes.len(),
                set as u32,
            )
        }
        .result()
        .during("recording a graph")
    }
}

/// A recorded graph, until it is instantiated.
struct Recorded(sys::CUgraph);

impl Drop for Recorded {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: destroyed once; executable graphs do not need it.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn begin(context: &Context) -> Result<(), Fault> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream lives as long as `context`.
    unsafe { sys::cuStreamBeginCapture_v2(context.stream(), mode) }
        .result()
        .during("beginning a graph")
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn end(context: &Context) -> Result<Recorded, Fault> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream lives as long as `context`, and the pointer is to a handle of the right
    // type.
    unsafe { sys::cuStreamEndCapture(context.stream(), &raw mut graph) }
        .result()
        .during("ending a graph")?;
    Ok(Recorded(graph))
}

#[expect(unsafe_code, reason = "a call of the driver")]
fn instantiate(graph: &Recorded) -> Result<sys::CUgraphExec, Fault> {
    let mut executable = std::ptr::null_mut();
    // SAFETY: the graph was recorded, and the pointer is to a handle of the right type.
    unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph.0, 0) }
        .result()
        .during("instantiating a graph")?;
    Ok(executable)
}
