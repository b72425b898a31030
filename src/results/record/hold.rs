//! Who writes a run, or a shard of it: one process, on whatever machine.
//!
//! A lock of the file system keeps processes of one machine apart, and where the file system has
//! locks over the network those of all machines. Where it has not, this file does: it is made by a
//! link, which one process alone can make, and names its process. Whether that process lives is
//! looked up on its own machine, and elsewhere judged by whether it goes on writing its state,
//! never by clocks, which disagree.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::state::State;
use sweeper_model::files;
use sweeper_model::proc_stat::stat_of;

/// How often a process says that it lives.
pub const BEAT: Duration = Duration::from_secs(10);

/// How long nothing must be heard of a process of another machine until it counts as dead.
const PATIENCE: Duration = Duration::from_secs(45);

/// How often a watched state is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// How often it looks whether something that is held for moments is free.
const SHORT_LOOK: Duration = Duration::from_millis(50);

/// A variable with another patience, in seconds, for file systems that show changes late.
pub const PATIENCE_VARIABLE: &str = "SWEEPER_PATIENCE_S";

/// A process, so that people and other processes can find it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Differs between any two processes.
    pub token: String,
    /// The machine's name; in a job of Slurm the node's.
    pub host: String,
    /// The start of the machine, and the space of its process numbers.
    machine: String,
    /// Number of the process.
    pub pid: u32,
    /// When the process started, as the machine counts: numbers of processes come again.
    started: u64,
    /// The scheduler's job.
    pub job: Option<String>,
    /// How often the scheduler had started the job before.
    restarts: u32,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "host {}, process {}", self.host, self.pid)?;
        match &self.job {
            Some(job) => write!(out, ", job {job}"),
            None => Ok(()),
        }
    }
}

impl Holder {
    /// This process.
    pub fn here() -> Self {
        let pid = std::process::id();
        let machine = machine();
        let started = started(pid).unwrap_or(0);
        let nanoseconds = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos());
        Holder {
            token: format!("{machine}-{pid}-{started}-{nanoseconds}"),
            host: host(),
            machine,
            pid,
            started,
            job: job(),
            restarts: restarts(),
        }
    }

    /// Whether the process lives, where that can be known at once.
    pub fn lives(&self, here: &Holder) -> Option<bool> {
        if self.machine == here.machine {
            return Some(started(self.pid) == Some(self.started));
        }
        // The scheduler starts a job again when it has ended.
        let is_again = self.job.is_some() && self.job == here.job && self.restarts < here.restarts;
        is_again.then_some(false)
    }
}

/// The scheduler's job that this process is in, as its commands name it.
pub fn job() -> Option<String> {
    match (
        variable("SLURM_ARRAY_JOB_ID"),
        variable("SLURM_ARRAY_TASK_ID"),
    ) {
        (Some(array), Some(task)) => Some(format!("{array}_{task}")),
        _ => variable("SLURM_JOB_ID").or_else(|| variable("PBS_JOBID")),
    }
}

/// How often the scheduler had started this process's job before.
pub fn restarts() -> u32 {
    let count = variable("SLURM_RESTART_COUNT").and_then(|text| text.parse().ok());
    count.unwrap_or(0)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The machine's name.
fn host() -> String {
    let node = std::env::var("SLURMD_NODENAME").ok();
    let own = || fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    node.unwrap_or_else(|| own().trim().to_owned())
}

fn machine() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let digits = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect();
    let (boot, space): (String, String) = (digits(&boot), digits(&space.to_string_lossy()));
    format!("{boot}-{space}")
}

/// When a process of this machine started, in ticks since the machine did.
fn started(pid: u32) -> Option<u64> {
    let stat = stat_of(pid)?;
    // The time is field 22 of all.
    let mut fields = stat.split_whitespace();
    let is_dead = fields
        .next()
        .is_some_and(|state| ["Z", "X"].contains(&state));
    fields.nth(18)?.parse().ok().filter(|_| !is_dead)
}

/// How long this process waits for a sign of life.
pub fn patience() -> Duration {
    let told = std::env::var(PATIENCE_VARIABLE).ok();
    let seconds = told.and_then(|text| text.parse().ok());
    seconds.map_or(PATIENCE, Duration::from_secs)
}

/// Why a hold can't be had.
#[derive(Debug)]
pub enum Refused {
    /// A living process has it.
    Held(Box<Holder>),
    /// The files.
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Refused::Io(error)
    }
}

/// The hold of this process, for as long as it is there.
#[derive(Debug)]
pub struct Hold {
    path: PathBuf,
    holder: Holder,
}

