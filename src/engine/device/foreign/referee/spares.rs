//! Processes that are started while other candidates are measured: importing a library of arrays
//! and making a context takes seconds.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::candidate::{Seat, Seated};
use crate::device::DeviceError;

/// So many wait: a candidate's, and its baseline's.
const MOST: usize = 2;

/// Nothing is known of those that come until so many were started.
const FIRST: u32 = 2;

/// Processes of one kind of seat.
#[derive(Default)]
pub(super) struct Spares {
    started: u32,
    crew: Option<Crew>,
}

/// The thread that starts processes: the system ends them with it.
struct Crew {
    seat: Seat,
    orders: Sender<()>,
    ready: Receiver<Result<Seated, DeviceError>>,
    /// Orders that were not answered yet.
    ordered: usize,
    waiting: VecDeque<Seated>,
}

impl Spares {
    /// A process at a seat: one that was started ahead, or a new one.
    ///
    /// # Errors
    /// Those of [`Seat::start`].
    pub(super) fn take(&mut self, seat: &Seat) -> Result<Seated, DeviceError> {
        self.started += 1;
        if self.crew.as_ref().is_some_and(|crew| crew.seat != *seat) {
            self.crew = None;
        }
        let ahead = self.crew.as_mut().and_then(Crew::next);
        let found = ahead.map_or_else(|| seat.start(0), Ok);
        if self.started >= FIRST && found.is_ok() {
            let crew = self.crew.get_or_insert_with(|| Crew::new(seat));
            crew.order();
        }
        found
    }
}

impl Crew {
    fn new(seat: &Seat) -> Self {
        let (orders, wanted) = channel();
        let (done, ready) = channel();
        let own = seat.clone();
        thread::spawn(move || {
            for () in wanted {
                // Nobody waits for it any more where this fails.
                if done.send(own.start(0)).is_err() {
                    break;
                }
            }
        });
        Crew {
            seat: seat.clone(),
            orders,
            ready,
            ordered: 0,
            waiting: VecDeque::new(),
        }
    }

    /// The next process that was ordered; none where none was, or it can't be had.
    fn next(&mut self) -> Option<Seated> {
        while let Ok(started) = self.ready.try_recv() {
            self.ordered -= 1;
            self.waiting.extend(started.ok());
        }
        if self.waiting.is_empty() && self.ordered > 0 {
            let started = self.ready.recv();
            self.ordered -= 1;
            self.waiting.extend(started.ok().and_then(Result::ok));
        }
        self.waiting.pop_front()
    }

    /// Orders as many as are missing.
    fn order(&mut self) {
        while self.ordered + self.waiting.len() < MOST && self.orders.send(()).is_ok() {
            self.ordered += 1;
        }
    }
}
