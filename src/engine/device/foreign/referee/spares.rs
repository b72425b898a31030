//! Processes that are started while other candidates are measured: importing a library of arrays
//! and making a context takes seconds.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::candidate::{Seat, Seated};
use crate::device::DeviceError;
use crate::device::cpu::identity as processors;

/// So many processors are left for each process that starts, and so many start at a time at most.
const PROCESSORS_EACH: usize = 4;
const MOST_STARTING: usize = 4;

/// So many wait at least: a candidate's, and its baseline's.
const LEAST_WAITING: usize = 2;

/// Kinds of seats that processes wait for: a candidate's, and its baseline's.
const MOST_KINDS: usize = 2;

/// Nothing is known of those that come until so many were started.
const FIRST: u32 = 2;

/// Processes that were started ahead.
#[derive(Default)]
pub(super) struct Spares {
    taken: u32,
    crew: Option<Crew>,
    /// Seats of the last processes that were taken, without repetition.
    recent: VecDeque<Seat>,
    waiting: Vec<(Seat, Seated)>,
    /// Seats of orders that were not answered yet.
    ordered: Vec<Seat>,
}

/// The threads that start processes. The system ends a process with the thread that started it, so
/// they stay as long as anything may be measured.
struct Crew {
    orders: Sender<Seat>,
    ready: Receiver<(Seat, Result<Seated, DeviceError>)>,
    /// So many start at a time.
    threads: usize,
}

impl Spares {
    /// A process at a seat: one that was started ahead, or a new one.
    ///
    /// # Errors
    /// Those of [`Seat::start`].
    pub(super) fn take(&mut self, seat: &Seat) -> Result<Seated, DeviceError> {
        self.taken += 1;
        self.recent.retain(|held| held != seat);
        self.recent.push_front(seat.clone());
        self.recent.truncate(MOST_KINDS);
        let found = match self.next(seat) {
            Some(ahead) => Ok(ahead),
            None => seat.start(0),
        };
        if self.taken >= FIRST && found.is_ok() {
            self.order(seat);
        }
        found
    }

    /// The next process that was ordered for a seat; none where none was, or it can't be had.
    fn next(&mut self, seat: &Seat) -> Option<Seated> {
        loop {
            self.collect(false);
            let at = self.waiting.iter().position(|(held, _)| held == seat);
            if let Some(at) = at {
                return Some(self.waiting.swap_remove(at).1);
            }
            if !self.ordered.contains(seat) {
                return None;
            }
            self.collect(true);
        }
    }

    /// Takes what has started by now, and waits for one first if asked to.
    fn collect(&mut self, waits: bool) {
        let Some(crew) = &self.crew else {
            self.ordered.clear();
            return;
        };
        let first = match waits {
            true => crew.ready.recv().ok(),
            false => crew.ready.try_recv().ok(),
        };
        for (seat, started) in first.into_iter().chain(crew.ready.try_iter()) {
            if let Some(at) = self.ordered.iter().position(|held| *held == seat) {
                self.ordered.swap_remove(at);
            }
            self.waiting
                .extend(started.ok().map(|started| (seat, started)));
        }
        self.waiting.retain(|(seat, _)| self.recent.contains(seat));
    }

    /// Orders as many for a seat as are missing.
    fn order(&mut self, seat: &Seat) {
        let crew = self.crew.get_or_insert_with(Crew::new);
        let most = crew.threads.max(LEAST_WAITING);
        let waiting = self.waiting.iter().map(|(held, _)| held);
        let count = waiting.chain(&self.ordered).filter(|held| *held == seat);
        for _ in count.count()..most {
            if crew.orders.send(seat.clone()).is_ok() {
                self.ordered.push(seat.clone());
            }
        }
    }
}

impl Crew {
    fn new() -> Self {
        let (orders, wanted) = channel::<Seat>();
        let (done, ready) = channel();
        let wanted = Arc::new(Mutex::new(wanted));
        let own = processors::allowed_cpus().len() / PROCESSORS_EACH;
        let threads = own.clamp(1, MOST_STARTING);
        for _ in 0..threads {
            let (wanted, done) = (Arc::clone(&wanted), done.clone());
            thread::spawn(move || {
                let next = || {
                    let wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
                    wanted.recv()
                };
                while let Ok(seat) = next() {
                    let started = seat.start(0);
                    // Nobody waits for it any more where this fails.
                    if done.send((seat, started)).is_err() {
                        break;
                    }
                }
            });
        }
        Crew {
            orders,
            ready,
            threads,
        }
    }
}
