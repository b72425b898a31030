//! The machine, devices and compilers of a run, and whether another place has equal ones.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::{Digest, ManifestHash, RunId, run_id};

/// The identity of a run, spelt out. Two runs with equal fields have one id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunIdentity {
    /// The run.
    pub run: RunId,
    /// The keys of the manifest that change the meaning of rows.
    pub manifest: ManifestHash,
    /// Digest of the engine's sources.
    pub engine: Digest,
    /// Digest of the sources of workloads and kernels.
    pub kernels: Digest,
    /// The devices.
    pub devices: Vec<DeviceIdentity>,
    /// The compilers, in one line.
    pub toolchain: String,
    /// The interpreters of functions in Python, in one line; empty where there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub interpreters: String,
}

impl RunIdentity {
    /// The identity of a run with this program; `toolchain` is the identity of its compilers,
    /// `interpreters` that of the interpreters of its functions in Python.
    pub fn new(
        manifest: ManifestHash,
        devices: Vec<DeviceIdentity>,
        toolchain: String,
        interpreters: String,
    ) -> Self {
        let own = |text: &str| text.parse().unwrap_or(Digest::from_bytes([0; 32]));
        let engine = own(sweeper_model::digests::digests().engine);
        let kernels = own(sweeper_model::digests::digests().kernels);
        let hardware: Vec<String> = devices.iter().map(device_text).collect();
        let run = run_id(
            manifest,
            &engine,
            &kernels,
            &hardware.join("; "),
            &toolchain,
            &interpreters,
        );
        RunIdentity {
            run,
            manifest,
            engine,
            kernels,
            devices,
            toolchain,
            interpreters,
        }
    }

    /// The fields in which `other` differs, each with both values.
    pub fn differences(&self, other: &RunIdentity) -> Vec<Difference> {
        let texts = |identity: &RunIdentity| {
            let devices: Vec<String> = identity.devices.iter().map(device_text).collect();
            [
                ("manifest", identity.manifest.to_string()),
                ("engine", identity.engine.to_string()),
                ("kernels", identity.kernels.to_string()),
                ("device", devices.join("; ")),
                ("toolchain", identity.toolchain.clone()),
                ("interpreters", identity.interpreters.clone()),
            ]
        };
        texts(self)
            .into_iter()
            .zip(texts(other))
            .filter(|((_, own), (_, other))| own != other)
            .map(|((field, own), (_, other))| Difference { field, own, other })
            .collect()
    }
}

/// A field in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The field: `manifest`, `engine`, `kernels`, `device`, `toolchain` or `interpreters`.
    pub field: &'static str,
    /// The field's value in the first run.
    pub own: String,
    /// The field's value in the second run.
    pub other: String,
}

/// A kind of device, in a line. Which of several equal ones it is, a GPU's UUID, is not part of it:
/// processes on several machines, or on several GPUs of one, share a run. Rows name it.
fn device_text(device: &DeviceIdentity) -> String {
    let details: Vec<String> = device
        .details
        .iter()
        .map(|(name, value)| format!("{name}={value:.16}"))
        .collect();
    format!(
        "{} {} ({})",
        device.kind.name(),
        device.name,
        details.join(", ")
    )
}

/// All that is written down about a run beside its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The identity of the run.
    pub identity: RunIdentity,
    /// Name of the manifest.
    pub name: String,
    /// Version of this program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The machine: host name, kernel, processors, memory.
    pub host: BTreeMap<String, String>,
    /// Variables of the scheduler and of the choice of devices.
    pub variables: BTreeMap<String, String>,
    /// When it began, in seconds since 1970; zero on the null device.
    pub started_unix_s: f64,
}

/// Variables that say how a job was placed.
const VARIABLES: [&str; 10] = [
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPUS_ON_NODE",
    "SLURM_ARRAY_TASK_ID",
    "PBS_JOBID",
    "PBS_NCPUS",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "SWEEPER_CACHE_DIR",
];

/// Facts about this machine and job.
pub fn surroundings() -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let line = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let memory = line("/proc/meminfo")
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned();
    let host = [
        ("name", line("/proc/sys/kernel/hostname")),
        ("kernel", line("/proc/sys/kernel/osrelease")),
        ("memory", memory.replace("MemTotal:", "").trim().to_owned()),
        (
            "processors",
            std::thread::available_parallelism()
                .map_or(1, usize::from)
                .to_string(),
        ),
        (
            "governor",
            line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        ),
    ];
    let host = host
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let variables = VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect();
    (host, variables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sweeper_model::hardware::DeviceKind;

    #[test]
    fn processes_on_several_gpus_of_a_kind_share_a_run() {
        let gpu = |unit: &str, driver: &str| DeviceIdentity {
            kind: DeviceKind::Cuda,
            name: "NVIDIA H100".to_owned(),
            unit: unit.to_owned(),
            details: [("driver".to_owned(), driver.to_owned())].into(),
        };
        let identity = |devices: Vec<DeviceIdentity>| {
            let manifest = ManifestHash(Digest::from_bytes([1; 32]));
            RunIdentity::new(manifest, devices, "nvrtc".to_owned(), String::new())
        };
        let one = identity(vec![gpu("GPU-1", "580")]);
        let other = identity(vec![gpu("GPU-2", "580")]);
        assert_eq!(one.run, other.run);
        assert_eq!(one.differences(&other), []);
        let newer = identity(vec![gpu("GPU-1", "590")]);
        assert_ne!(one.run, newer.run);
        assert_eq!(one.differences(&newer)[0].field, "device");
        let both = identity(vec![gpu("GPU-1", "580"), gpu("GPU-2", "580")]);
        assert_ne!(one.run, both.run);
    }
}
