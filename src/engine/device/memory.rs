//! How much memory this process can still have: of the host, of its control groups, and by its own
//! limits.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// Bytes that can be taken without pushing the host into swapping, or a control group of this
/// process over its limit, or the process over its own; or, where no control group has a limit, the
/// process over what Slurm gave its job.
pub fn available_bytes() -> u64 {
    let root = Path::new("/");
    let host = kilobytes(root, "proc/meminfo", "MemAvailable").unwrap_or(u64::MAX);
    let job = match groups_allow(root) {
        u64::MAX => slurm_allows(root, |name| env::var(name).ok()),
        limited => limited,
    };
    host.min(job).min(own_limit_allows(root))
}

/// How often the system has ended a process of this control group for its memory.
pub fn group_kills() -> u64 {
    let root = Path::new("/");
    let leaf = groups(root).into_iter().map(|group| group.kills(root));
    leaf.max().unwrap_or(0)
}

/// The memory that Slurm gave the job on this node, less that of this process: others of the job
/// can't be told without control groups. Slurm kills jobs that have more, where it looks at all.
fn slurm_allows(root: &Path, variable: impl Fn(&str) -> Option<String>) -> u64 {
    let number = |name| variable(name)?.parse::<u64>().ok();
    // Megabytes; none or 0 stand for all that the node has.
    let of_processors = || number("SLURM_MEM_PER_CPU")?.checked_mul(number("SLURM_CPUS_ON_NODE")?);
    let given = number("SLURM_MEM_PER_NODE").or_else(of_processors);
    let Some(given) = given.filter(|&megabytes| megabytes > 0) else {
        return u64::MAX;
    };
    let used = kilobytes(root, "proc/self/status", "VmRSS").unwrap_or(0);
    given.saturating_mul(1 << 20).saturating_sub(used)
}

/// Bytes by which the address space of this process may still grow.
fn own_limit_allows(root: &Path) -> u64 {
    let used = kilobytes(root, "proc/self/status", "VmSize").unwrap_or(0);
    let limit = getrlimit(Resource::As).current;
    limit.map_or(u64::MAX, |limit| limit.saturating_sub(used))
}

/// The least that a control group of this process may still take.
fn groups_allow(root: &Path) -> u64 {
    let all = groups(root).into_iter().map(|group| group.allows(root));
    all.min().unwrap_or(u64::MAX)
}

/// A hierarchy of control groups that accounts for memory, and this process's place in it.
struct Group {
    hierarchy: &'static Hierarchy,
    /// Where the hierarchy is mounted.
    mount: PathBuf,
    /// The group's path below it.
    inner: PathBuf,
}

