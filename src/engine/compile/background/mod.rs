//! Kernels that are compiled while a loop runs: by a process of its own, which a thread waits for.
//!
//! The process that measures never compiles: NVRTC would take a processor and a lock of the driver
//! from the loop. The thread plans, too: making a program of a large model takes a while.

mod prices;
mod server;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use sweeper_program::workload::{Planner, Refusal};
use sweeper_program::{KernelSource, Program};

use super::CachePlace;
use crate::device::Artifact;
use crate::device::process::die_with_parent;
use sweeper_model::frames::{receive, send};
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::scratch;

pub use server::serve;

/// What the compiling process is told first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Opening {
    /// The cache; none to compile everything.
    pub cache: Option<CachePlace>,
    /// Compile all kernels, whether the cache has them or not.
    pub compiles_all: bool,
    /// The device that kernels are for.
    pub device: DeviceIdentity,
    /// How long one kernel may take.
    pub limit: Duration,
    /// Kernels like those to come: what compiling them took is the first prediction.
    pub alike: Vec<KernelSource>,
}

/// A question to the compiling process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Question {
    /// How many of these kernels would have to be compiled?
    Look(Vec<KernelSource>),
    /// These kernels, please.
    Compile(Vec<KernelSource>),
}

/// An answer of the compiling process.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Reply {
    /// It is open.
    Ready {
        /// The compiler for the device's kernels.
        compiler: String,
    },
    /// Kernels that are not there, and what compiling them takes by what others took.
    Looked { missing: usize, price_ns: f64 },
    /// The kernels, in the order of the sources.
    Compiled(Result<Vec<Artifact>, CompileFailure>),
}

/// Why there is no program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileFailure {
    /// Why, in a sentence.
    pub reason: String,
    /// Whether it would fail again.
    pub is_final: bool,
}

/// A program before its kernels are compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Launches of an iteration.
    pub launches: u64,
    /// Bytes that an iteration reads and writes.
    pub bytes: u64,
    /// Kernels that are not in the cache.
    pub missing: usize,
    /// What compiling takes, by what it took before, in nanoseconds.
    pub price_ns: f64,
    /// How long planning took, in nanoseconds.
    pub plan_ns: f64,
}

/// A program, ready to be loaded.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The program.
    pub program: Program,
    /// Its kernels, in the order of [`Program::sources`].
    pub artifacts: Vec<Artifact>,
    /// From the request to the last kernel, in nanoseconds.
    pub compile_ns: f64,
}

/// How much of a loop's iteration a program compiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// All of it.
    Whole,
    /// Parts that repeat in it, such as the equal layers of a model; all else runs as it does
    /// operation by operation.
    Parts,
}

/// Work for the thread.
enum Order {
    Plan(Scope, Planner),
    /// The program of this scope that was planned last.
    Compile(Scope),
}

/// News of the thread.
#[derive(Debug)]
pub enum News {
    /// A program was planned.
    Planned(Scope, Result<Planned, CompileFailure>),
    /// A program that was planned is ready.
    Compiled(Scope, Result<Compiled, CompileFailure>),
}

/// A thread that plans, and a process that compiles. Dropping it ends both; a kernel that is being
/// compiled is lost, those before it are kept, and the cache is as if it had never been begun.
pub struct Background {
    /// None once it is to end.
    orders: Option<Sender<Order>>,
    news: Receiver<News>,
    /// Orders without news.
    open: Cell<u32>,
    thread: Option<JoinHandle<()>>,
    child: Child,
    /// The compiler for the device's kernels, as it calls itself.
    pub compiler: String,
}

