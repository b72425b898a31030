//! The process that measures: reads requests from standard input, answers on standard output.

use std::collections::HashMap;
use std::io::{self, BufReader, Read, Write};

use super::block::{self, Listener};
use super::outcome::Outcome;
use super::protocol::{Block, DeviceRequest, Event, Request, Stage, receive, send};
use crate::device::cpu::Cpu;
use crate::device::cuda::Cuda;
use crate::device::null::Null;
use crate::device::nvtx::Ranges;
use crate::device::watched::Watched;
use crate::device::{Artifact, Device, DeviceError, DeviceKind, ceilings};

/// Serves requests until the stream ends.
///
/// # Errors
/// Those of the streams; the main process is gone then, or this one must go.
pub fn serve(requests: impl Read, mut events: impl Write) -> io::Result<()> {
    let mut requests = BufReader::new(requests);
    let Some(Request::Open(request)) = receive(&mut requests)? else {
        return Err(io::Error::other("the first request must open a device"));
    };
    let mut device = match open(&request) {
        Ok(device) => device,
        Err(error) => return send(&mut events, &Event::NotReady(error.to_string())),
    };
    let threads = request.threads;
    send(&mut events, &Event::Ready(device.identity().clone()))?;
    let mut ranges = Ranges::find();
    let mut artifacts: HashMap<String, Artifact> = HashMap::new();
    while let Some(request) = receive(&mut requests)? {
        let mut block = match request {
            Request::Measure(block) => block,
            Request::Calibrate(kernels) => {
                let measured = ceilings::measure(device.as_mut(), threads, &kernels);
                let lost = matches!(measured, Err(DeviceError::Lost(_)));
                let measured = measured.map_err(|error| error.to_string());
                send(&mut events, &Event::Calibrated(measured))?;
                if lost {
                    return Err(io::Error::other("the device is lost"));
                }
                continue;
            }
            Request::Open(_) => return Err(io::Error::other("the device is open already")),
        };
        for artifact in std::mem::take(&mut block.artifacts) {
            artifacts.insert(artifact.key.clone(), artifact);
        }
        let mut reporter = Reporter {
            events: &mut events,
            broken: None,
            block: &block,
            ranges: ranges.as_mut(),
        };
        let mut watched = Watched::new(device.as_mut());
        let measured = block::measure(&block, &artifacts, &mut watched, &mut reporter);
        let running = watched.running();
        let broken = reporter.broken.take();
        if let Some(ranges) = reporter.ranges {
            ranges.end();
        }
        if let Some(error) = broken {
            return Err(error);
        }
        measured.map_err(io::Error::other)?;
        send(&mut events, &Event::BlockDone { running })?;
    }
    Ok(())
}

/// Opens a device.
///
/// # Errors
/// What is missing here.
pub fn open(request: &DeviceRequest) -> Result<Box<dyn Device>, DeviceError> {
    match request.kind {
        DeviceKind::Cpu => {
            let device = Cpu::new(request.threads as usize)?;
            Ok(Box::new(if request.cold { device.cold() } else { device }))
        }
        DeviceKind::Null => Ok(Box::new(Null::unit(request.ordinal))),
        DeviceKind::Cuda => Ok(Box::new(Cuda::open(request.ordinal, request.cold)?)),
    }
}

/// Turns what the measurer says into frames. The first error is kept, and ends the worker.
struct Reporter<'a, W> {
    events: &'a mut W,
    broken: Option<io::Error>,
    block: &'a Block,
    /// Names for a profiler, where there is one.
    ranges: Option<&'a mut Ranges>,
}

impl<W: Write> Reporter<'_, W> {
    fn say(&mut self, event: &Event) {
        if self.broken.is_none() {
            self.broken = send(self.events, event).err();
        }
    }

    /// Names what follows in a profiler's time line.
    fn name(&mut self, number: u32, stage: Stage) {
        let Some(ranges) = &mut self.ranges else {
            return;
        };
        let mut points = self.block.points.iter();
        if let Some(point) = points.find(|point| point.number == number) {
            let (workload, backend) = (&self.block.workload, &point.backend);
            let (phase, stage) = (point.phase, stage.name());
            ranges.begin(&format!("{workload} {backend} {phase} {number}: {stage}"));
        }
    }
}

impl<W: Write> Listener for Reporter<'_, W> {
    fn working(&mut self, number: u32, stage: Stage) {
        self.name(number, stage);
        self.say(&Event::Working { number, stage });
    }

    fn finished(&mut self, number: u32, outcome: Outcome) {
        self.say(&Event::Finished { number, outcome });
    }
}
