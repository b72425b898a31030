//! The time that the stream takes for queued work.
//!
//! A sample is the time between two events. The device would reach the first while the host is
//! still queueing the work after it, so a gate holds the stream back until all of a sample is
//! queued. It opens when the device has nothing else to do: with a quick host a sample would
//! otherwise begin right after the flush of the cache, and with a slow one after a rest.

use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::context::Context;
use super::driver::{During, Fault};
use super::flush::Flush;
use super::gate::Gate;
use sweeper_model::identity::CacheState;

/// Pairs of events from which the clock's resolution is read.
const PROBES: usize = 64;

/// The resolution where all probes agree: NVIDIA documents it for events.
const DOCUMENTED_RESOLUTION_NS: f64 = 500.0;

/// Times work that is queued in a stream.
pub struct Timer {
    /// All before a gated span is done.
    ready: Event,
    start: Event,
    stop: Event,
    /// None where the device can't wait for memory.
    gate: Option<Gate>,
    /// None where the cache stays as it is.
    flush: Option<Flush>,
    /// The gate's time limit was reached since this was last asked.
    late: bool,
    context: Rc<Context>,
}

impl Timer {
    /// A timer that brings the second-level cache into a state before each span.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Rc<Context>, cache: CacheState) -> Result<Self, Fault> {
        Ok(Timer {
            ready: Event::new(context)?,
            start: Event::new(context)?,
            stop: Event::new(context)?,
            gate: Gate::new(context)?,
            flush: Flush::new(context, cache)?,
            late: false,
            context: Rc::clone(context),
        })
    }

    /// True if the cache is flushed before each span.
    pub fn flushes(&self) -> bool {
        self.flush.is_some()
    }

    /// True if spans can be gated here.
    pub fn has_gate(&self) -> bool {
        self.gate.is_some()
    }

    /// True if, since the last call, queueing took longer than a gate stays closed. The timed spans
    /// then hold some of the host's time.
    pub fn was_late(&mut self) -> bool {
        std::mem::take(&mut self.late)
    }

    /// Flushes, and times the work that `queue` puts into the stream, in nanoseconds. Where it is
    /// `gated` the device begins when all of it is queued, from rest: no more than 900 launches.
    ///
    /// # Errors
    /// Errors of `queue`, and those of kernels.
    pub fn span(
        &mut self,
        gated: bool,
        queue: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<f64, Fault> {
        if let Some(flush) = &mut self.flush {
            flush.queue(&self.context)?;
        }
        let gate = self.gate.as_mut().filter(|_| gated);
        let queued = match gate {
            None => Self::queue(&self.start, &self.stop, queue),
            Some(gate) => {
                self.ready.record()?;
                gate.close(&self.context)?;
                let queued = Self::queue(&self.start, &self.stop, queue);
                let ready = self.ready.wait();
                self.late |= !gate.open();
                queued.and(ready)
            }
        };
        queued?;
        self.stop.since(&self.start)
    }

    fn queue(
        start: &Event,
        stop: &Event,
        queue: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        start.record()?;
        queue()?;
        stop.record()
    }

    /// The least difference of two readings of the device's clock, in nanoseconds.
    ///
    /// # Errors
    /// The driver's.
    pub fn resolution_ns(&self) -> Result<f64, Fault> {
        let mut spans_ns = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            Self::queue(&self.start, &self.stop, || Ok(()))?;
            spans_ns.push(self.stop.since(&self.start)?);
        }
        Ok(least_difference(spans_ns).unwrap_or(DOCUMENTED_RESOLUTION_NS))
    }
}

/// The least difference of two values that is not rounding, if there is one.
fn least_difference(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let differences = values.windows(2).map(|pair| pair[1] - pair[0]);
    differences
        .filter(|&difference| difference >= 0.5)
        .reduce(f64::min)
}

/// An event that takes the time.
pub(super) struct Event {
    event: sys::CUevent,
    context: Rc<Context>,
}

impl Event {
    pub(super) fn new(context: &Rc<Context>) -> Result<Self, Fault> {
        let event = result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT)
            .during("making an event")?;
        let context = Rc::clone(context);
        Ok(Event { event, context })
    }

    /// Happens when the stream has done all that was queued before.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn record(&self) -> Result<(), Fault> {
        // SAFETY: event and stream live as long as `self`.
        unsafe { result::event::record(self.event, self.context.stream()) }
            .during("recording an event")
    }

    /// Waits until it has happened.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn wait(&self) -> Result<(), Fault> {
        // SAFETY: the event lives as long as `self`.
        unsafe { result::event::synchronize(self.event) }.during("running the program")
    }

    /// Whether it has happened.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn has_happened(&self) -> Result<bool, Fault> {
        // SAFETY: the event lives as long as `self`.
        let answer = unsafe { sys::cuEventQuery(self.event) };
        match answer {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answer => answer.result().during("running the program").map(|()| true),
        }
    }

    /// Waits for this event; the nanoseconds from `earlier` to it.
    #[expect(unsafe_code, reason = "a call of the driver")]
    pub(super) fn since(&self, earlier: &Event) -> Result<f64, Fault> {
        self.wait()?;
        // SAFETY: both events live, and both have happened.
        let elapsed_ms = unsafe { result::event::elapsed(earlier.event, self.event) }
            .during("running the program")?;
        Ok(f64::from(elapsed_ms) * 1e6)
    }
}

impl Drop for Event {
    #[expect(unsafe_code, reason = "a call of the driver")]
    fn drop(&mut self) {
        // SAFETY: destroyed once.
        let _ = unsafe { result::event::destroy(self.event) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resolution_is_the_step_of_the_clock() {
        let spans_ns = vec![1984.0, 1952.00001, 2016.0, 1984.00001, 2112.0];
        let step = least_difference(spans_ns).unwrap();
        assert!((step - 32.0).abs() < 1e-3, "{step}");
        assert_eq!(least_difference(vec![1024.0; 3]), None);
    }
}
