//! The system calls that a sandbox refuses. All others are allowed: compilers and libraries use
//! more of them than any list would have, and files are Landlock's.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Calls by which a process reaches others, the network, other processors or the system itself.
const REFUSED: [libc::c_long; 60] = [
    // Memory and descriptors of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Memory that processes find by a number.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
    // Sessions, by which a process would escape its end.
    libc::SYS_setsid,
    // Processors and turns other than those that were given.
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Ways round these filters, and large parts of the kernel that nothing here needs.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_personality,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    // The system.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// Kinds of sockets, in the bits of [`KIND`] of what `socket` is asked for.
const KIND: u64 = 0xF;
const KINDS: std::ops::Range<u64> = 0..KIND + 1;

/// In place of an error: the call says that it has done what it has not.
const DONE: libc::c_int = 0;

/// Signals to other processes. To a thread of the own process there is `tgkill`.
const SIGNALS: [libc::c_long; 4] = [
    libc::SYS_kill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

/// Namespaces that `clone` would make.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The bit of numbers of calls with 32-bit pointers on x86-64, which are the same calls.
const X32: libc::c_long = 0x4000_0000;

/// The filters of a sandbox.
pub(super) struct Filters([BpfProgram; 4]);

impl Filters {
    /// Filters that refuse signals to other processes as well, where Landlock does not, and let a
    /// driver of GPUs start.
    ///
    /// # Errors
    /// A filter that can't be made for this processor.
    pub(super) fn new(landlock_has_signals: bool, has_gpus: bool) -> Result<Self, BackendError> {
        let mut refused: BTreeMap<libc::c_long, Vec<SeccompRule>> = BTreeMap::new();
        let signals = SIGNALS.iter().filter(|_| !landlock_has_signals);
        refused.extend(
            REFUSED
                .iter()
                .chain(signals)
                .map(|&call| (call, Vec::new())),
        );
        let namespaces = NAMESPACES.iter().map(|&flag| {
            let flag = flag as u64;
            let is_asked = SeccompCmpOp::MaskedEq(flag);
            let flags = SeccompCondition::new(0, SeccompCmpArgLen::Qword, is_asked, flag)?;
            SeccompRule::new(vec![flags])
        });
        // `socketpair` stays.
        let sockets = match has_gpus {
            true => other_sockets()?,
            false => Vec::new(),
        };
        refused.insert(libc::SYS_socket, sockets);
        refused.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
        // Its flags are in memory, which a filter can't read. C libraries fall back on `clone`.
        let hidden = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        // Groups are another way to escape, but builds that start compilers in groups of their own
        // go on where these stay in the one that they are in.
        let groups = BTreeMap::from([(libc::SYS_setpgid, Vec::new())]);
        let nobody = BTreeMap::from([(libc::SYS_connect, Vec::new())]);
        Ok(Filters([
            filter(refused, libc::EPERM)?,
            filter(hidden, libc::ENOSYS)?,
            filter(nobody, libc::ECONNREFUSED)?,
            filter(groups, DONE)?,
        ]))
    }

    /// Has the calling thread, and all that it starts, be filtered from now on.
    pub(super) fn install(&self) -> io::Result<()> {
        for program in &self.0 {
            seccompiler::apply_filter(program).map_err(|_| io::ErrorKind::Unsupported)?;
        }
        Ok(())
    }
}

/// Rules for all sockets but those of this machine that carry packets over a connection: NVIDIA's
/// driver does not start without one. It looks for a server, and finds none that answers.
fn other_sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let has = |argument, operation, value| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)?;
        SeccompRule::new(vec![condition])
    };
    let domain = has(0, SeccompCmpOp::Ne, libc::AF_UNIX as u64);
    let others = KINDS.filter(|&kind| kind != libc::SOCK_SEQPACKET as u64);
    let kinds = others.map(|kind| has(1, SeccompCmpOp::MaskedEq(KIND), kind));
    std::iter::once(domain).chain(kinds).collect()
}

fn filter(
    mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    error: libc::c_int,
) -> Result<BpfProgram, BackendError> {
    if cfg!(target_arch = "x86_64") {
        let twins = rules.clone().into_iter();
        rules.extend(twins.map(|(call, rules)| (call | X32, rules)));
    }
    let target = TargetArch::try_from(std::env::consts::ARCH)?;
    let error = SeccompAction::Errno(error as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, error, target)?.try_into()
}
