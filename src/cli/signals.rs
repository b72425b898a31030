//! Signals that end a run: it stops where it is, writes its tables, and ends with 75.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU};
use signal_hook::iterator::Signals;

use super::exit::Exit;
use super::screen::Screen;

/// Set by the first signal.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// The first signal; 0 for none.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// True if a signal other than the one that announces the end of a job asked for the end: by
/// people, or by a scheduler that means it.
pub(super) fn was_told_to_end() -> bool {
    ![0, SIGUSR1].contains(&FIRST.load(Ordering::Relaxed))
}

/// A key that interrupts ends the program at once if it is pressed again after this time:
/// schedulers and `timeout` send several signals close together, and mean one.
const PATIENCE: Duration = Duration::from_secs(3);

/// Listens for signals from now on. Yields the flag that the first of them sets.
pub(super) fn listen(screen: &Screen) -> &'static AtomicBool {
    let wanted = [SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU];
    let ignored = ignored();
    let wanted = wanted.into_iter().filter(|signal| !ignored(*signal));
    let listening = Signals::new(wanted).and_then(|signals| {
        let threads = thread::Builder::new().name("signals".to_owned());
        threads.spawn(move || hear(signals))
    });
    if let Err(error) = listening {
        screen.warning(&format!("signals will end the run at once: {error}"));
    }
    &STOPPED
}

fn hear(mut signals: Signals) {
    let mut first: Option<Instant> = None;
    for signal in signals.forever() {
        let since = first.get_or_insert_with(Instant::now);
        let _ = FIRST.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
        if STOPPED.swap(true, Ordering::Relaxed) && signal == SIGINT && since.elapsed() > PATIENCE {
            // Who presses the key again wants the terminal, not the tables.
            Exit::Stopped.at_once();
        }
    }
}

/// Which signals this process was started to ignore, as `nohup` does with hang-ups.
fn ignored() -> impl Fn(i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    let mask = mask.unwrap_or(0);
    move |signal| mask >> (signal - 1) & 1 == 1
}
