//! Runs a process system call by system call, and kills it or fails a call at a chosen one.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// A process that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A fault that befalls a process at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL instead of the call.
    Kill,
    /// The call is not made, and fails.
    Fail(Errno),
    /// As `Fail`, and so do all later calls of that number.
    FailFromNowOn(Errno),
    /// A read or write gets half of its length.
    Short,
}

/// How a process ended, with its calls and output in its window.
#[derive(Debug)]
pub(super) struct Run {
    /// Numbers of the system calls, in order.
    pub(super) calls: Vec<u64>,
    pub(super) status: ExitStatus,
    /// Standard output since the window began.
    pub(super) said: String,
}

/// Tells the tracer, in the traced process, that the window begins or ends.
pub(super) fn mark() {
    thread::yield_now();
}

/// Waits, in the process that is going to be traced, for its tracer.
pub(super) fn await_tracer() {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nready {}", nix::unistd::gettid()).unwrap();
    out.flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Runs `command`, whose process waits for its tracer, and does `fault` to it at the call with that
/// position in its window.
pub(super) fn run(command: &mut Command, fault: Option<(usize, Fault)>) -> Run {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let pid = await_ready(&mut output);
    ptrace::seize(
        pid,
        Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL,
    )
    .unwrap();
    ptrace::interrupt(pid).unwrap();
    waitpid(pid, Some(WaitPidFlag::__WALL)).unwrap();
    let stdin = child.stdin.take().unwrap();
    let process = Pid::from_raw(child.id().cast_signed());
    let (done, watched) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let is_late = watched.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        if is_late {
            kill(process, Signal::SIGKILL).unwrap();
        }
        is_late
    });
    let mut window = Window {
        process,
        pid,
        fault,
        marks: 0,
        calls: Vec::new(),
        failing: None,
    };
    window.follow(stdin);
    let status = child.wait().unwrap();
    drop(done);
    assert!(!watchdog.join().unwrap(), "it hangs after {fault:?}");
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    Run {
        calls: window.calls,
        status,
        said,
    }
}

/// The thread that wants to be traced.
fn await_ready(output: &mut BufReader<ChildStdout>) -> Pid {
    let mut line = String::new();
    while !line.starts_with("ready ") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    Pid::from_raw(line["ready ".len()..].trim_end().parse().unwrap())
}

/// The part of a thread between two marks.
struct Window {
    process: Pid,
    pid: Pid,
    fault: Option<(usize, Fault)>,
    marks: u32,
    calls: Vec<u64>,
    /// Calls of this number fail.
    failing: Option<(u64, Errno)>,
}

impl Window {
    /// Lets the thread go on, until it ends.
    fn follow(&mut self, mut stdin: ChildStdin) {
        stdin.write_all(b"\n").unwrap();
        drop(stdin);
        let mut in_call = false;
        let mut result = None;
        let mut signal = None;
        loop {
            // Fails for a thread that was killed, whose end comes next.
            let _ = ptrace::syscall(self.pid, signal.take());
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)).unwrap() {
                WaitStatus::PtraceSyscall(_) if in_call => {
                    in_call = false;
                    if let Some(errno) = result.take() {
                        self.set_result(errno);
                    }
                }
                WaitStatus::PtraceSyscall(_) => {
                    in_call = true;
                    result = self.enter();
                }
                WaitStatus::Stopped(_, received) => signal = Some(received),
                WaitStatus::PtraceEvent(..) => {}
                _ => return,
            }
        }
    }

    /// At the entry of a call. Yields the error that it is to end with.
    fn enter(&mut self) -> Option<Errno> {
        let mut regs = ptrace::getregs(self.pid).unwrap();
        let number = regs.orig_rax;
        if number == libc::SYS_sched_yield.cast_unsigned() {
            self.marks += 1;
            return None;
        }
        if self.marks != 1 {
            return None;
        }
        let position = self.calls.len();
        self.calls.push(number);
        let fault = self.fault.filter(|(at, _)| *at == position);
        match fault.map(|(_, fault)| fault) {
            Some(Fault::Kill) => kill(self.process, Signal::SIGKILL).unwrap(),
            Some(Fault::Short) => {
                regs.rdx = (regs.rdx / 2).max(1);
                ptrace::setregs(self.pid, regs).unwrap();
            }
            Some(Fault::FailFromNowOn(errno)) => self.failing = Some((number, errno)),
            _ => {}
        }
        let errno = match fault {
            Some((_, Fault::Fail(errno))) => Some(errno),
            _ => self
                .failing
                .filter(|(failing, _)| *failing == number)
                .map(|(_, errno)| errno),
        };
        // A descriptor is closed whatever the result says, and std trusts in that of a folder.
        let is_close = number == libc::SYS_close.cast_unsigned();
        if is_close && is_folder(self.pid, regs.rdi) {
            return None;
        }
        if errno.is_some() && !is_close {
            regs.orig_rax = u64::MAX;
            ptrace::setregs(self.pid, regs).unwrap();
        }
        errno
    }

    fn set_result(&self, errno: Errno) {
        let mut regs = ptrace::getregs(self.pid).unwrap();
        regs.rax = (-i64::from(errno as i32)).cast_unsigned();
        ptrace::setregs(self.pid, regs).unwrap();
    }
}

fn is_folder(pid: Pid, descriptor: u64) -> bool {
    fs::metadata(format!("/proc/{pid}/fd/{descriptor}")).is_ok_and(|metadata| metadata.is_dir())
}

/// Whether a call reads or writes bytes, so that it may do so in part.
pub(super) fn is_transfer(number: u64) -> bool {
    [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
    ]
    .iter()
    .any(|&transfer| number == transfer.cast_unsigned())
}

/// Whether a call concerns files. Others are about memory, threads and time, whose failures are
/// none of a cache.
pub(super) fn concerns_files(number: u64) -> bool {
    [
        libc::SYS_open,
        libc::SYS_openat,
        libc::SYS_close,
        libc::SYS_stat,
        libc::SYS_lstat,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_statfs,
        libc::SYS_fstatfs,
        libc::SYS_lseek,
        libc::SYS_fcntl,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_ftruncate,
        libc::SYS_getdents64,
        libc::SYS_rename,
        libc::SYS_renameat,
        libc::SYS_renameat2,
        libc::SYS_mkdir,
        libc::SYS_mkdirat,
        libc::SYS_link,
        libc::SYS_linkat,
        libc::SYS_unlink,
        libc::SYS_unlinkat,
        libc::SYS_utimensat,
    ]
    .iter()
    .any(|&call| number == call.cast_unsigned())
        || is_transfer(number)
}