impl Hold {
    /// Takes hold. Where a process of another machine has it, of which only its `state` tells,
    /// `waits` is called, and the answer takes a while.
    ///
    /// # Errors
    /// The process that has it, or those of the file system.
    pub fn take(
        path: &Path,
        state: &Path,
        waits: &dyn Fn(&Holder, Duration),
    ) -> Result<Self, Refused> {
        let holder = Holder::here();
        let text = serde_json::to_vec(&holder).map_err(io::Error::from)?;
        // Each turn ends a dead process's hold; others may be faster to take it.
        for _ in 0..100 {
            match files::make_alone(path, &text) {
                Ok(()) => {
                    let path = path.to_owned();
                    return Ok(Hold { path, holder });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
            let Some(other) = read(path) else {
                // Given up in this moment, or by a program that wrote it in another way.
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let held = [((), path.to_owned(), state.to_owned())];
            match find_living(&held, waits) {
                Some(((), other)) => return Err(Refused::Held(Box::new(other))),
                None => end(path, &other)?,
            }
        }
        Err(stuck(path))
    }

    /// Takes hold of something that processes have for moments, without signs of life, and waits
    /// for it for as long as `longest`. Of a process of another machine the hold is ended once it
    /// was watched for as long as signs of life are waited for.
    ///
    /// # Errors
    /// The process that has it still, or those of the file system.
    pub fn take_within(path: &Path, longest: Duration) -> Result<Self, Refused> {
        let holder = Holder::here();
        let text = serde_json::to_vec(&holder).map_err(io::Error::from)?;
        let began = Instant::now();
        let mut watched: Option<(Holder, Instant)> = None;
        loop {
            let held = read(path);
            match &held {
                None => match files::make_alone(path, &text) {
                    Ok(()) => {
                        let path = path.to_owned();
                        return Ok(Hold { path, holder });
                    }
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error.into()),
                },
                Some(other) => {
                    let since = match &watched {
                        Some((seen, since)) if seen.token == other.token => *since,
                        _ => watched.insert((other.clone(), Instant::now())).1,
                    };
                    let lives = other.lives(&holder);
                    if !lives.unwrap_or_else(|| since.elapsed() < patience()) {
                        end(path, other)?;
                        continue;
                    }
                }
            }
            if began.elapsed() >= longest {
                return Err(match held {
                    Some(other) => Refused::Held(Box::new(other)),
                    None => stuck(path),
                });
            }
            thread::sleep(SHORT_LOOK.min(longest));
        }
    }

    /// The process that has it.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// True while no other process took it, as happens to one that was suspended for long.
    pub fn is_own(&self) -> bool {
        // A file system that doesn't answer is not another process.
        read(&self.path).is_none_or(|held| held.token == self.holder.token)
    }
}

fn stuck(path: &Path) -> Refused {
    let stuck = format!("{} can't be read and stays: delete it", path.display());
    io::Error::other(stuck).into()
}

impl Drop for Hold {
    fn drop(&mut self) {
        if read(&self.path).is_some_and(|held| held.token == self.holder.token) {
            // One that stays is recognized as that of a process that is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The process that a hold names.
pub fn read(path: &Path) -> Option<Holder> {
    serde_json::from_slice(&files::read(path).ok()?).ok()
}

/// The process that has a hold and lives, or may live: no signs of life are waited for.
pub fn held_by(path: &Path) -> Option<Holder> {
    read(path).filter(|holder| holder.lives(&Holder::here()) != Some(false))
}

/// The first of several holds that a living process has. Where only states tell, all are watched at
/// once.
pub fn find_living<'p, P: Copy>(
    holds: &'p [(P, PathBuf, PathBuf)],
    waits: &dyn Fn(&Holder, Duration),
) -> Option<(P, Holder)> {
    let here = Holder::here();
    let mut unknown: Vec<(P, Holder, &'p Path)> = Vec::new();
    for (part, hold, state) in holds {
        let Some(holder) = read(hold) else { continue };
        match holder.lives(&here) {
            Some(true) => return Some((*part, holder)),
            Some(false) => {}
            None => unknown.push((*part, holder, state)),
        }
    }
    let (_, holder, _) = unknown.first()?;
    waits(holder, patience());
    let sign = |state: &Path| State::read(state).map(|state| (state.holder.token, state.beat));
    let first: Vec<_> = unknown.iter().map(|(_, _, state)| sign(state)).collect();
    let began = Instant::now();
    while began.elapsed() < patience() {
        thread::sleep(LOOK.min(patience()));
        let moved = unknown.iter().zip(&first);
        let mut moved = moved.filter(|((_, _, state), first)| sign(state) != **first);
        if let Some(((part, holder, _), _)) = moved.next() {
            return Some((*part, holder.clone()));
        }
    }
    None
}

/// Ends the hold of a process that is gone, and of no other.
fn end(path: &Path, dead: &Holder) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!("{name}.{}", std::process::id()));
    match fs::rename(path, &aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    // Another process may have been faster, and its hold was moved.
    if read(&aside).is_some_and(|held| held.token != dead.token) {
        let _ = fs::hard_link(&aside, path);
    }
    fs::remove_file(&aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody_waits(_: &Holder, _: Duration) {
        panic!("this is known at once");
    }

    fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let paths = [".hold", ".state"].map(|name| folder.path().join(name));
        let [hold, state] = paths;
        (folder, hold, state)
    }

    fn write(path: &Path, holder: &Holder) {
        fs::write(path, serde_json::to_vec(holder).unwrap()).unwrap();
    }

    #[test]
    fn a_living_process_keeps_others_out_and_says_who_it_is() {
        let (_folder, path, state) = place();
        let held = Hold::take(&path, &state, &nobody_waits).unwrap();
        match Hold::take(&path, &state, &nobody_waits) {
            Err(Refused::Held(holder)) => {
                assert_eq!(*holder, held.holder);
                let process = format!("process {}", std::process::id());
                assert!(holder.to_string().contains(&process), "{holder}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(held_by(&path).as_ref(), Some(held.holder()));
        drop(held);
        assert!(!path.exists());
        Hold::take(&path, &state, &nobody_waits).unwrap();
    }

    #[test]
    fn the_dead_are_recognized_on_their_machine_and_by_their_job() {
        let (_folder, path, state) = place();
        let here = Holder::here();
        let gone = |change: fn(&mut Holder)| {
            let mut holder = Holder {
                token: "other".to_owned(),
                ..here.clone()
            };
            change(&mut holder);
            holder
        };
        // The number came again, to a younger process.
        let reused = gone(|holder| holder.started += 1);
        let unknown = gone(|holder| holder.pid = 4_000_000);
        for holder in [reused, unknown] {
            write(&path, &holder);
            assert_eq!(held_by(&path), None);
            drop(Hold::take(&path, &state, &nobody_waits).unwrap());
        }
        let mut job = gone(|holder| holder.machine = "elsewhere".to_owned());
        assert_eq!(job.lives(&here), None);
        job.job = Some("7_3".to_owned());
        let again = Holder {
            restarts: 1,
            ..Holder::here()
        };
        let again = Holder {
            job: job.job.clone(),
            ..again
        };
        assert_eq!(job.lives(&again), Some(false), "it was started again");
        assert_eq!(again.lives(&job), None);
    }

    #[test]
    fn a_process_elsewhere_lives_while_it_goes_on_writing() {
        let (_folder, path, state) = place();
        let elsewhere = Holder {
            machine: "elsewhere".to_owned(),
            ..Holder::here()
        };
        write(&path, &elsewhere);
        let beat = |beat| {
            let text = serde_json::to_vec(&State {
                beat,
                ..State::new(elsewhere.clone(), 4)
            });
            files::replace(&state, &text.unwrap()).unwrap();
        };
        beat(1);
        let asked = std::cell::Cell::new(0);
        let waits = |_: &Holder, _: Duration| asked.set(asked.get() + 1);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(700));
                beat(2);
            });
            let held = [(7, path.clone(), state.clone())];
            let (part, holder) = find_living(&held, &waits).unwrap();
            assert_eq!((part, &holder), (7, &elsewhere));
        });
        assert_eq!(asked.get(), 1);
        assert_eq!(held_by(&path), Some(elsewhere), "nobody waits to look");
    }

    #[test]
    fn what_is_held_for_moments_is_waited_for() {
        let (_folder, path, _) = place();
        let within = |milliseconds| Hold::take_within(&path, Duration::from_millis(milliseconds));
        let held = within(0).unwrap();
        assert!(matches!(within(120), Err(Refused::Held(_))));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                drop(held);
            });
            drop(within(20_000).unwrap());
        });
        let elsewhere = Holder {
            token: "other".to_owned(),
            machine: "elsewhere".to_owned(),
            ..Holder::here()
        };
        write(&path, &elsewhere);
        assert!(matches!(within(120), Err(Refused::Held(_))), "it may live");
        let dead = Holder {
            pid: 4_000_000,
            token: "dead".to_owned(),
            ..Holder::here()
        };
        write(&path, &dead);
        drop(within(0).unwrap());
        fs::write(&path, "torn").unwrap();
        assert!(matches!(within(120), Err(Refused::Io(_))));
    }

    #[test]
    fn the_hold_of_a_faster_process_is_not_ended() {
        let (_folder, path, _) = place();
        let here = Holder::here();
        let other = Holder {
            token: "faster".to_owned(),
            ..here.clone()
        };
        write(&path, &other);
        end(&path, &here).unwrap();
        assert_eq!(read(&path), Some(other.clone()));
        end(&path, &other).unwrap();
        assert_eq!(read(&path), None);
        end(&path, &other).unwrap();
    }
}
