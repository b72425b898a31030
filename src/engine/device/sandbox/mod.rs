//! A sandbox for code that nobody trusts: a process in it, and all that it starts, read what they
//! need and write into one folder. They have no network, no other process's memory, and no
//! processors but those that they were given.
//!
//! Landlock limits files and signals, seccomp limits system calls ([`calls`]). Neither takes
//! privileges, and neither can be left again.

mod calls;

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities,
};

use calls::Filters;

/// What compilers, interpreters and libraries read: programs, settings, facts about the machine.
/// What `/proc` tells of processes outside the sandbox is not among it: Landlock refuses that
/// itself.
const SYSTEM: [&str; 12] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/sys",
    "/run/systemd/resolve",
];

/// Devices without a state that others could see.
const DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Folders of devices, and names of those by which processes use GPUs of NVIDIA.
const DEVICE_FOLDER: &str = "/dev";
const GPUS: &str = "nvidia";

/// The threads of a process, which NVIDIA's driver gives names by writing them.
const OWN_THREADS: &str = "/proc/self/task";

/// The version of Landlock whose rights are asked for; a kernel that has fewer gives those.
const WANTED: ABI = ABI::V6;

/// The first version of Landlock that keeps signals inside.
const SIGNALS: ABI = ABI::V6;

/// The largest file that a process may write, in bytes.
const MOST_FILE_BYTES: u64 = 4 << 30;

/// A sandbox that is described.
#[derive(Clone, Debug)]
pub struct Sandbox {
    reads: Vec<PathBuf>,
    scratch: PathBuf,
    /// Folders that stay hidden, even if one of `reads` has them.
    hidden: Vec<PathBuf>,
    /// Devices of GPUs that it works with.
    gpus: Vec<PathBuf>,
    /// The most memory that one of its processes has, in bytes.
    memory_bytes: Option<u64>,
}

/// What this machine's kernel gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grants {
    /// The version of Landlock, from 1; none where the kernel has none.
    pub landlock: Option<u32>,
    /// Filters of system calls.
    pub has_filters: bool,
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel has no Landlock, or it is switched off.
    #[error(
        "this machine has no sandbox: its kernel has no Landlock (Linux 5.13, `lsm=landlock`), or \
         the container forbids it"
    )]
    NoLandlock,
    /// A rule that the kernel refuses.
    #[error("the sandbox: {0}")]
    Rules(#[from] RulesetError),
    /// A filter of system calls that can't be made.
    #[error("the sandbox: {0}")]
    Filter(#[from] seccompiler::BackendError),
}

impl Sandbox {
    /// A sandbox whose processes write below `scratch` alone.
    pub fn new(scratch: &Path) -> Self {
        Sandbox {
            reads: Vec::new(),
            scratch: scratch.to_owned(),
            hidden: Vec::new(),
            gpus: Vec::new(),
            memory_bytes: None,
        }
    }

    /// Lets processes read below these paths, too. One that has a hidden folder below it is left
    /// out: rules only grant.
    #[must_use]
    pub fn reading(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Self {
        self.reads.extend(paths);
        self
    }

    /// Keeps folders hidden, such as the one with right answers.
    #[must_use]
    pub fn hiding(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.hidden.extend(folders);
        self
    }

    /// Lets processes use this machine's GPUs.
    #[must_use]
    pub fn with_gpus(mut self) -> Self {
        let entries = std::fs::read_dir(DEVICE_FOLDER).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        let is_gpu = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(GPUS)
        };
        self.gpus.extend(paths.filter(is_gpu));
        self
    }

    /// Gives each process so many bytes of memory.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// The paths that processes read.
    fn readable(&self) -> Vec<PathBuf> {
        let all = SYSTEM.iter().map(PathBuf::from).chain(self.reads.clone());
        let resolved = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let hidden: Vec<PathBuf> = self.hidden.iter().map(resolved).collect();
        let shows = |path: &PathBuf| {
            let path = resolved(path);
            path.parent().is_none() || hidden.iter().any(|folder| folder.starts_with(&path))
        };
        all.filter(|path| !shows(path)).collect()
    }

    fn rules(&self) -> Result<RulesetCreated, SandboxError> {
        let read = AccessFs::from_read(WANTED);
        let all = AccessFs::from_all(WANTED);
        let devices = read | AccessFs::WriteFile | AccessFs::Truncate;
        let gpus = devices | AccessFs::IoctlDev;
        Ok(Ruleset::default()
            .handle_access(all)?
            .handle_access(AccessNet::from_all(WANTED))?
            .scope(Scope::from_all(WANTED))?
            .create()?
            .add_rules(path_beneath_rules(self.readable(), read))?
            .add_rules(path_beneath_rules(DEVICES, devices))?
            .add_rules(path_beneath_rules(&self.gpus, gpus))?
            .add_rules(path_beneath_rules([&self.scratch], all))?)
    }

    /// Has a command run in this sandbox.
    ///
    /// # Errors
    /// The kernel has none, so that the command must not be started.
    #[expect(unsafe_code, reason = "a child's first steps, between fork and exec")]
    pub fn enclose(&self, command: &mut Command) -> Result<(), SandboxError> {
        let grants = Grants::of_this_machine();
        let version = grants.landlock.ok_or(SandboxError::NoLandlock)?;
        let mut rules = Some(self.rules()?);
        let has_gpus = !self.gpus.is_empty();
        let memory_bytes = self.memory_bytes;
        let filters = Filters::new(version >= SIGNALS as u32, has_gpus)?;
        let enter = move || {
            limit(Resource::Core, 0)?;
            limit(Resource::Fsize, MOST_FILE_BYTES)?;
            memory_bytes.map_or(Ok(()), |bytes| limit(Resource::As, bytes))?;
            drop_capabilities()?;
            let mut rules = rules.take().ok_or(io::ErrorKind::Other)?;
            if has_gpus {
                rules = with_own_threads(rules).map_err(|_| io::ErrorKind::Other)?;
            }
            let status = rules.restrict_self().map_err(|_| io::ErrorKind::Other)?;
            if status.ruleset == RulesetStatus::NotEnforced {
                return Err(io::ErrorKind::Unsupported.into());
            }
            filters.install()
        };
        // SAFETY: system calls alone. Rules and filters were made before the fork, and errors are
        // of kinds that take no memory.
        unsafe {
            command.pre_exec(enter);
        }
        Ok(())
    }
}

/// Lets this process write below the folder of its own threads, another one in each process.
fn with_own_threads(rules: RulesetCreated) -> Result<RulesetCreated, RulesetError> {
    let threads = path_beneath_rules([OWN_THREADS], AccessFs::WriteFile | AccessFs::Truncate);
    rules.add_rules(threads)
}

/// Lowers a limit for good.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(resource, limit)?)
}