/// Names of a hierarchy's files.
struct Hierarchy {
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` that counts pages of files that can be dropped at once.
    droppable: &'static str,
    kills: &'static str,
}

/// Version 1 has no word for the absence of a limit: it is 2^63 less a page then.
const UNLIMITED: u64 = 1 << 62;

static VERSION_1: Hierarchy = Hierarchy {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    droppable: "total_inactive_file",
    kills: "memory.oom_control",
};

static VERSION_2: Hierarchy = Hierarchy {
    limit: "memory.max",
    used: "memory.current",
    droppable: "inactive_file",
    kills: "memory.events",
};

impl Group {
    /// Bytes that this group and those around it may still take: a limit may be set on any of them,
    /// as Slurm's is on the job's and not on the step's.
    fn allows(&self, root: &Path) -> u64 {
        let levels = self.inner.ancestors();
        let level = |inner: &Path| {
            let folder = self.folder(root, inner);
            let limit = number(&folder.join(self.hierarchy.limit));
            let limit = limit.filter(|&limit| limit < UNLIMITED)?;
            let used = number(&folder.join(self.hierarchy.used))?;
            let droppable = field(&folder.join("memory.stat"), self.hierarchy.droppable);
            Some(limit.saturating_sub(used.saturating_sub(droppable.unwrap_or(0))))
        };
        levels.filter_map(level).min().unwrap_or(u64::MAX)
    }

    fn kills(&self, root: &Path) -> u64 {
        let path = self.folder(root, &self.inner).join(self.hierarchy.kills);
        field(&path, "oom_kill").unwrap_or(0)
    }

    fn folder(&self, root: &Path, inner: &Path) -> PathBuf {
        let mount = self.mount.strip_prefix("/").unwrap_or(&self.mount);
        root.join(mount).join(inner)
    }
}

/// The groups of this process in every hierarchy that accounts for memory.
fn groups(root: &Path) -> Vec<Group> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (mounts, own) = (read("proc/self/mountinfo"), read("proc/self/cgroup"));
    mounts
        .lines()
        .filter_map(|line| group(line, &own))
        .collect()
}

/// The group of a mount (a line of `mountinfo`), by the lines of this process's `cgroup`.
fn group(mount: &str, own: &str) -> Option<Group> {
    // `ID PARENT DEVICE ROOT MOUNT OPTIONS [FIELDS] - TYPE SOURCE OPTIONS`
    let (before, after) = mount.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (mount_root, mount) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let has_memory = |names: &str| names.split(',').any(|name| name == "memory");
    let hierarchy = match kind {
        "cgroup2" => &VERSION_2,
        "cgroup" if has_memory(options) => &VERSION_1,
        _ => return None,
    };
    // `NUMBER:CONTROLLERS:PATH`, without controllers in version 2.
    let path = own.lines().find_map(|line| {
        let (_, line) = line.split_once(':')?;
        let (controllers, path) = line.split_once(':')?;
        let is_it = match kind {
            "cgroup2" => controllers.is_empty(),
            _ => has_memory(controllers),
        };
        is_it.then_some(path)
    });
    // In a container the mount shows a part of the hierarchy, in which this process may be
    // anywhere.
    let inner = path.and_then(|path| Path::new(path).strip_prefix(mount_root).ok());
    let inner = inner.map(|inner| inner.strip_prefix("/").unwrap_or(inner));
    Some(Group {
        hierarchy,
        mount: PathBuf::from(mount),
        inner: inner.map_or_else(PathBuf::new, Path::to_owned),
    })
}

/// The number that a file holds; none for the word `max`.
fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number in the line `NAME NUMBER` of a file.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(held, _)| *held == name)?;
    value.trim().parse().ok()
}

/// A line `NAME:   123 kB` of a file of the proc file system, in bytes.
fn kilobytes(root: &Path, path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(held, _)| *held == name)?;
    let kilobytes: u64 = value.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with files in it.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const UNIFIED: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn slurm_says_how_much_a_job_may_have() {
        let root = root(&[("proc/self/status", "Name:\tsweeper\nVmRSS:\t    2048 kB\n")]);
        let allows = |variables: &[(&str, &str)]| {
            slurm_allows(root.path(), |name| {
                let found = variables.iter().find(|(held, _)| *held == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        let megabytes = |count: u64| count << 20;
        assert_eq!(allows(&[("SLURM_MEM_PER_NODE", "200")]), megabytes(198));
        assert_eq!(allows(&[("SLURM_MEM_PER_NODE", "1")]), 0);
        let of_processors = [("SLURM_MEM_PER_CPU", "100"), ("SLURM_CPUS_ON_NODE", "4")];
        assert_eq!(allows(&of_processors), megabytes(398));
        assert_eq!(allows(&of_processors[..1]), u64::MAX);
        assert_eq!(allows(&[("SLURM_MEM_PER_NODE", "0")]), u64::MAX);
        assert_eq!(allows(&[]), u64::MAX);
    }

    #[test]
    fn a_limit_of_any_group_around_counts_in_version_2() {
        let job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
        let file = |name: &str| format!("{job}/{name}");
        let step = |name: &str| format!("{job}/step_0/user/{name}");
        let root = root(&[
            ("proc/self/mountinfo", UNIFIED),
            (
                "proc/self/cgroup",
                "0::/system.slice/slurmstepd.scope/job_7/step_0/user\n",
            ),
            (&file("memory.max"), "1000000\n"),
            (&file("memory.current"), "700000\n"),
            (&file("memory.stat"), "anon 400000\ninactive_file 200000\n"),
            (&step("memory.max"), "max\n"),
            (&step("memory.current"), "650000\n"),
            (&step("memory.events"), "low 0\noom 3\noom_kill 2\n"),
        ]);
        assert_eq!(groups_allow(root.path()), 500_000);
        let group = groups(root.path()).remove(0);
        assert_eq!(group.kills(root.path()), 2);
    }

    #[test]
    fn version_1_has_a_hierarchy_of_memory_alone() {
        let mounts = "34 31 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
                      35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        let job = "sys/fs/cgroup/memory/job_9";
        let file = |name: &str| format!("{job}/{name}");
        let root = root(&[
            ("proc/self/mountinfo", mounts),
            (
                "proc/self/cgroup",
                "8:cpu:/docker/abc\n4:memory:/docker/abc/job_9\n",
            ),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "900\n"),
            (&file("memory.limit_in_bytes"), "5000\n"),
            (&file("memory.usage_in_bytes"), "4000\n"),
            (
                &file("memory.oom_control"),
                "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
            ),
        ]);
        assert_eq!(groups_allow(root.path()), 1000);
        assert_eq!(groups(root.path())[0].kills(root.path()), 1);
        // Then the job's memory counts, as Slurm says it.
        let unlimited = "9223372036854771712\n";
        fs::write(root.path().join(file("memory.limit_in_bytes")), unlimited).unwrap();
        assert_eq!(groups_allow(root.path()), u64::MAX);
    }

    #[test]
    fn a_group_elsewhere_in_the_hierarchy_is_taken_for_that_of_the_mount() {
        let root = root(&[
            (
                "proc/self/mountinfo",
                "30 23 0:26 /kubepods/pod1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            ),
            ("proc/self/cgroup", "0::/../pod1\n"),
            ("sys/fs/cgroup/memory.max", "300\n"),
            ("sys/fs/cgroup/memory.current", "100\n"),
        ]);
        assert_eq!(groups_allow(root.path()), 200);
    }

    #[test]
    fn this_machine_has_some() {
        let available = available_bytes();
        assert!(available > 1 << 20 && available < 1 << 50, "{available}");
    }
}
