//! Concurrent workers and compilers: threads that wait for them, and the messages of these threads.
//!
//! One thread a worker, because each waits for its process; on a GPU, threads that compile ahead of
//! the measuring. All of them tell the main thread, which alone writes rows and shows what happens.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use sweeper_program::KernelSource;

use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::kernels::{Built, Kernels};
use sweeper_engine::execute::protocol::Stage;
use sweeper_engine::execute::supervisor::{Observer, Supervisor, Task, Usage, WorkerError};
use sweeper_model::row::outcome::Outcome;

/// A task, and its block's number among the remaining blocks.
pub(super) type Numbered = (usize, Task);

/// A message to the main thread.
pub(super) enum Message {
    /// A worker is at a point.
    Working { number: u32, stage: Stage },
    /// The outcome of a point.
    Finished {
        worker: usize,
        /// Number of the point's block among the remaining blocks.
        block: usize,
        number: u32,
        outcome: Outcome,
    },
    /// A worker is done with a block, or can't go on.
    Done {
        worker: usize,
        /// The block's number among the remaining blocks.
        block: usize,
        usage: Usage,
        result: Result<(), WorkerError>,
    },
    /// A kernel is there, or is not.
    Compiled {
        number: u32,
        result: Result<Built, CompileError>,
    },
}

/// Hands tasks to one worker until there are no more. A task that comes while another is measured
/// is made ready meanwhile.
pub(super) fn serve(
    worker: usize,
    mut supervisor: Supervisor,
    tasks: &Receiver<Numbered>,
    messages: &Sender<Message>,
    stop: &AtomicBool,
) {
    let mut next = VecDeque::new();
    while let Some((block, task)) = next.pop_front().or_else(|| tasks.recv().ok()) {
        let mut listener = Listener {
            worker,
            block,
            messages,
            stop,
            tasks,
            next: &mut next,
        };
        let result = supervisor.measure(&task, &mut listener);
        let done = Message::Done {
            worker,
            block,
            usage: supervisor.usage(),
            result,
        };
        // The receiver is gone if the run has failed elsewhere.
        if messages.send(done).is_err() {
            return;
        }
    }
}

/// Forwards the outcomes of a block, each point as soon as it is known, so that a run that is
/// killed loses no known outcome.
struct Listener<'a> {
    worker: usize,
    block: usize,
    messages: &'a Sender<Message>,
    stop: &'a AtomicBool,
    tasks: &'a Receiver<Numbered>,
    next: &'a mut VecDeque<Numbered>,
}

impl Observer for Listener<'_> {
    fn working(&mut self, number: u32, stage: Stage) {
        if stage != Stage::Sample {
            let _ = self.messages.send(Message::Working { number, stage });
        }
    }

    fn finished(&mut self, number: u32, outcome: Outcome) {
        // The receiver is gone if the run has failed elsewhere.
        let _ = self.messages.send(Message::Finished {
            worker: self.worker,
            block: self.block,
            number,
            outcome,
        });
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn next(&mut self, others: usize) -> Option<&Task> {
        if self.next.len() <= others {
            self.next.extend(self.tasks.try_recv());
        }
        self.next.get(others).map(|(_, task)| task)
    }
}

/// Kernels that are compiled while others are measured.
pub(super) struct Ahead<'a> {
    pub(super) kernels: Kernels<'a>,
    /// Numbers and sources, in the order in which they are needed.
    pub(super) wanted: Vec<(u32, &'a KernelSource)>,
    next: AtomicUsize,
    /// The run is over.
    ended: AtomicBool,
}

impl<'a> Ahead<'a> {
    pub(super) fn new(kernels: Kernels<'a>, wanted: Vec<(u32, &'a KernelSource)>) -> Self {
        Ahead {
            kernels,
            wanted,
            next: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// No more kernels are begun.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Compiles one kernel after the other until none is left; several threads may call it.
    pub(super) fn compile(&self, messages: &Sender<Message>, stop: &AtomicBool) {
        loop {
            let position = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = self.ended.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
            let Some(&(number, source)) = self.wanted.get(position).filter(|_| !is_over) else {
                return;
            };
            let result = self.kernels.get(source);
            if messages.send(Message::Compiled { number, result }).is_err() {
                return;
            }
        }
    }
}