/// Gives up what root may do beyond other users, here and in all programs that are started: with it
/// a process could read variables of others in spite of Landlock.
fn drop_capabilities() -> io::Result<()> {
    for capability in CapabilitySet::all() {
        // Only who may give capabilities may refuse them; others have none to lose.
        let _ = remove_capability_from_bounding_set(capability);
    }
    Ok(set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )?)
}

impl Grants {
    /// Asks the kernel.
    pub fn of_this_machine() -> Self {
        let versions = [ABI::V6, ABI::V5, ABI::V4, ABI::V3, ABI::V2, ABI::V1];
        let landlock = versions.into_iter().find(|&version| has(version));
        Grants {
            landlock: landlock.map(|version| version as u32),
            has_filters: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        }
    }

    /// Whether functions that nobody trusts can be measured here.
    pub fn is_whole(self) -> bool {
        self.landlock.is_some() && self.has_filters
    }

    /// In a few words.
    pub fn describe(self) -> String {
        let landlock = match self.landlock {
            None => return SandboxError::NoLandlock.to_string(),
            Some(version) => format!("files by Landlock (version {version} of its rights)"),
        };
        match self.has_filters {
            true => format!("{landlock}, system calls by seccomp"),
            false => format!("{landlock}; no seccomp, without which nothing untrusted is measured"),
        }
    }
}

/// Whether the kernel has all rights of a version of Landlock.
fn has(version: ABI) -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let rules = rules.handle_access(AccessFs::from_all(version));
    let rules = match version as u32 >= SIGNALS as u32 {
        true => rules.and_then(|rules| rules.scope(Scope::from_all(version))),
        false => rules,
    };
    rules.and_then(Ruleset::create).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Stdio;

    use super::*;

    /// What a shell in a sandbox prints, of one that can write into `scratch` and may not see
    /// `hidden`; `None` where this machine has no sandbox.
    fn said(script: &str, scratch: &Path, hidden: &Path) -> Option<String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stderr(Stdio::null());
        let sandbox = Sandbox::new(scratch).hiding([hidden.to_owned()]);
        match sandbox.enclose(&mut command) {
            Ok(()) => {}
            Err(SandboxError::NoLandlock) => {
                println!("skipped for want of landlock");
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let output = command.output().unwrap();
        Some(String::from_utf8(output.stdout).unwrap())
    }

    #[test]
    fn a_process_sees_and_writes_what_it_may_alone() {
        let (scratch, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("answers"), "42").unwrap();
        let (own, others) = (scratch.path().display(), other.path().display());
        let script = format!(
            "cat {others}/answers && echo read; ls {others} >/dev/null && echo listed; \
             (echo x > {others}/new) && echo wrote; (echo x > {own}/new) && echo own; \
             test -r /proc/{}/environ && cat /proc/{}/environ >/dev/null && echo spied; echo end",
            std::process::id(),
            std::process::id()
        );
        let Some(said) = said(&script, scratch.path(), other.path()) else {
            return;
        };
        assert_eq!(said, "own\nend\n");
        assert!(!other.path().join("new").exists());
    }

    #[test]
    fn a_process_has_no_network_no_signals_and_no_new_session() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "kill -0 {} && echo signalled; setsid true && echo session; \
             taskset -p -c 0 $$ >/dev/null && echo moved; \
             python3 -c 'import socket; socket.socket()' && echo connected; \
             unshare -U true && echo unshared; echo end",
            std::process::id()
        );
        if let Some(said) = said(&script, folder.path(), folder.path()) {
            assert_eq!(said, "end\n");
        }
    }

    #[test]
    fn a_folder_with_a_hidden_one_below_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let hidden = folder.path().join("cache");
        fs::create_dir(&hidden).unwrap();
        let beside = folder.path().join("packages");
        let reads = [folder.path().to_owned(), beside.clone(), PathBuf::from("/")];
        let sandbox = Sandbox::new(folder.path()).reading(reads);
        let found = sandbox.hiding([hidden]).readable();
        assert!(found.contains(&beside));
        assert_eq!(found.len(), SYSTEM.len() + 1, "{found:?}");
    }
}