impl Background {
    /// Starts the process, and waits until it has found its compiler.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start(opening: &Opening) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("compiler")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        die_with_parent(&mut command);
        let mut child = command.spawn()?;
        let gone = || io::Error::other("the compiling process has no pipes");
        let mut pipes = Pipes {
            questions: child.stdin.take().ok_or_else(gone)?,
            replies: child.stdout.take().ok_or_else(gone)?,
        };
        send(&mut pipes.questions, opening)?;
        let Reply::Ready { compiler } = pipes.reply()? else {
            return Err(io::Error::other("the compiling process talks nonsense"));
        };
        let (orders, given) = channel();
        let (told, news) = channel();
        let thread = thread::Builder::new().name("background compiler".to_owned());
        let thread = thread.spawn(move || pipes.work(&given, &told))?;
        Ok(Background {
            orders: Some(orders),
            news,
            open: Cell::new(0),
            thread: Some(thread),
            child,
            compiler,
        })
    }

    /// Has a program planned.
    pub fn plan(&self, scope: Scope, planner: Planner) {
        self.order(Order::Plan(scope, planner));
    }

    /// Has the kernels of the program compiled that was planned last, of this scope.
    pub fn compile(&self, scope: Scope) {
        self.order(Order::Compile(scope));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            self.open.set(self.open.get() + 1);
            // If the thread is gone, `news` says so.
            let _ = orders.send(order);
        }
    }

    /// News, if there are any.
    ///
    /// # Errors
    /// If the thread or the process ended.
    pub fn news(&self) -> Result<Option<News>, CompileFailure> {
        match self.news.try_recv() {
            Ok(news) => Ok(Some(self.heard(news))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ended()),
        }
    }

    /// Waits for news.
    ///
    /// # Errors
    /// If the thread or the process ended.
    pub fn wait(&self) -> Result<News, CompileFailure> {
        let news = self.news.recv().map_err(|_| ended())?;
        Ok(self.heard(news))
    }

    fn heard(&self, news: News) -> News {
        self.open.set(self.open.get().saturating_sub(1));
        news
    }

    /// Waits until all that was asked for is done, for a limited time: kernels that are compiled
    /// are kept. Returns why there is no program, where that is news.
    pub fn finish(&self, limit: Duration) -> Option<CompileFailure> {
        let start = Instant::now();
        let mut failure = None;
        while self.open.get() > 0 {
            let left = limit.saturating_sub(start.elapsed());
            let news = self.news.recv_timeout(left).ok()?;
            // Without parts there may still be a program of the whole.
            if let News::Planned(Scope::Whole, Err(why)) | News::Compiled(Scope::Whole, Err(why)) =
                self.heard(news)
            {
                failure = Some(why);
            }
        }
        failure
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.orders = None;
        // The thread may wait for an answer.
        end(&mut self.child);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// How long the process may take to end by itself: a little longer than it allows itself.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Ends the compiling process, which ends its compilers and removes their folders.
fn end(child: &mut Child) {
    let asked = Pid::from_raw(child.id() as i32).map(|pid| kill_process(pid, Signal::USR2));
    let start = Instant::now();
    while asked == Some(Ok(())) && start.elapsed() < END_WITHIN {
        match child.try_wait() {
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    scratch::remove_of(&BTreeSet::from([child.id()]));
}

/// A plan, and how long it took, in nanoseconds.
fn timed(planner: Planner) -> (Result<Program, Refusal>, f64) {
    let start = Instant::now();
    let planned = planner();
    (planned, start.elapsed().as_nanos() as f64)
}

fn ended() -> CompileFailure {
    CompileFailure {
        reason: "the process that compiles in the background ended".to_owned(),
        is_final: false,
    }
}

/// The way to the compiling process.
struct Pipes {
    questions: ChildStdin,
    replies: ChildStdout,
}

impl Pipes {
    fn reply(&mut self) -> io::Result<Reply> {
        let reply = receive(&mut self.replies)?;
        reply.ok_or_else(|| io::Error::other("the compiling process ended"))
    }

    fn ask(&mut self, question: &Question) -> Result<Reply, CompileFailure> {
        let sent = send(&mut self.questions, question);
        sent.and_then(|()| self.reply()).map_err(|_| ended())
    }

    /// Follows orders until there are no more, or the process ended.
    fn work(&mut self, orders: &Receiver<Order>, told: &Sender<News>) {
        let mut planned: [Option<Program>; 2] = [None, None];
        for order in orders {
            let news = match order {
                Order::Plan(scope, planner) => {
                    let made = match timed(planner) {
                        (Ok(program), plan_ns) => {
                            let looked = self.look(&program, plan_ns);
                            planned[scope as usize] = Some(program);
                            looked
                        }
                        (Err(refusal), _) => Err(CompileFailure {
                            reason: refusal.to_string(),
                            is_final: true,
                        }),
                    };
                    News::Planned(scope, made)
                }
                Order::Compile(scope) => {
                    let made = match planned[scope as usize].take() {
                        Some(program) => self.compile(program),
                        None => Err(ended()),
                    };
                    News::Compiled(scope, made)
                }
            };
            if told.send(news).is_err() {
                return;
            }
        }
    }

    fn look(&mut self, program: &Program, plan_ns: f64) -> Result<Planned, CompileFailure> {
        let sources = program.sources().into_iter().cloned().collect();
        let Reply::Looked { missing, price_ns } = self.ask(&Question::Look(sources))? else {
            return Err(ended());
        };
        let totals = program.totals();
        Ok(Planned {
            launches: totals.launches,
            bytes: totals.read_bytes + totals.written_bytes,
            missing,
            price_ns,
            plan_ns,
        })
    }

    fn compile(&mut self, program: Program) -> Result<Compiled, CompileFailure> {
        let start = Instant::now();
        let sources = program.sources().into_iter().cloned().collect();
        let Reply::Compiled(compiled) = self.ask(&Question::Compile(sources))? else {
            return Err(ended());
        };
        Ok(Compiled {
            program,
            artifacts: compiled?,
            compile_ns: start.elapsed().as_nanos() as f64,
        })
    }
}
